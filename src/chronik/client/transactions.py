"""Transactions from outside: which there are, which partitions they hold up, and an end for those that hang."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster, raise_for
from chronik.client.offsets import by_leader, by_topic
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from chronik.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from chronik.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ANY_AGE: Final = -1
NO_TRANSACTION: Final = -1
"""In place of the offset at which a producer's transaction began."""

PARTITIONS_PER_REQUEST: Final = 500

TIMEOUT_MS: Final = 60_000
"""How long a transaction may take, as clients have it by default."""


class Listed(NamedTuple):
    coordinator: int
    transaction: ListedTransaction


class Described(NamedTuple):
    coordinator: int
    transaction: DescribedTransaction

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(
            TopicPartition(topic.topic, index) for topic in self.transaction.topics for index in topic.partitions
        )


class Open(NamedTuple):
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerState


def list_transactions(
    cluster: Cluster, *, older_than_ms: int = ANY_AGE, pattern: str | None = None, producer_ids: Iterable[int] = ()
) -> list[Listed]:
    """Returns those of all brokers, by transactional id."""
    request = ListTransactionsRequest(
        producer_id_filters=list(producer_ids), duration_filter=older_than_ms, transactional_id_pattern=pattern
    )

    def ask() -> list[Listed]:
        found: list[Listed] = []
        for broker_id, broker in cluster.brokers_by_id().items():
            response = broker.request(request, ListTransactionsResponse)
            raise_for(response.error_code, f"transactions of {broker.address}")
            found += (Listed(broker_id, each) for each in response.transaction_states)
        return found

    return sorted(cluster.retrying(ask), key=lambda each: each.transaction.transactional_id)


def describe_transaction(cluster: Cluster, transactional_id: str) -> Described:
    """Raises KafkaError with TRANSACTIONAL_ID_NOT_FOUND when there is no such id."""

    def ask() -> Described:
        node_id, coordinator = cluster.transaction_coordinator(transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (found,) = coordinator.request(request, DescribeTransactionsResponse).transaction_states
        raise_for(found.error_code, f"transactional id {transactional_id}")
        return Described(node_id, found)

    return cluster.retrying(ask)


def init_producer(cluster: Cluster, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> tuple[int, int]:
    """Takes over a transactional id, as a producer does that begins: others are fenced, and what is open is aborted.
    Returns producer id and epoch."""

    def ask() -> tuple[int, int]:
        _, coordinator = cluster.transaction_coordinator(transactional_id)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        given = coordinator.request(request, InitProducerIdResponse)
        raise_for(given.error_code, f"transactional id {transactional_id}")
        return given.producer_id, given.producer_epoch

    return cluster.retrying(ask)


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ProducerState]]:
    """Returns what leaders, or one broker that has replicas of all of them, know of producers."""
    found: dict[TopicPartition, list[ProducerState]] = {}
    left = iter(partitions)
    while some := list(islice(left, PARTITIONS_PER_REQUEST)):
        found |= cluster.retrying(lambda some=some: _describe_producers(cluster, some, broker_id))  # type: ignore[misc]
    return found


def _describe_producers(
    cluster: Cluster, partitions: list[TopicPartition], broker_id: int | None
) -> dict[TopicPartition, list[ProducerState]]:
    asked: Mapping[int, list[TopicPartition]] = {broker_id: partitions} if broker_id is not None else {}
    if broker_id is None:
        asked = by_leader(cluster, partitions)
    elif broker_id not in cluster.brokers_by_id():
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not there")
    found: dict[TopicPartition, list[ProducerState]] = {}
    for node_id, some in asked.items():
        topics = [TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in by_topic(some).items()]
        response = cluster.broker(node_id).request(DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                raise_for(answer.error_code, str(partition), answer.error_message)
                found[partition] = answer.active_producers
    return found


def open_transactions(
    cluster: Cluster, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> list[Open]:
    return [
        Open(partition, producer)
        for partition, producers in sorted(describe_producers(cluster, partitions, broker_id).items())
        for producer in producers
        if producer.current_txn_start_offset != NO_TRANSACTION
    ]


def abort_transaction(
    cluster: Cluster, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Ends a transaction in one partition. Raises KafkaError, with INVALID_TXN_STATE when a coordinator knows it."""
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
                # Producers whose first transaction hangs have seen no coordinator; 0 is not above any epoch of one.
                coordinator_epoch=max(coordinator_epoch, 0),
            )
        ]
    )

    def ask() -> None:
        (marker,) = cluster.leader(partition).request(request, WriteTxnMarkersResponse).markers
        raise_for(marker.topics[0].partitions[0].error_code, str(partition))

    cluster.retrying(ask, repeatable=False)


def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], older_than_ms: int, broker_id: int | None = None
) -> list[Open]:
    """Returns transactions that have been silent for longer than that, and that no coordinator knows: it keeps to what
    DescribeTransactions tells, as Kafka's tool does."""
    now_ms = time.time_ns() // 1_000_000
    candidates = [
        each
        for each in open_transactions(cluster, partitions, broker_id)
        if now_ms - each.producer.last_timestamp > older_than_ms
    ]
    if not candidates:
        return []
    listed = list_transactions(cluster, producer_ids={each.producer.producer_id for each in candidates})
    known = {
        each.transaction.producer_id: _partitions_of(cluster, each.transaction.transactional_id) for each in listed
    }
    return [each for each in candidates if each.partition not in known.get(each.producer.producer_id, ())]


def _partitions_of(cluster: Cluster, transactional_id: str) -> list[TopicPartition]:
    try:
        return describe_transaction(cluster, transactional_id).partitions
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return []  # it has expired just now
