"""Producer transactions: offsets are committed atomically, and a transactional id has one active producer."""

from __future__ import annotations

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.groups import GroupOffset, fetch_stable_offset, list_committed_offsets
from chronik.client.records import TopicPartition
from chronik.client.transaction import ProducerTransaction
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.testing import Broker

pytestmark = pytest.mark.chronik_topic(partitions=2)


@pytest.fixture
def partition_of_topic(chronik_topic: str) -> TopicPartition:
    return TopicPartition(chronik_topic, 0)


def begin_transaction(cluster: ClusterClient, partition_of_topic: TopicPartition, offset: int) -> ProducerTransaction:
    """Begin a transaction that commits the offset; transactional id and group have the topic's name."""
    transaction = ProducerTransaction(cluster, partition_of_topic.topic)
    transaction.begin()
    transaction.add_partitions([partition_of_topic])
    transaction.commit_offsets(
        partition_of_topic.topic, {partition_of_topic: GroupOffset(offset, f"metadata of {offset}")}
    )
    return transaction


def test_transaction_commits_offsets_and_abort_discards_them(
    chronik_broker: Broker, partition_of_topic: TopicPartition
) -> None:
    with chronik_broker.cluster() as cluster:
        transaction = begin_transaction(cluster, partition_of_topic, 7)
        assert list_committed_offsets(cluster, partition_of_topic.topic) == {}
        transaction.commit()
        assert fetch_stable_offset(cluster, partition_of_topic.topic, partition_of_topic) == GroupOffset(
            7, "metadata of 7"
        )
        begin_transaction(cluster, partition_of_topic, 8).abort()
        assert fetch_stable_offset(cluster, partition_of_topic.topic, partition_of_topic) == GroupOffset(
            7, "metadata of 7"
        )


def test_stable_offset_waits_for_open_transaction(chronik_broker: Broker, partition_of_topic: TopicPartition) -> None:
    with (
        chronik_broker.cluster() as cluster,
        ClusterClient(chronik_broker.bootstrap, timeout_s=0.1) as impatient_cluster,
    ):
        transaction = begin_transaction(cluster, partition_of_topic, 7)
        with pytest.raises(KafkaError) as raised:
            fetch_stable_offset(impatient_cluster, partition_of_topic.topic, partition_of_topic)
        assert raised.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        transaction.commit()
        assert fetch_stable_offset(impatient_cluster, partition_of_topic.topic, partition_of_topic) == GroupOffset(
            7, "metadata of 7"
        )


def test_begin_aborts_open_transaction_and_fences_previous_producer(
    chronik_broker: Broker, partition_of_topic: TopicPartition
) -> None:
    with chronik_broker.cluster() as cluster:
        previous = begin_transaction(cluster, partition_of_topic, 7)
        next_transaction = ProducerTransaction(cluster, partition_of_topic.topic)
        next_transaction.begin()
        assert fetch_stable_offset(cluster, partition_of_topic.topic, partition_of_topic) is None
        for late_call in (previous.commit, lambda: previous.add_partitions([partition_of_topic._replace(partition=1)])):
            with pytest.raises(KafkaError) as raised:
                late_call()
            assert raised.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_abort_of_empty_transaction_sends_no_request(
    chronik_broker: Broker, partition_of_topic: TopicPartition
) -> None:
    with chronik_broker.cluster() as cluster:
        transaction = ProducerTransaction(cluster, partition_of_topic.topic)
        transaction.begin()
        transaction.abort()


def test_transaction_identity_can_be_taken_only_once(
    chronik_broker: Broker, partition_of_topic: TopicPartition
) -> None:
    with chronik_broker.cluster() as cluster:
        transaction = ProducerTransaction(cluster, partition_of_topic.topic)
        transaction.begin()
        assert transaction.take_identity().producer_id >= 0
        with pytest.raises(KafkaError, match="the transaction has failed"):
            transaction.take_identity()
