"""Transactions that block landing: records from an open transaction's first offset on cannot land until it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ApiNotSupported
from chronik.client.offsets import LATEST_TIMESTAMP, READ_COMMITTED, list_offsets
from chronik.client.records import TopicPartition
from chronik.client.transactions import list_open_transactions, list_transactions
from chronik.protocol.errors import KafkaError


@dataclass(frozen=True, slots=True)
class BlockingTransaction:
    """The open transaction of a partition with the lowest start offset, and its producer."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    """Offset of its first record in the partition, which is the partition's last stable offset."""
    last_ms: int
    """Timestamp of its last record, or -1 if unknown."""
    transactional_id: str | None = None
    """The transactional id, or None if no coordinator knows the producer."""


BlockingTransactions = Mapping[TopicPartition, BlockingTransaction]


def fetch_blocking_transactions(
    cluster: ClusterClient, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, BlockingTransaction]:
    """Return the blocking transactions of partitions whose last stable offset is below these ends.

    Brokers before Kafka 2.8 do not report producers, and those before 3.0 no transactional ids.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    try:
        stable = list_offsets(cluster, dict.fromkeys(ends, LATEST_TIMESTAMP), READ_COMMITTED)
        unstable = [each for each, end in ends.items() if stable[each] < end]
        return _find_first_transactions(cluster, unstable) if unstable else {}
    except ApiNotSupported:
        return {}
    except KafkaError as error:
        if error.code.retriable:  # a leader is unavailable: the rest of the status is still useful
            return {}
        raise


def _find_first_transactions(
    cluster: ClusterClient, partitions: list[TopicPartition]
) -> dict[TopicPartition, BlockingTransaction]:
    found = list_open_transactions(cluster, partitions)
    transactional_ids = _fetch_transactional_ids(cluster, {each.producer.producer_id for each in found})
    first: dict[TopicPartition, BlockingTransaction] = {}
    for partition, producer in sorted(found, key=lambda each: -each.producer.current_txn_start_offset):
        first[partition] = BlockingTransaction(
            producer.producer_id,
            producer.producer_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
            transactional_ids.get(producer.producer_id),
        )
    return first


def _fetch_transactional_ids(cluster: ClusterClient, producer_ids: set[int]) -> dict[int, str]:
    if not producer_ids:
        return {}
    try:
        listed = list_transactions(cluster, producer_ids=sorted(producer_ids))
    except ApiNotSupported:
        return {}
    return {each.transaction.producer_id: each.transaction.transactional_id for each in listed}
