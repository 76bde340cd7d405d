"""Commands of transactions and the offsets that are committed with them.

All but `StageOffsets` come from the transaction's coordinator. They name the record that it decided upon by the index
of its last change (`seen`): a command that was long under way, and comes after others, changes nothing. `is_marked`
says that all markers of the last transaction are written, so that it need not be completed by a command of its own.
"""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, Base, Epoch, Id, Part, PartitionIndex, TimeMs
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.levels import GROWTH, TRANSACTIONS, since_level

NO_PRODUCER: Final = -1
"""Stands for no producer's id, and for no epoch of one."""

NOT_SEEN: Final = -1
"""Stands in place of an index when there is no such transactional id."""

TransactionalId = Annotated[str, Meta(min_length=1)]
ProducerId = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
ProducerEpoch = Annotated[int, Meta(ge=-1, le=2**15 - 1)]
LogIndex = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class TransactionPartition(Part, frozen=True):
    topic_id: Id
    index: PartitionIndex


@since_level(TRANSACTIONS)
class InitTransaction(Base, frozen=True, tag=40):
    """Gives a transactional id its producer id and epoch: what was given before them is fenced."""

    transactional_id: TransactionalId
    seen: LogIndex
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    time_ms: TimeMs
    last_producer_id: ProducerId = NO_PRODUCER
    last_epoch: ProducerEpoch = NO_PRODUCER
    coordinator_epoch: Epoch = NO_EPOCH
    is_marked: bool = False


@since_level(TRANSACTIONS)
class AddToTransaction(Base, frozen=True, tag=41):
    """Adds partitions and groups, and begins the transaction when none is open. Partitions that are gone are left
    out."""

    transactional_id: TransactionalId
    seen: LogIndex
    partitions: tuple[TransactionPartition, ...]
    groups: tuple[str, ...]
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH
    is_marked: bool = False


@since_level(TRANSACTIONS)
class EndTransaction(Base, frozen=True, tag=42):
    """Decides on a transaction: its offsets are published, or dropped, in this very command. With `next_producer_id`
    the epochs of its producer id are used up: it is changed for that one when all markers are written."""

    transactional_id: TransactionalId
    seen: LogIndex
    commit: bool
    producer_epoch: ProducerEpoch
    """The epoch of the markers, and from now on."""
    time_ms: TimeMs
    last_producer_id: ProducerId = NO_PRODUCER
    last_epoch: ProducerEpoch = NO_PRODUCER
    next_producer_id: ProducerId = NO_PRODUCER
    coordinator_epoch: Epoch = NO_EPOCH
    is_marked: bool = False


@since_level(TRANSACTIONS)
class CompleteTransaction(Base, frozen=True, tag=43):
    """All markers are written."""

    transactional_id: TransactionalId
    seen: LogIndex
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


@since_level(TRANSACTIONS)
class ExpireTransaction(Base, frozen=True, tag=44):
    """Forgets a transactional id that nobody has used for long."""

    transactional_id: TransactionalId
    seen: LogIndex
    coordinator_epoch: Epoch = NO_EPOCH


@since_level(TRANSACTIONS)
class StageOffsets(Base, frozen=True, tag=45):
    """Keeps offsets of a group until the transaction is decided; each succeeds or fails alone. It comes from the
    group's coordinator, which saw the transaction begin at `began_index`."""

    group_id: str
    transactional_id: TransactionalId
    began_index: LogIndex
    offsets: tuple[OffsetToCommit, ...]
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


@since_level(GROWTH)
class HoldCommits(Base, frozen=True, tag=64):
    """No transaction is committed any more until ReleaseCommits: a backup notes where logs end. The result's `value`
    names the hold, which takes the place of one that is in force already."""


@since_level(GROWTH)
class ReleaseCommits(Base, frozen=True, tag=65):
    """The result's `value` says whether the hold was still in force: 1, or 0."""

    hold: Annotated[int, Meta(ge=0, le=2**63 - 1)]
