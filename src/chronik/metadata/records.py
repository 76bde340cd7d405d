"""The immutable records of which the metadata image consists, and the results of commands.

A change replaces a record. A delta, a snapshot in progress or a pending request that holds a record therefore keeps its
old state without a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from chronik.errors import ChronikError
from chronik.listeners import PLAINTEXT
from chronik.metadata.commands.brokers import BrokerStatus, Endpoint
from chronik.metadata.commands.groups import GroupMember
from chronik.metadata.commands.security import Acl
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.commands.transactions import NO_PRODUCER_ID, TransactionPartition
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, FIRST_LEVEL, SECURITY_LEVEL, added_fields, since_level
from chronik.protocol.errors import ErrorCode

__all__ = [
    "Acl",
    "ApplyResult",
    "Broker",
    "CommittedOffset",
    "Group",
    "GroupMember",
    "ImportState",
    "ItemFailure",
    "NodeRecord",
    "Partition",
    "SaltSecret",
    "ScramCredential",
    "StagedOffset",
    "Topic",
    "Transaction",
    "TransactionPartition",
    "TransactionState",
]

Entity = tuple[tuple[str, str], ...]
"""A quota entity as sorted (type, name) pairs: (("client-id", "c"), ("user", "alice")). See also DEFAULT_ENTITY."""

QuotaValues = Mapping[str, float]
"""The values of a client quota by quota key, such as `producer_byte_rate`."""

DEFAULT_ENTITY: Final = ""
USER_ENTITY: Final = "user"
CLIENT_ID_ENTITY: Final = "client-id"
IP_ENTITY: Final = "ip"


class ImageRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The base class of records in the metadata image.

    Encoded as an array; a field may only be appended, with a default and a level.
    """


@added_fields(draining=DYNAMIC_MEMBERSHIP_LEVEL)
class NodeRecord(ImageRecord, frozen=True):
    """A node of the cluster with its peer address and its intended voter status.

    From level 3 on, the controller changes the membership of the metadata log to match these records.
    """

    id: int
    host: str
    port: int
    voter: bool
    """Whether the node should be a voter of the metadata log."""
    draining: bool = False


class HostPort(Protocol):
    """The interface of objects that have a host name and a port."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@added_fields(
    listeners=FIRST_LEVEL,
    levels=FIRST_LEVEL,
    first_registered_ms=DYNAMIC_MEMBERSHIP_LEVEL,
    registered_ms=DYNAMIC_MEMBERSHIP_LEVEL,
)
class Broker(ImageRecord, frozen=True):
    """A registered broker incarnation.

    `epoch` is the log index of its registration; see `RegisterBroker` for the other fields.
    """

    id: int
    host: str
    port: int
    rack: str | None
    status: BrokerStatus
    epoch: int
    incarnation: bytes
    directory_id: bytes
    listeners: tuple[Endpoint, ...] = ()
    levels: tuple[int, int] = (1, 1)
    first_registered_ms: int = -1
    """The time of the first registration of this broker id, or -1 if the feature level was below 3 at that time."""
    registered_ms: int = -1
    """The time at which this incarnation was registered."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints of all listeners, the main listener first."""
        return self.listeners or (Endpoint(PLAINTEXT, self.host, self.port),)

    def listener_address(self, listener: str) -> HostPort | None:
        """Return the advertised address of the named listener, or None if the broker has no such listener."""
        if not self.listeners:
            return self if listener == PLAINTEXT else None
        return next((each for each in self.listeners if each.listener == listener), None)

    @property
    def is_online(self) -> bool:
        return self.status is BrokerStatus.ONLINE

    @property
    def is_fenced(self) -> bool:
        return self.status is BrokerStatus.OFFLINE


class Partition(ImageRecord, frozen=True):
    """The replicas, ISR, leader and epochs of a partition.

    `partition_epoch` counts every change of replicas, ISR or leader; `leader_epoch` counts leadership terms. During a
    reassignment, `replicas` are the target replicas, the preferred leader first, followed by the `removing` replicas;
    `adding` are the target replicas that are new.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = 0
    partition_epoch: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Return the replicas after the ongoing reassignment, or the current replicas if there is none."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """Return the replicas before the ongoing reassignment, which a cancellation restores."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)


NO_CONFIGS: Final[dict[str, str]] = {}
"""The shared empty configs of all topics without configs. Must not be modified."""


@added_fields(changed_ms=DYNAMIC_MEMBERSHIP_LEVEL, importing=DYNAMIC_MEMBERSHIP_LEVEL)
class Topic(ImageRecord, frozen=True):
    """A topic with its partitions and configs."""

    id: bytes
    name: str
    partitions: tuple[Partition, ...]
    configs: dict[str, str]
    created_ms: int
    internal: bool = False
    changed_ms: int = -1
    """The time of the last change of configs or partition count, or -1 if unknown."""
    importing: bool = False
    """Whether the topic is part of an unfinished import: it has replicas and leaders, but clients cannot see it."""

    def has_partition(self, index: int) -> bool:
        return 0 <= index < len(self.partitions)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class ImportState(ImageRecord, frozen=True):
    """The state of the current or latest import. `first_producer_id` is the offset added to imported producer ids."""

    id: bytes
    source: str
    topic_count: int
    first_producer_id: int
    began_ms: int
    is_finished: bool = False


class Group(ImageRecord, frozen=True):
    """A consumer group as last stored by its coordinator."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state: str
    members: tuple[GroupMember, ...]
    time_ms: int


class CommittedOffset(ImageRecord, frozen=True):
    """A committed offset of a group. `expire_time_ms` is -1 unless the client requested its own retention time."""

    offset: int
    leader_epoch: int
    metadata: str | None
    commit_time_ms: int
    expire_time_ms: int = -1


class StagedOffset(ImageRecord, frozen=True):
    """An offset staged in an open transaction. `index` is the log index of its StageOffsets command."""

    offset: int
    leader_epoch: int
    metadata: str | None
    time_ms: int
    index: int


class TransactionState(IntEnum):
    """The state of a transaction, with Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_prepared(self) -> bool:
        """Return whether the transaction is committed or aborted, but not all markers have been written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Return whether no transaction is open or being completed."""
        return self is not TransactionState.ONGOING and not self.is_prepared

    @property
    def is_commit(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def kafka_name(self) -> str:
        """Return Kafka's name for the state, such as "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Transaction(ImageRecord, frozen=True):
    """The producer id, epoch and current transaction of a transactional id.

    `last_producer_id` and `last_epoch` are the previous ones; the producer may still use them if the response with new
    ones was lost. `next_producer_id` replaces the producer id when the markers are written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    index: int
    """The log index of the coordinator's last change. In a prepared state, the change is the commit or abort decision.
    """
    time_ms: int
    """The time of the coordinator's last change."""
    began_index: int = -1
    """The log index at which the current or latest transaction started."""
    began_ms: int = -1
    last_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    groups: tuple[str, ...] = ()
    partitions: tuple[TransactionPartition, ...] = ()

    def with_markers_written(self) -> Transaction:
        """Return the transaction in the state that it has once all transaction markers are written."""
        producer_id, producer_epoch = self.next_producer
        state = TransactionState.COMPLETE_COMMIT if self.state.is_commit else TransactionState.COMPLETE_ABORT
        return msgspec.structs.replace(
            self,
            state=state,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
        )

    @property
    def next_producer(self) -> tuple[int, int]:
        """Return the producer id and producer epoch of the producer's next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


@since_level(SECURITY_LEVEL)
class ScramCredential(ImageRecord, frozen=True, tag=20):
    """A user's SCRAM credential for one mechanism (see `ScramKeys`). Also a snapshot entry."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(name={self.name!r}, mechanism={self.mechanism}, …)"


@since_level(SECURITY_LEVEL)
class SaltSecret(ImageRecord, frozen=True, tag=21):
    """The cluster's secret for deriving the salts of unknown users, so that clients cannot detect which users exist."""

    secret: bytes

    def __repr__(self) -> str:
        return "SaltSecret(…)"


def normalize_quota_entity(pairs: Iterable[tuple[str, str]]) -> Entity:
    """Return a quota entity in its canonical form: (type, name) pairs, sorted."""
    return tuple(sorted(pairs))


class ItemFailure(ImageRecord, frozen=True):
    """The failure of one item of a command whose other items may have succeeded.

    `part` is a part of the item, -1 the whole item.
    """

    item: int
    code: ErrorCode
    message: str
    part: int = -1


class ApplyResult(ImageRecord, frozen=True):
    """The result of applying a metadata command. If `code` is not NONE, the command was rejected without effect."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    value: int = -1
    failures: tuple[ItemFailure, ...] = ()
    index: int = -1
    """The log index at which the command was first applied, even if the command is a retry."""


class CommandRejectedError(ChronikError):
    """A handler rejects a metadata command, which then changes nothing and returns this error as its result.

    The result is part of the state hash. Changing the wording of a message makes nodes of different versions diverge.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
