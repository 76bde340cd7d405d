"""What the image is made of: immutable records, one per thing that can change by itself.

A change replaces a record. So whatever holds one (a delta, a snapshot being written, a request under way) keeps it as
it was, without a copy.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

import msgspec

from chronik.listeners import PLAINTEXT
from chronik.metadata.commands.acls import Acl
from chronik.metadata.commands.brokers import BrokerStatus, Endpoint
from chronik.metadata.commands.groups import GroupMember
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.commands.transactions import NO_PRODUCER, TransactionPartition
from chronik.metadata.levels import FIRST, GROWTH, SECURITY, added_fields, since_level
from chronik.protocol.errors import ErrorCode

__all__ = [
    "Acl",
    "Broker",
    "CommittedOffset",
    "Failure",
    "Group",
    "GroupMember",
    "Import",
    "Node",
    "Partition",
    "Result",
    "SaltSecret",
    "ScramCredential",
    "StagedOffset",
    "Topic",
    "Transaction",
    "TransactionPartition",
    "TransactionState",
]


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Stored as an array; a field may be added only at the end and with a default, and is named in `levels`."""


@added_fields(draining=GROWTH)
class Node(Record, frozen=True):
    """A node that belongs to the cluster, and where its peers find it. From level 3 on this is what is meant to be; the
    membership of the metadata log is what is, and follows."""

    id: int
    host: str
    port: int
    voter: bool
    """Whether it is meant to vote."""
    draining: bool = False


class Place(Protocol):
    """Somewhere to connect to."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@added_fields(listeners=FIRST, levels=FIRST, first_registered_ms=GROWTH, registered_ms=GROWTH)
class Broker(Record, frozen=True):
    """`epoch` is the log index at which this incarnation was registered; for the rest see `RegisterBroker`."""

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
    """When this id was first registered; -1 where that was before anybody noted it."""
    registered_ms: int = -1
    """When this incarnation was."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of all its listeners, the main one first."""
        return self.listeners or (Endpoint(PLAINTEXT, self.host, self.port),)

    def place(self, listener: str) -> Place | None:
        """Returns where clients of that listener find it; None when it has none of that name."""
        if not self.listeners:
            return self if listener == PLAINTEXT else None
        return next((each for each in self.listeners if each.listener == listener), None)

    @property
    def online(self) -> bool:
        return self.status is BrokerStatus.ONLINE

    @property
    def fenced(self) -> bool:
        return self.status is BrokerStatus.OFFLINE


class Partition(Record, frozen=True):
    """`partition_epoch` counts every change of replicas, ISR or leader; `leader_epoch` every term of a leader.

    While it is being reassigned, `replicas` are those of the target, the preferred leader first, and after them the
    ones in `removing`; those in `adding` are the part of the target that is new.
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
    def target(self) -> tuple[int, ...]:
        """The replicas it will have when the reassignment is done; without one, those it has."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas it goes back to when the reassignment is cancelled."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)


NO_CONFIGS: Final[dict[str, str]] = {}
"""The configs of all topics that have none: as all that records hold, it is never changed."""


@added_fields(changed_ms=GROWTH, importing=GROWTH)
class Topic(Record, frozen=True):
    id: bytes
    name: str
    partitions: tuple[Partition, ...]
    configs: dict[str, str]
    created_ms: int
    internal: bool = False
    changed_ms: int = -1
    """When its configs or the number of its partitions were last changed; -1 if never, or before anybody noted it."""
    importing: bool = False
    """Whether it is being imported: it is held and led as others are, and no client sees it."""

    def has_partition(self, index: int) -> bool:
        return 0 <= index < len(self.partitions)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


class Import(Record, frozen=True):
    """The import that is under way, or was finished last. `first_producer_id` is added to each id in its batches."""

    id: bytes
    source: str
    topic_count: int
    first_producer_id: int
    began_ms: int
    is_finished: bool = False


class Group(Record, frozen=True):
    """A consumer group as its coordinator last wrote it down."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state: str
    members: tuple[GroupMember, ...]
    time_ms: int


class CommittedOffset(Record, frozen=True):
    """`expire_time_ms` is -1 unless the client asked for an expiry of its own."""

    offset: int
    leader_epoch: int
    metadata: str | None
    commit_time_ms: int
    expire_time_ms: int = -1


class StagedOffset(Record, frozen=True):
    """An offset that is committed, or not, with the transaction that it is part of. `index` is that of its command."""

    offset: int
    leader_epoch: int
    metadata: str | None
    time_ms: int
    index: int


class TransactionState(IntEnum):
    """Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, and markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        return self is not TransactionState.ONGOING and not self.is_prepared

    @property
    def commits(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def label(self) -> str:
        """Kafka's name of it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Transaction(Record, frozen=True):
    """What a transactional id has at the moment: a producer id and epoch, and perhaps a transaction.

    `last_producer_id` and `last_epoch` are what its producer had before and may still believe to have, if the answer
    that gave it new ones was lost. `next_producer_id` takes the place of its id when the markers are written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    index: int
    """The index in the log of its coordinator's last change; while it is prepared, that of the decision."""
    time_ms: int
    """When that was."""
    began_index: int = -1
    """The index at which the transaction that is open, or was last, began."""
    began_ms: int = -1
    last_producer_id: int = NO_PRODUCER
    last_epoch: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    groups: tuple[str, ...] = ()
    partitions: tuple[TransactionPartition, ...] = ()

    def completed(self) -> Transaction:
        """As it is when all markers are written."""
        producer_id, producer_epoch = self.given
        state = TransactionState.COMPLETE_COMMIT if self.state.commits else TransactionState.COMPLETE_ABORT
        return msgspec.structs.replace(
            self,
            state=state,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=NO_PRODUCER,
            partitions=(),
        )

    @property
    def given(self) -> tuple[int, int]:
        """The producer id and epoch with which its producer goes on."""
        if self.next_producer_id != NO_PRODUCER:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


@since_level(SECURITY)
class ScramCredential(Record, frozen=True, tag=20):
    """What is kept of a user's password for one mechanism: see `ScramKeys`. It is an entry of snapshots, too."""

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(name={self.name!r}, mechanism={self.mechanism}, …)"


@since_level(SECURITY)
class SaltSecret(Record, frozen=True, tag=21):
    """What the salts of users that do not exist are made of. It is an entry of snapshots, too."""

    secret: bytes

    def __repr__(self) -> str:
        return "SaltSecret(…)"


class Failure(Record, frozen=True):
    """One item of a command that did not take effect while others did; `part` is a piece of the item, -1 all of it."""

    item: int
    code: ErrorCode
    message: str
    part: int = -1


class Result(Record, frozen=True):
    """The outcome of a command. With a `code` other than NONE it changed nothing."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    value: int = -1
    failures: tuple[Failure, ...] = ()
    index: int = -1
    """The index in the log at which it was applied; for a retried command, the first time."""
