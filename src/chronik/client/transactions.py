"""Transaction administration: list and describe transactions, find hanging ones and abort them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.offsets import group_by_leader, group_by_topic
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    ProducerState,
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
NO_START_OFFSET: Final = -1
"""Value of the transaction start offset for a producer without an open transaction."""

PARTITIONS_PER_REQUEST: Final = 500

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Default transaction timeout of Kafka producers, in milliseconds."""


class ListedTransactionState(NamedTuple):
    """A transaction returned by ListTransactions, with the node id of its coordinator."""

    coordinator: int
    transaction: ListedTransaction


class DescribedTransactionState(NamedTuple):
    """A transaction returned by DescribeTransactions, with the node id of its coordinator."""

    coordinator: int
    transaction: DescribedTransaction

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(
            TopicPartition(topic.topic, index) for topic in self.transaction.topics for index in topic.partitions
        )


class OpenTransaction(NamedTuple):
    """An open transaction in one partition."""

    partition: TopicPartition
    producer: ProducerState


def list_transactions(
    cluster: ClusterClient,
    *,
    older_than_ms: int = ANY_AGE,
    pattern: str | None = None,
    producer_ids: Iterable[int] = (),
) -> list[ListedTransactionState]:
    """Return the transactions of all coordinators that match the filters, sorted by transactional id."""
    request = ListTransactionsRequest(
        producer_id_filters=list(producer_ids), duration_filter=older_than_ms, transactional_id_pattern=pattern
    )

    def send() -> list[ListedTransactionState]:
        found: list[ListedTransactionState] = []
        for broker_id, broker in cluster.brokers_by_id().items():
            response = broker.request(request, ListTransactionsResponse)
            raise_for_code(response.error_code, f"transactions of {broker.address}")
            found += (ListedTransactionState(broker_id, each) for each in response.transaction_states)
        return found

    return sorted(cluster.retry(send), key=lambda each: each.transaction.transactional_id)


def describe_transaction(cluster: ClusterClient, transactional_id: str) -> DescribedTransactionState:
    """Return the state of a transaction. Raise KafkaError with TRANSACTIONAL_ID_NOT_FOUND if it does not exist."""

    def send() -> DescribedTransactionState:
        node_id, coordinator = cluster.transaction_coordinator(transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (found,) = coordinator.request(request, DescribeTransactionsResponse).transaction_states
        raise_for_code(found.error_code, f"transactional id {transactional_id}")
        return DescribedTransactionState(node_id, found)

    return cluster.retry(send)


def init_transactional_id(
    cluster: ClusterClient, transactional_id: str, timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
) -> tuple[int, int]:
    """Initialize a transactional id, as a starting producer does, and return its producer id and epoch.

    This fences the previous producer and aborts its open transaction.
    """

    def send() -> tuple[int, int]:
        _, coordinator = cluster.transaction_coordinator(transactional_id)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        given = coordinator.request(request, InitProducerIdResponse)
        raise_for_code(given.error_code, f"transactional id {transactional_id}")
        return given.producer_id, given.producer_epoch

    return cluster.retry(send)


def describe_producers(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ProducerState]]:
    """Return the active producers of each partition, as reported by its leader or the given broker."""
    found: dict[TopicPartition, list[ProducerState]] = {}
    remaining = iter(partitions)
    while chunk := list(islice(remaining, PARTITIONS_PER_REQUEST)):
        found |= cluster.retry(lambda chunk=chunk: _describe_producers(cluster, chunk, broker_id))  # type: ignore[misc]
    return found


def _describe_producers(
    cluster: ClusterClient, partitions: list[TopicPartition], broker_id: int | None
) -> dict[TopicPartition, list[ProducerState]]:
    by_broker: Mapping[int, list[TopicPartition]] = {broker_id: partitions} if broker_id is not None else {}
    if broker_id is None:
        by_broker = group_by_leader(cluster, partitions)
    elif broker_id not in cluster.brokers_by_id():
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not available")
    found: dict[TopicPartition, list[ProducerState]] = {}
    for node_id, chunk in by_broker.items():
        topics = [
            DescribeProducersTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in group_by_topic(chunk).items()
        ]
        response = cluster.broker(node_id).request(DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                raise_for_code(result.error_code, str(partition), result.error_message)
                found[partition] = result.active_producers
    return found


def list_open_transactions(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> list[OpenTransaction]:
    """Return the transactions that are open in the given partitions."""
    return [
        OpenTransaction(partition, producer)
        for partition, producers in sorted(describe_producers(cluster, partitions, broker_id).items())
        for producer in producers
        if producer.current_txn_start_offset != NO_START_OFFSET
    ]


def abort_transaction(
    cluster: ClusterClient, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Abort a hanging transaction in one partition.

    Raise KafkaError with INVALID_TXN_STATE if a coordinator knows it.
    """
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
                # The producer of a hanging first transaction has no coordinator epoch; 0 is never rejected as stale.
                coordinator_epoch=max(coordinator_epoch, 0),
            )
        ]
    )

    def send() -> None:
        (marker,) = cluster.leader(partition).request(request, WriteTxnMarkersResponse).markers
        raise_for_code(marker.topics[0].partitions[0].error_code, str(partition))

    cluster.retry(send, repeatable=False)


def find_hanging_transactions(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], older_than_ms: int, broker_id: int | None = None
) -> list[OpenTransaction]:
    """Return hanging transactions: open ones without recent records that are unknown to their coordinator.

    Like Kafka's tool, it relies on DescribeTransactions.
    """
    now_ms = time.time_ns() // 1_000_000
    candidates = [
        each
        for each in list_open_transactions(cluster, partitions, broker_id)
        if now_ms - each.producer.last_timestamp > older_than_ms
    ]
    if not candidates:
        return []
    listed = list_transactions(cluster, producer_ids={each.producer.producer_id for each in candidates})
    known = {
        each.transaction.producer_id: _list_transaction_partitions(cluster, each.transaction.transactional_id)
        for each in listed
    }
    return [each for each in candidates if each.partition not in known.get(each.producer.producer_id, ())]


def _list_transaction_partitions(cluster: ClusterClient, transactional_id: str) -> list[TopicPartition]:
    try:
        return describe_transaction(cluster, transactional_id).partitions
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return []  # the transactional id has just expired
