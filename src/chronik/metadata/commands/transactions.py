"""Commands that change transactions and the offsets committed in them.

All commands except `StageOffsets` are proposed by the transaction coordinator. `seen` is the index of the record's last
change that the coordinator based its decision on: a delayed command with an outdated index is rejected. `is_marked`
says that all markers of the previous transaction are written, which saves a separate CompleteTransaction.
"""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, CommandBase, CommandPart, Epoch, PartitionIndex, TimeMs, UuidBytes
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, TRANSACTIONS_LEVEL, since_level

NO_PRODUCER_ID: Final = -1
"""The placeholder (-1) for a missing producer id or producer epoch."""

NO_RECORD_INDEX: Final = -1
"""The value of a command's `seen` field if the metadata contains no record of the transactional id yet."""

TransactionalId = Annotated[str, Meta(min_length=1)]
ProducerId = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
ProducerEpoch = Annotated[int, Meta(ge=-1, le=2**15 - 1)]
LogIndex = Annotated[int, Meta(ge=-1, le=2**63 - 1)]


class TransactionPartition(CommandPart, frozen=True):
    """A partition that is part of a transaction."""

    topic_id: UuidBytes
    index: PartitionIndex


@since_level(TRANSACTIONS_LEVEL)
class InitTransaction(CommandBase, frozen=True, tag=40):
    """A command that assigns a producer id and epoch to a transactional id, which fences earlier producers."""

    transactional_id: TransactionalId
    seen: LogIndex
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    time_ms: TimeMs
    last_producer_id: ProducerId = NO_PRODUCER_ID
    last_epoch: ProducerEpoch = NO_PRODUCER_ID
    coordinator_epoch: Epoch = NO_EPOCH
    is_marked: bool = False


@since_level(TRANSACTIONS_LEVEL)
class AddToTransaction(CommandBase, frozen=True, tag=41):
    """A command that adds partitions and groups to a transaction, and starts the transaction if none is open.

    Deleted partitions are ignored.
    """

    transactional_id: TransactionalId
    seen: LogIndex
    partitions: tuple[TransactionPartition, ...]
    groups: tuple[str, ...]
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH
    is_marked: bool = False


@since_level(TRANSACTIONS_LEVEL)
class EndTransaction(CommandBase, frozen=True, tag=42):
    """A command that commits or aborts a transaction. It also publishes or discards the transaction's staged offsets.

    If `next_producer_id` is set, the producer id has no epochs left. It is replaced by that id when all markers are
    written.
    """

    transactional_id: TransactionalId
    seen: LogIndex
    commit: bool
    producer_epoch: ProducerEpoch
    """The producer epoch of the transaction markers and of the producer's later requests."""
    time_ms: TimeMs
    last_producer_id: ProducerId = NO_PRODUCER_ID
    last_epoch: ProducerEpoch = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    coordinator_epoch: Epoch = NO_EPOCH
    is_marked: bool = False


@since_level(TRANSACTIONS_LEVEL)
class CompleteTransaction(CommandBase, frozen=True, tag=43):
    """A command that completes a committed or aborted transaction after all its markers have been written."""

    transactional_id: TransactionalId
    seen: LogIndex
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


@since_level(TRANSACTIONS_LEVEL)
class ExpireTransaction(CommandBase, frozen=True, tag=44):
    """A command that deletes a transactional id that has not been used for the expiration time."""

    transactional_id: TransactionalId
    seen: LogIndex
    coordinator_epoch: Epoch = NO_EPOCH


@since_level(TRANSACTIONS_LEVEL)
class StageOffsets(CommandBase, frozen=True, tag=45):
    """A command that stores a group's offsets until their transaction ends; each offset succeeds or fails separately.

    The group coordinator proposes it and names the index at which it saw the transaction start (`began_index`).
    """

    group_id: str
    transactional_id: TransactionalId
    began_index: LogIndex
    offsets: tuple[OffsetToCommit, ...]
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class HoldCommits(CommandBase, frozen=True, tag=64):
    """A command that blocks transaction commits until ReleaseCommits, while a backup reads the log end offsets.

    The result's `value` identifies the hold. It replaces a hold that is already active.
    """


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class ReleaseCommits(CommandBase, frozen=True, tag=65):
    """A command that allows transaction commits again after a HoldCommits command.

    The result's `value` is 1 if the hold was still active, else 0.
    """

    hold: Annotated[int, Meta(ge=0, le=2**63 - 1)]
