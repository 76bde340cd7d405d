"""What holds landing up: only committed records land, so that none does from an open transaction's first record on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chronik.client.cluster import Cluster
from chronik.client.errors import ApiNotSupported
from chronik.client.offsets import LATEST, READ_COMMITTED, list_offsets
from chronik.client.records import TopicPartition
from chronik.client.transactions import list_transactions, open_transactions
from chronik.protocol.errors import KafkaError


@dataclass(frozen=True, slots=True)
class Holder:
    """The open transaction of a partition that began first, and its producer."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    """The offset of its first record in the partition, which is the partition's last stable offset."""
    last_ms: int
    """The time of its last record; -1 when nobody knows."""
    transactional_id: str | None = None
    """None when no coordinator knows the producer."""


Held = Mapping[TopicPartition, Holder]


def ask_holders(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Holder]:
    """Returns those of partitions that are not stable up to these ends, which usually are none.

    Brokers from before Kafka 2.8 do not name producers, and those from before 3.0 no transactional ids.
    Raises ClientError or KafkaError.
    """
    try:
        stable = list_offsets(cluster, dict.fromkeys(ends, LATEST), READ_COMMITTED)
        unstable = [each for each, end in ends.items() if stable[each] < end]
        return _first_holders(cluster, unstable) if unstable else {}
    except ApiNotSupported:
        return {}
    except KafkaError as error:
        if error.code.retriable:  # a leader has just gone away: what else there is to tell is worth telling
            return {}
        raise


def _first_holders(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, Holder]:
    found = open_transactions(cluster, partitions)
    names = _names(cluster, {each.producer.producer_id for each in found})
    first: dict[TopicPartition, Holder] = {}
    for partition, producer in sorted(found, key=lambda each: -each.producer.current_txn_start_offset):
        first[partition] = Holder(
            producer.producer_id,
            producer.producer_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
            names.get(producer.producer_id),
        )
    return first


def _names(cluster: Cluster, producer_ids: set[int]) -> dict[int, str]:
    if not producer_ids:
        return {}
    try:
        listed = list_transactions(cluster, producer_ids=sorted(producer_ids))
    except ApiNotSupported:
        return {}
    return {each.transaction.producer_id: each.transaction.transactional_id for each in listed}
