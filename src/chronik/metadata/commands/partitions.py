"""Commands that change the replicas, leaders, ISRs and checkpointed offsets of partitions."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import (
    NO_EPOCH,
    BrokerId,
    CommandBase,
    CommandPart,
    Epoch,
    PartitionIndex,
    UuidBytes,
)

PARTITIONS_PER_COMMAND_MAX: Final = 1000
"""The maximum number of partitions in a reassignment or leader election command, which takes about 5 ms to apply."""

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AssignPartition(CommandBase, frozen=True, tag=25):
    """A command that replaces a partition's replicas and updates its ISR and leader accordingly."""

    topic_id: UuidBytes
    partition: PartitionIndex
    replicas: tuple[BrokerId, ...]
    partition_epoch: Epoch = NO_EPOCH


class SetPartitionLeader(CommandBase, frozen=True, tag=26):
    """A command that makes a replica the leader of its partition.

    With `unclean`, a replica outside the ISR may lead and becomes the only ISR member.
    """

    topic_id: UuidBytes
    partition: PartitionIndex
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    leader_epoch: Epoch = NO_EPOCH
    unclean: bool = False


class IsrMember(CommandPart, frozen=True):
    """A member of a proposed ISR, with the broker epoch in which it caught up with the leader."""

    broker_id: BrokerId
    broker_epoch: int


class IsrChange(CommandPart, frozen=True):
    """A proposed ISR, applied only if the leader epoch and the partition epoch are still current."""

    topic_id: UuidBytes
    partition: PartitionIndex
    leader_epoch: Epoch
    partition_epoch: Epoch
    isr: tuple[IsrMember, ...]


class UpdateISR(CommandBase, frozen=True, tag=27):
    """A partition leader's command to change the ISRs of its partitions; each change succeeds or fails separately."""

    broker_id: BrokerId
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class OffsetCheckpoint(CommandPart, frozen=True):
    """A partition's high watermark and log start offset."""

    topic_id: UuidBytes
    partition: PartitionIndex
    leader_epoch: Epoch
    high_watermark: Offset
    log_start_offset: Offset


class UpdatePartitionOffset(CommandBase, frozen=True, tag=28):
    """A command that stores the current high watermarks and log start offsets of partitions as checkpoints.

    Each checkpoint succeeds or fails separately.
    """

    checkpoints: tuple[OffsetCheckpoint, ...]


class Reassignment(CommandPart, frozen=True):
    """A change of a partition's replicas. If `replicas` is None, the partition's ongoing reassignment is cancelled."""

    topic_id: UuidBytes
    partition: PartitionIndex
    replicas: tuple[BrokerId, ...] | None


class ReassignPartitions(CommandBase, frozen=True, tag=50):
    """A command that starts or cancels reassignments; each change succeeds or fails separately.

    New replicas are added first. When all target replicas are in sync, the others are removed.
    """

    changes: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


class PartitionKey(CommandPart, frozen=True):
    """The topic id and index of a partition."""

    topic_id: UuidBytes
    partition: PartitionIndex


class ElectLeaders(CommandBase, frozen=True, tag=51):
    """A command that elects the preferred leaders of partitions; each election succeeds or fails separately.

    With `unclean`, it elects any online replica for partitions without a leader, which may lose records.
    """

    partitions: tuple[PartitionKey, ...]
    unclean: bool = False


class ReportLostRecords(CommandBase, frozen=True, tag=52):
    """A command by which a broker reports the partitions whose acknowledged records its disk has lost.

    The broker leaves their ISRs, even as the last member, and stops leading them. Each partition succeeds or fails
    separately.
    """

    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[PartitionKey, ...]
