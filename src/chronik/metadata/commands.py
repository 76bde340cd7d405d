"""Every command that may change the image, and its form in the log.

A command carries all that its effect depends on: ids are chosen and times are read before it is proposed, so that
every node that applies it ends in the same state. On disk and between nodes it is MessagePack: `[kind, field, ...]`.

A kind is never reused or given another meaning. A field may be added only at the end and with a default, and is named
in `levels`; a node that does not know the field, or the kind, raises `UnknownCommand` and stops rather than guess.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from chronik.errors import ChronikError
from chronik.metadata.levels import written

NO_LEADER: Final = -1
"""The leader of a partition whose in-sync replicas are all away."""

NO_EPOCH: Final = -1
"""The command is not fenced: it is applied whatever the current epoch is."""

CLUSTER_DEFAULT: Final = -1
"""The broker id under which configs for all brokers are kept."""

COMMAND_BYTES_MAX: Final = 16 * 1024 * 1024
"""Room for 3,000 topics of 30 partitions in one command; small enough to travel between nodes in one frame."""

TOPICS_PER_COMMAND_MAX: Final = 1000
"""A command is applied in one turn of the loop, at some 8 µs per topic: 1,000 keep it under 10 ms."""

PARTITIONS_PER_COMMAND_MAX: Final = 1000
"""Partitions that one command reassigns or elects leaders for: some 5 ms to apply."""

SET_FEATURE_LEVEL_TAG: Final = 4
"""The tag by which it is found without knowing the rest: a node looks which level a log is at before it reads it."""

BrokerId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Id = Annotated[bytes, Meta(min_length=16, max_length=16)]
PartitionIndex = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Epoch = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Level = Annotated[int, Meta(ge=1, le=2**15 - 1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
TimeMs = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class UnknownCommand(ChronikError):
    """A command in the log is of a kind or a shape that this version does not know: the node must stop."""


class BrokerStatus(Enum):
    ONLINE = "online"
    OFFLINE = "offline"
    MAINTENANCE = "maintenance"
    """Keeps its replicas in sync, leads nothing that another could lead, and gets nothing new."""


class Part(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A piece of a command."""


class Base(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What all commands have in common."""


# --- the cluster and its nodes ------------------------------------------------------------------------------------


class CreateCluster(Base, frozen=True, tag=1):
    """Gives the cluster its id: the very first command. It is refused when there is an id already."""

    cluster_id: Annotated[str, Meta(min_length=1, max_length=64)]
    time_ms: TimeMs


class AddNode(Base, frozen=True, tag=2):
    """Adds a Raft member; adding a known one changes its address."""

    node_id: BrokerId
    host: str
    port: Port
    voter: bool = True


class RemoveNode(Base, frozen=True, tag=3):
    node_id: BrokerId


class SetFeatureLevel(Base, frozen=True, tag=SET_FEATURE_LEVEL_TAG):
    """Level 0 removes the feature. `levels` says what the level of the cluster is, and may become."""

    name: str
    level: Annotated[int, Meta(ge=0, le=2**15 - 1)]


class AllocateProducerIds(Base, frozen=True, tag=5):
    """Allocates a block of ids for one broker; the result's `value` is the first of them."""

    broker_id: BrokerId
    broker_epoch: int
    count: Annotated[int, Meta(ge=1, le=1_000_000)]


# --- brokers ------------------------------------------------------------------------------------------------------


class Endpoint(Part, frozen=True):
    """A listener of a broker, and where its clients find it."""

    listener: Annotated[str, Meta(min_length=1)]
    host: str
    port: Port


class RegisterBroker(Base, frozen=True, tag=10):
    """A broker has started. The result's `value` is its broker epoch: the log index of the registration.

    A new incarnation may have lost what it had not synced, so the leader epoch of every partition it led goes up: the
    same epoch and offset never hold different data. It also leaves every ISR that has other members, unless it
    `is_durable`, which means that it had synced whatever it acknowledged. `host` and `port` are those of its main
    listener. Without `listeners` that is the only one, and called PLAINTEXT.
    """

    broker_id: BrokerId
    host: str
    port: Port
    rack: str | None
    incarnation: Id
    directory_id: Id
    is_durable: bool = False
    listeners: tuple[Endpoint, ...] = ()
    levels: tuple[Level, Level] = (1, 1)
    """The lowest and the highest level that it supports: see `levels`."""


class UpdateBrokerStatus(Base, frozen=True, tag=11):
    """Fences a broker or brings it back; ISRs shrink and leaders are elected in the same command."""

    broker_id: BrokerId
    status: BrokerStatus
    broker_epoch: int = NO_EPOCH


class RemoveBroker(Base, frozen=True, tag=12):
    broker_id: BrokerId
    broker_epoch: int = NO_EPOCH


class UpdateBrokerConfig(Base, frozen=True, tag=13):
    """Changes dynamic configs of one broker, or of all (`CLUSTER_DEFAULT`). `replace` drops keys that are not set."""

    broker_id: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False


# --- topics and partitions ----------------------------------------------------------------------------------------


class PartitionAssignment(Part, frozen=True):
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class CreateTopic(Base, frozen=True, tag=20):
    """Creates a topic with its partitions, replicas and leaders, all at once or not at all."""

    topic_id: Id
    name: str
    partitions: tuple[PartitionAssignment, ...]
    configs: dict[str, str]
    time_ms: TimeMs
    internal: bool = False


class CreateTopics(Base, frozen=True, tag=21):
    """Creates topics, each of which succeeds or fails alone: `failures` names those that failed."""

    topics: tuple[CreateTopic, ...]


class DeleteTopic(Base, frozen=True, tag=22):
    """Deletes a topic, and the offsets that groups committed for it."""

    topic_id: Id


class UpdateTopicConfig(Base, frozen=True, tag=23):
    """Changes configs of a topic. `replace` drops every key that is not set."""

    topic_id: Id
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False


class CreatePartitions(Base, frozen=True, tag=24):
    """Adds partitions. It is refused when `partition_count`, the number that the proposer saw, has changed since."""

    topic_id: Id
    partition_count: PartitionIndex
    partitions: tuple[PartitionAssignment, ...]


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


# --- consumer groups and offsets ----------------------------------------------------------------------------------


class GroupMember(Part, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class CreateConsumerGroup(Base, frozen=True, tag=30):
    group_id: str
    protocol_type: str
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


class UpdateConsumerGroup(Base, frozen=True, tag=31):
    """Stores the whole group as its coordinator sees it; creates the group when there is none."""

    group_id: str
    protocol_type: str
    generation: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    protocol_name: str | None
    leader: str | None
    state: str
    members: tuple[GroupMember, ...]
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


class DeleteConsumerGroup(Base, frozen=True, tag=32):
    """Deletes a group without members, and its offsets."""

    group_id: str
    coordinator_epoch: Epoch = NO_EPOCH


class UpdateGroupConfig(Base, frozen=True, tag=37):
    """Changes configs of one group, which need not exist (yet). `replace` drops every key that is not set."""

    group_id: Annotated[str, Meta(min_length=1)]
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False


class OffsetToCommit(Part, frozen=True):
    topic: str
    partition: PartitionIndex
    offset: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    leader_epoch: Epoch = NO_EPOCH
    metadata: str | None = None


class CommitOffset(Base, frozen=True, tag=33):
    """Commits offsets of one group; each succeeds or fails alone. The group is created when there is none."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    commit_time_ms: TimeMs
    expire_time_ms: TimeMs = -1
    coordinator_epoch: Epoch = NO_EPOCH


class CommitOffsetBatch(Base, frozen=True, tag=34):
    """Commits of many groups. In `failures`, `item` is the commit and `part` the offset within it (-1: all of them)."""

    commits: tuple[CommitOffset, ...]


class OffsetKey(Part, frozen=True):
    topic: str
    partition: PartitionIndex


class DeleteOffsets(Base, frozen=True, tag=35):
    """Deletes committed offsets. Keys that do not exist are no failure."""

    group_id: str
    keys: tuple[OffsetKey, ...]
    coordinator_epoch: Epoch = NO_EPOCH


class ExpiredOffset(Part, frozen=True):
    topic: str
    partition: PartitionIndex
    commit_time_ms: TimeMs


class ExpireOffsets(Base, frozen=True, tag=36):
    """Deletes the offsets that still have the commit time that was seen. The result's `value` says how many.

    With `group_time_ms` >= 0 the group is deleted too, when it has neither members nor offsets left and its own time
    is still the one that was seen.
    """

    group_id: str
    offsets: tuple[ExpiredOffset, ...]
    group_time_ms: TimeMs = -1
    coordinator_epoch: Epoch = NO_EPOCH


Command = (
    CreateCluster
    | AddNode
    | RemoveNode
    | SetFeatureLevel
    | AllocateProducerIds
    | RegisterBroker
    | UpdateBrokerStatus
    | RemoveBroker
    | UpdateBrokerConfig
    | CreateTopic
    | CreateTopics
    | DeleteTopic
    | UpdateTopicConfig
    | CreatePartitions
    | AssignPartition
    | SetPartitionLeader
    | UpdateISR
    | UpdatePartitionOffset
    | ReassignPartitions
    | ElectLeaders
    | ReportLostRecords
    | CreateConsumerGroup
    | UpdateConsumerGroup
    | DeleteConsumerGroup
    | UpdateGroupConfig
    | CommitOffset
    | CommitOffsetBatch
    | DeleteOffsets
    | ExpireOffsets
)


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A command with its sender, so that a retried one is applied once.

    `incarnation` is one life (run) of the sending node, `sequence` counts its commands from 1. Every command of that
    life up to `answered` has been answered and will not come again: its result need not be kept.
    """

    node_id: BrokerId
    incarnation: Id
    sequence: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    answered: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    command: Command


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Envelope)


def encode_command(envelope: Envelope) -> bytes:
    command = written(envelope.command)
    if command is envelope.command:
        return _encoder.encode(envelope)
    return _encoder.encode((*msgspec.structs.astuple(envelope)[:-1], command))


def decode_command(data: bytes | memoryview) -> Envelope:
    """Raises UnknownCommand for whatever this version does not fully understand."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnknownCommand(f"this version does not know the command: {error}") from error
