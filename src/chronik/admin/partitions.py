"""Administration of partitions: reassignment, leader election, deletion of records, and sizes on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec

from chronik.admin.fresh_image_retry import refresh_image
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.partitions import (
    PARTITIONS_PER_COMMAND_MAX,
    ElectLeaders,
    PartitionKey,
    Reassignment,
    ReassignPartitions,
)
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

BROKER_ID_MAX: Final = 2**31 - 1

T = TypeVar("T")
PartitionOutcome = KafkaError | None
"""Result of a partition change: the error, or None if the change succeeded."""

logger = logging.getLogger("chronik.api")

UP_TO_HIGH_WATERMARK: Final = -1
"""Offset in a DeleteRecords request that stands for the partition's high watermark."""

LowWatermark = int


class TopicPartitionName(NamedTuple):
    """A partition identified by topic name and index."""

    topic: str
    partition: int


class ReassignmentRequest(msgspec.Struct, frozen=True):
    """The requested replicas of a partition."""

    partition: TopicPartitionName
    replicas: tuple[int, ...] | None
    """Target replicas, or None to cancel the current reassignment."""


async def reassign_partitions(
    store: MetadataStore, wanted: Sequence[ReassignmentRequest], *, allow_replication_factor_change: bool
) -> list[PartitionOutcome]:
    """Start or cancel partition reassignments, and return an error or None for each partition."""
    keys = await _resolve_partition_keys(store, [each.partition for each in wanted])
    outcomes: list[PartitionOutcome] = [
        key if isinstance(key, KafkaError) else _check_replicas(each.replicas)
        for key, each in zip(keys, wanted, strict=True)
    ]
    changes = {
        position: Reassignment(key.topic_id, key.partition, each.replicas)
        for position, (key, each) in enumerate(zip(keys, wanted, strict=True))
        if isinstance(key, PartitionKey) and outcomes[position] is None
    }
    for chunk in _split_into_chunks(changes.items()):
        command = ReassignPartitions(tuple(change for _, change in chunk), allow_replication_factor_change)
        await _propose_partition_command(store, command, [position for position, _ in chunk], outcomes)
    return outcomes


async def elect_leaders(
    store: MetadataStore, wanted: Sequence[TopicPartitionName], *, unclean: bool
) -> list[PartitionOutcome]:
    """Elect the leaders of the partitions, and return an error or None for each partition."""
    keys = await _resolve_partition_keys(store, wanted)
    outcomes: list[PartitionOutcome] = [key if isinstance(key, KafkaError) else None for key in keys]
    known = {position: key for position, key in enumerate(keys) if isinstance(key, PartitionKey)}
    for chunk in _split_into_chunks(known.items()):
        command = ElectLeaders(tuple(key for _, key in chunk), unclean)
        await _propose_partition_command(store, command, [position for position, _ in chunk], outcomes)
    return outcomes


def find_partitions_to_elect(image: Image, *, unclean: bool) -> Iterator[TopicPartitionName]:
    """Yield the partitions not led by their preferred leader or, with `unclean`, those without a leader."""
    for name, topic in image.topics.items():
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER or (not unclean and partition.leader != partition.replicas[0]):
                yield TopicPartitionName(name, index)


async def _resolve_partition_keys(
    store: MetadataStore, wanted: Sequence[TopicPartitionName]
) -> list[PartitionKey | KafkaError]:
    """Resolve topic names to topic ids, and return for each partition its key or an error.

    If a partition is unknown, the lookup is retried with a fresh image, because it may have just been created.
    """
    keys = [_key(store.image, each) for each in wanted]
    if any(isinstance(key, KafkaError) for key in keys):
        await refresh_image(store)
        keys = [_key(store.image, each) for each in wanted]
    return keys


def _key(image: Image, wanted: TopicPartitionName) -> PartitionKey | KafkaError:
    topic = image.topics.get(wanted.topic)
    if topic is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No topic named {wanted.topic}")
    if not topic.has_partition(wanted.partition):
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {wanted.topic} has no partition {wanted.partition}"
        )
    return PartitionKey(topic.id, wanted.partition)


def _check_replicas(replicas: tuple[int, ...] | None) -> PartitionOutcome:
    """Return an error if a partition's requested replicas are too many or contain an invalid broker id.

    An invalid broker id would fail the whole command.
    """
    if replicas is not None and len(replicas) > CLUSTER_MEMBERS_MAX:
        message = f"A partition has at most {CLUSTER_MEMBERS_MAX} replicas, not {len(replicas)}"
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if replicas is None or all(0 <= replica <= BROKER_ID_MAX for replica in replicas):
        return None
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A broker id must not be negative")


async def _propose_partition_command(
    store: MetadataStore, command: Command, positions: list[int], outcomes: list[PartitionOutcome]
) -> None:
    """Propose a metadata command, and store the error of each failed partition in `outcomes`."""
    try:
        result = await store.propose(command)
    except KafkaError as error:
        for position in positions:
            outcomes[position] = error.without_traceback()
        return
    for failure in result.failures:
        code = failure.code
        if code is ErrorCode.UNKNOWN_TOPIC_ID:  # deleted in the meantime; the client used the name
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcomes[positions[failure.item]] = KafkaError(code, failure.message)


def _split_into_chunks(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while chunk := list(islice(left, PARTITIONS_PER_COMMAND_MAX)):
        yield chunk


async def delete_records(
    store: MetadataStore, replicas: ReplicaManager, partition: TopicPartitionName, offset: int, timeout_ms: int
) -> LowWatermark:
    """Delete the records before an offset in a partition that this node leads, and return the low watermark.

    Raises:
        KafkaError: The partition is not led here, its records cannot be deleted, or the offset is out of range.
    """

    def is_alive(broker_id: int) -> bool:
        broker = store.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    try:
        lost = replicas.find_lost_replica(partition.topic, partition.partition)
        if lost is not None and offset == UP_TO_HIGH_WATERMARK:
            return _restart_lost_partition(lost)
        replica = replicas.get_leader(partition.topic, partition.partition)
        if store.image.topics_by_id[replica.topic_id].internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not replica.produce_rules.can_delete_records:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if offset == UP_TO_HIGH_WATERMARK:
            offset = replica.high_watermark
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        start = await replica.delete_records_before(offset)
        async with asyncio.timeout(timeout_ms / 1000):  # the timeout applies to the followers only
            return await replica.wait_for_low_watermark(start, is_alive)
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None


def _restart_lost_partition(lost: Replica) -> LowWatermark:
    """Restart the log of a partition whose disk has lost its records, and return the new log start offset.

    A request to delete all records of the partition implies that the loss is accepted.
    """
    damage = lost.damage_description
    start = lost.restart_after_data_loss()
    logger.warning(
        "%r: log restarted by a DeleteRecords request after data loss: start_offset=%d damage=%s",
        lost,
        start,
        damage,
    )
    return start


class PartitionSize(NamedTuple):
    """A replica's size on disk, and its replication lag in offsets."""

    size_bytes: int
    offset_lag: int
    """Number of offsets by which the replica is behind the high watermark."""


def read_partition_size(store: MetadataStore, replicas: ReplicaManager, topic: str, index: int) -> PartitionSize | None:
    """Return the size on disk and the lag of a partition's replica, or None if this node does not host it."""
    replica = replicas.find(topic, index)
    if replica is None:
        return None
    replica.open()
    partition = store.image.topics_by_id[replica.topic_id].partitions[index]
    return PartitionSize(replica.log.size, replica.lag(partition.high_watermark))


def check_replica_move(store: MetadataStore, replicas: ReplicaManager, topic: str, index: int) -> ErrorCode:
    """Return the error code of a request that moves a replica to another log directory of this node.

    A node has only one data directory; the code is NONE if the replica is already there.
    """
    known = store.image.topics.get(topic)
    if known is None or not known.has_partition(index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if replicas.find(topic, index) is not None else ErrorCode.REPLICA_NOT_AVAILABLE
