"""A transaction of our own producers: offsets come with it or not at all, and an id has one user at a time."""

from __future__ import annotations

import pytest

from chronik.client.cluster import Cluster
from chronik.client.groups import Committed, committed_offsets, stable_offset
from chronik.client.records import TopicPartition
from chronik.client.transactional import Transaction
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.testing import Broker

pytestmark = pytest.mark.chronik_topic(partitions=2)


@pytest.fixture
def place(chronik_topic: str) -> TopicPartition:
    return TopicPartition(chronik_topic, 0)


def begun(cluster: Cluster, place: TopicPartition, offset: int) -> Transaction:
    """A transaction of the id and for the group that are called as the topic is, which commits this offset."""
    transaction = Transaction(cluster, place.topic)
    transaction.begin()
    transaction.add_partitions([place])
    transaction.commit_offsets(place.topic, {place: Committed(offset, f"said with {offset}")})
    return transaction


def test_offsets_are_committed_with_it(chronik_broker: Broker, place: TopicPartition) -> None:
    with chronik_broker.cluster() as cluster:
        transaction = begun(cluster, place, 7)
        assert committed_offsets(cluster, place.topic) == {}
        transaction.commit()
        assert stable_offset(cluster, place.topic, place) == Committed(7, "said with 7")
        begun(cluster, place, 8).abort()
        assert stable_offset(cluster, place.topic, place) == Committed(7, "said with 7")


def test_what_may_still_change_is_not_told_as_stable(chronik_broker: Broker, place: TopicPartition) -> None:
    with chronik_broker.cluster() as cluster, Cluster(chronik_broker.bootstrap, timeout_s=0.1) as hasty:
        transaction = begun(cluster, place, 7)
        with pytest.raises(KafkaError) as raised:
            stable_offset(hasty, place.topic, place)
        assert raised.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        transaction.commit()
        assert stable_offset(hasty, place.topic, place) == Committed(7, "said with 7")


def test_the_next_one_ends_what_the_one_before_has_left_open(chronik_broker: Broker, place: TopicPartition) -> None:
    with chronik_broker.cluster() as cluster:
        left_open = begun(cluster, place, 7)
        following = Transaction(cluster, place.topic)
        following.begin()
        assert stable_offset(cluster, place.topic, place) is None
        for late in (left_open.commit, lambda: left_open.add_partitions([place._replace(partition=1)])):
            with pytest.raises(KafkaError) as raised:
                late()
            assert raised.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_one_that_has_nothing_in_it_is_aborted_by_doing_nothing(chronik_broker: Broker, place: TopicPartition) -> None:
    with chronik_broker.cluster() as cluster:
        transaction = Transaction(cluster, place.topic)
        transaction.begin()
        transaction.abort()


def test_whoever_lost_count_of_its_batches_gets_no_second_identity(
    chronik_broker: Broker, place: TopicPartition
) -> None:
    with chronik_broker.cluster() as cluster:
        transaction = Transaction(cluster, place.topic)
        transaction.begin()
        assert transaction.identity().producer_id >= 0
        with pytest.raises(KafkaError, match="the transaction has failed"):
            transaction.identity()
