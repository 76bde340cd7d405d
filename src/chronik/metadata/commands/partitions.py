"""Commands of partitions: who has them, who leads them, who is in sync."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, Base, BrokerId, Epoch, Id, Part, PartitionIndex

PARTITIONS_PER_COMMAND_MAX: Final = 1000
"""Partitions that one command reassigns or elects leaders for: some 5 ms to apply."""

Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AssignPartition(Base, frozen=True, tag=25):
    """Replaces the replicas; ISR and leader follow where they lose a member."""

    topic_id: Id
    partition: PartitionIndex
    replicas: tuple[BrokerId, ...]
    partition_epoch: Epoch = NO_EPOCH


class SetPartitionLeader(Base, frozen=True, tag=26):
    """Makes a replica the leader. `unclean` allows one outside the ISR, which then is the whole ISR."""

    topic_id: Id
    partition: PartitionIndex
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    leader_epoch: Epoch = NO_EPOCH
    unclean: bool = False


class IsrMember(Part, frozen=True):
    broker_id: BrokerId
    broker_epoch: int


class IsrChange(Part, frozen=True):
    """Is applied only if leader epoch and partition epoch are still those that the leader saw."""

    topic_id: Id
    partition: PartitionIndex
    leader_epoch: Epoch
    partition_epoch: Epoch
    isr: tuple[IsrMember, ...]


class UpdateISR(Base, frozen=True, tag=27):
    """What a leader wants its ISRs to be; each change succeeds or fails alone."""

    broker_id: BrokerId
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class OffsetCheckpoint(Part, frozen=True):
    topic_id: Id
    partition: PartitionIndex
    leader_epoch: Epoch
    high_watermark: Offset
    log_start_offset: Offset


class UpdatePartitionOffset(Base, frozen=True, tag=28):
    """Writes down high watermarks and log starts, now and then (never per produce); each succeeds or fails alone."""

    checkpoints: tuple[OffsetCheckpoint, ...]


class Reassignment(Part, frozen=True):
    """The replicas that a partition will have; with None the reassignment under way is cancelled."""

    topic_id: Id
    partition: PartitionIndex
    replicas: tuple[BrokerId, ...] | None


class ReassignPartitions(Base, frozen=True, tag=50):
    """Each change succeeds or fails alone. New replicas join; once all of the target are in sync, the others leave."""

    changes: tuple[Reassignment, ...]
    allow_replication_factor_change: bool = True


class PartitionKey(Part, frozen=True):
    topic_id: Id
    partition: PartitionIndex


class ElectLeaders(Base, frozen=True, tag=51):
    """Gives partitions their preferred leaders; with `unclean`, gives those without a leader any replica that is
    online, which may lose records. Each succeeds or fails alone."""

    partitions: tuple[PartitionKey, ...]
    unclean: bool = False


class ReportLostRecords(Base, frozen=True, tag=52):
    """A broker's disk has lost records of these partitions that it had acknowledged: it leaves their ISRs, even as the
    last member, and no longer leads them. Each succeeds or fails alone."""

    broker_id: BrokerId
    broker_epoch: int
    partitions: tuple[PartitionKey, ...]
