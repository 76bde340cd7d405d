"""Partitions from request to command: moved to other replicas, given other leaders; many of them by one command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec

from chronik.admin.second_look import look_again
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
Outcome = KafkaError | None
"""What a partition's change was refused with, if it was."""


class NamedPartition(NamedTuple):
    topic: str
    partition: int


class WantedReplicas(msgspec.Struct, frozen=True):
    partition: NamedPartition
    replicas: tuple[int, ...] | None
    """None gives up the move that is under way."""


async def reassign(
    store: MetadataStore, wanted: Sequence[WantedReplicas], *, allow_replication_factor_change: bool
) -> list[Outcome]:
    """Returns what became of each, in order; each stands or falls alone."""
    keys = await _keys(store, [each.partition for each in wanted])
    outcomes: list[Outcome] = [
        key if isinstance(key, KafkaError) else _replicas_fault(each.replicas)
        for key, each in zip(keys, wanted, strict=True)
    ]
    changes = {
        place: Reassignment(key.topic_id, key.partition, each.replicas)
        for place, (key, each) in enumerate(zip(keys, wanted, strict=True))
        if isinstance(key, PartitionKey) and outcomes[place] is None
    }
    for some in _pieces(changes.items()):
        command = ReassignPartitions(tuple(change for _, change in some), allow_replication_factor_change)
        await _propose(store, command, [place for place, _ in some], outcomes)
    return outcomes


async def elect(store: MetadataStore, wanted: Sequence[NamedPartition], *, unclean: bool) -> list[Outcome]:
    """Returns what became of each, in order; each stands or falls alone."""
    keys = await _keys(store, wanted)
    outcomes: list[Outcome] = [key if isinstance(key, KafkaError) else None for key in keys]
    known = {place: key for place, key in enumerate(keys) if isinstance(key, PartitionKey)}
    for some in _pieces(known.items()):
        command = ElectLeaders(tuple(key for _, key in some), unclean)
        await _propose(store, command, [place for place, _ in some], outcomes)
    return outcomes


def in_need_of_election(image: Image, *, unclean: bool) -> Iterator[NamedPartition]:
    """Yields partitions without their preferred leader; if `unclean`, those without any."""
    for name, topic in image.topics.items():
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER or (not unclean and partition.leader != partition.replicas[0]):
                yield NamedPartition(name, index)


async def _keys(store: MetadataStore, wanted: Sequence[NamedPartition]) -> list[PartitionKey | KafkaError]:
    """Returns ids, or why not. What is unknown here may just have been created on another node: a second look tells."""
    keys = [_key(store.image, each) for each in wanted]
    if any(isinstance(key, KafkaError) for key in keys):
        await look_again(store)
        keys = [_key(store.image, each) for each in wanted]
    return keys


def _key(image: Image, wanted: NamedPartition) -> PartitionKey | KafkaError:
    topic = image.topics.get(wanted.topic)
    if topic is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No topic named {wanted.topic}")
    if not topic.has_partition(wanted.partition):
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {wanted.topic} has no partition {wanted.partition}"
        )
    return PartitionKey(topic.id, wanted.partition)


def _replicas_fault(replicas: tuple[int, ...] | None) -> Outcome:
    """Return an error for replicas that would make the whole command fail, or are more than any partition can have."""
    if replicas is not None and len(replicas) > CLUSTER_MEMBERS_MAX:
        told = f"A partition has at most {CLUSTER_MEMBERS_MAX} replicas, not {len(replicas)}"
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, told)
    if replicas is None or all(0 <= replica <= BROKER_ID_MAX for replica in replicas):
        return None
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "There is no broker with a negative id")


async def _propose(store: MetadataStore, command: Command, places: list[int], outcomes: list[Outcome]) -> None:
    """Writes down what failed, at the places in `outcomes` that the command's items have."""
    try:
        result = await store.propose(command)
    except KafkaError as error:
        for place in places:
            outcomes[place] = error.without_frames()
        return
    for failure in result.failures:
        code = failure.code
        if code is ErrorCode.UNKNOWN_TOPIC_ID:  # deleted meanwhile; the client has named it by its name
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcomes[places[failure.item]] = KafkaError(code, failure.message)


def _pieces(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, PARTITIONS_PER_COMMAND_MAX)):
        yield some
