"""Handlers of transaction commands and of the offsets committed in transactions.

The coordinator decides. The handlers only check that its decision is still valid: that it leads the transactional id's
partition of `__transaction_state`, and that the record is the one that it saw.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from msgspec.structs import replace

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.transactions import (
    NO_PRODUCER_ID,
    NO_RECORD_INDEX,
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    ExpireTransaction,
    HoldCommits,
    InitTransaction,
    ReleaseCommits,
    StageOffsets,
)
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.groups import check_group_coordinator_epoch, create_empty_group, partition_exists
from chronik.metadata.image import Image
from chronik.metadata.names import TRANSACTIONS_TOPIC
from chronik.metadata.records import (
    ApplyResult,
    CommandRejectedError,
    CommittedOffset,
    ItemFailure,
    StagedOffset,
    Transaction,
    TransactionPartition,
    TransactionState,
)
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

_PREPARED: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}

T = TypeVar("T")
FromCoordinator = InitTransaction | AddToTransaction | EndTransaction | CompleteTransaction | ExpireTransaction


def init_transaction(writer: ImageWriter, command: InitTransaction, index: int) -> ApplyResult:
    """Apply an InitTransaction command: assign a producer id and producer epoch to a transactional id."""
    known = _check(writer.image, command)
    if known is not None:
        known = _complete_if_markers_written(known, command)
        _check_transaction_state(known.state.is_idle, known)
    _check_producer_id_is_free(writer.image, command.producer_id, command.transactional_id)
    writer.put_transaction(
        Transaction(
            transactional_id=command.transactional_id,
            producer_id=command.producer_id,
            producer_epoch=command.producer_epoch,
            timeout_ms=command.timeout_ms,
            state=TransactionState.EMPTY,
            index=index,
            time_ms=command.time_ms,
            last_producer_id=command.last_producer_id,
            last_epoch=command.last_epoch,
        )
    )
    return ApplyResult()


def add_to_transaction(writer: ImageWriter, command: AddToTransaction, index: int) -> ApplyResult:
    """Apply an AddToTransaction command: add partitions and groups to a transaction, which starts if none is open."""
    known = _complete_if_markers_written(_require_transaction_record(writer.image, command), command)
    _check_transaction_state(not known.state.is_prepared, known)
    existing_partitions = [
        partition for partition in command.partitions if _transaction_partition_exists(writer.image, partition)
    ]
    new = replace(known, state=TransactionState.ONGOING, index=index, time_ms=command.time_ms)
    if known.state is not TransactionState.ONGOING:
        new = replace(new, began_index=index, began_ms=command.time_ms)
    new = replace(
        new,
        partitions=(*known.partitions, *_new_among(existing_partitions, known.partitions)),
        groups=(*known.groups, *_new_among(command.groups, known.groups)),
    )
    writer.put_transaction(new)
    return ApplyResult()


def end_transaction(writer: ImageWriter, command: EndTransaction, index: int) -> ApplyResult:
    """Apply an EndTransaction command: commit or abort a transaction."""
    known = _complete_if_markers_written(_require_transaction_record(writer.image, command), command)
    _check_transaction_state(not known.state.is_prepared, known)
    if command.commit and writer.image.commit_hold_index:
        raise CommandRejectedError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "commits are held back, while a backup notes its ends"
        )
    if command.next_producer_id != NO_PRODUCER_ID:
        _check_producer_id_is_free(writer.image, command.next_producer_id, command.transactional_id)
    for group_id in known.groups:
        _settle_offsets(writer, group_id, known.producer_id, commit=command.commit)
    prepared = replace(
        known,
        state=_PREPARED[command.commit],
        producer_epoch=command.producer_epoch,
        last_producer_id=command.last_producer_id,
        last_epoch=command.last_epoch,
        next_producer_id=command.next_producer_id,
        index=index,
        time_ms=command.time_ms,
        groups=(),
    )
    writer.put_transaction(prepared if prepared.partitions else prepared.with_markers_written())
    return ApplyResult()


def complete_transaction(writer: ImageWriter, command: CompleteTransaction, index: int) -> ApplyResult:
    """Apply a CompleteTransaction command: complete a transaction after all its markers have been written."""
    known = _require_transaction_record(writer.image, command)
    _check_transaction_state(known.state.is_prepared, known)
    writer.put_transaction(replace(known.with_markers_written(), index=index, time_ms=command.time_ms))
    return ApplyResult()


def expire_transaction(writer: ImageWriter, command: ExpireTransaction, index: int) -> ApplyResult:
    """Apply an ExpireTransaction command: delete a transactional id that has expired."""
    known = _require_transaction_record(writer.image, command)
    _check_transaction_state(known.state.is_idle, known)
    writer.remove_transaction(command.transactional_id)
    return ApplyResult()


def stage_offsets(writer: ImageWriter, command: StageOffsets, index: int) -> ApplyResult:
    """Apply a StageOffsets command: keep a group's offsets until their transaction is committed or aborted."""
    image = writer.image
    check_group_coordinator_epoch(image, command.group_id, command.coordinator_epoch)
    known = image.transactions.get(command.transactional_id)
    is_open = known is not None and known.state is TransactionState.ONGOING
    if known is None or not is_open or known.began_index != command.began_index or command.group_id not in known.groups:
        raise CommandRejectedError(
            ErrorCode.INVALID_TXN_STATE, f"the transaction of {command.transactional_id} is over"
        )
    failures = []
    for item, offset in enumerate(command.offsets):
        if not partition_exists(image, offset):
            message = f"there is no partition {offset.topic}-{offset.partition}"
            failures.append(ItemFailure(item, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
            continue
        staged = StagedOffset(offset.offset, offset.leader_epoch, offset.metadata, command.time_ms, index)
        writer.put_staged_offset(command.group_id, known.producer_id, offset.topic, offset.partition, staged)
    return ApplyResult(failures=tuple(failures))


def _check(image: Image, command: FromCoordinator) -> Transaction | None:
    """Reject a transaction command of a replaced coordinator; return the transactional id's current record, or None.

    Raises:
        CommandRejectedError: The coordinator was replaced, or the record has changed since it was read.
    """
    key = command.transactional_id
    if command.coordinator_epoch != NO_EPOCH:
        partition = image.find_coordinator_partition(TRANSACTIONS_TOPIC, key)
        if partition is None or partition.leader_epoch != command.coordinator_epoch:
            raise CommandRejectedError(
                ErrorCode.NOT_COORDINATOR, f"transactional id {key} has another coordinator by now"
            )
    known = image.transactions.get(key)
    if command.seen != (NO_RECORD_INDEX if known is None else known.index):
        raise CommandRejectedError(ErrorCode.CONCURRENT_TRANSACTIONS, f"transactional id {key} has changed meanwhile")
    return known


def _require_transaction_record(image: Image, command: FromCoordinator) -> Transaction:
    """Return the current record of the command's transactional id, or reject the command if there is none."""
    known = _check(image, command)
    if known is None:
        raise CommandRejectedError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no {command.transactional_id}")
    return known


def _complete_if_markers_written(
    known: Transaction, command: InitTransaction | AddToTransaction | EndTransaction
) -> Transaction:
    """Return the transaction as completed if the command reports that all its transaction markers have been written."""
    return known.with_markers_written() if command.is_marked and known.state.is_prepared else known


def _check_transaction_state(is_allowed: bool, known: Transaction) -> None:
    if not is_allowed:
        raise CommandRejectedError(
            ErrorCode.INVALID_TXN_STATE, f"{known.transactional_id} is in state {known.state.kafka_name}"
        )


def _check_producer_id_is_free(image: Image, producer_id: int, transactional_id: str) -> None:
    owner = image.find_transaction_by_producer_id(producer_id)
    if owner is not None and owner.transactional_id != transactional_id:
        raise CommandRejectedError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"producer id {producer_id} is another's")


def _transaction_partition_exists(image: Image, partition: TransactionPartition) -> bool:
    topic = image.topics_by_id.get(partition.topic_id)
    return topic is not None and topic.has_partition(partition.index)


def _settle_offsets(writer: ImageWriter, group_id: str, producer_id: int, *, commit: bool) -> None:
    """Commit or discard the offsets that a consumer group has staged in a transaction."""
    image = writer.image
    staged = dict(image.get_staged_offsets(group_id).get(producer_id, {}))
    for (topic, partition), each in staged.items():
        writer.remove_staged_offset(group_id, producer_id, topic, partition)
        if commit:
            committed = CommittedOffset(each.offset, each.leader_epoch, each.metadata, each.time_ms)
            writer.put_offset(group_id, topic, partition, committed)
            writer.remove_staged_offsets_before(group_id, topic, partition, each.index)
    if commit and staged and group_id not in image.groups:
        writer.put_group(create_empty_group(group_id, "", max(each.time_ms for each in staged.values())))


def _new_among(wanted: Iterable[T], known: Iterable[T]) -> list[T]:
    seen = set(known)
    return [each for each in dict.fromkeys(wanted) if each not in seen]


def hold_commits(writer: ImageWriter, command: HoldCommits, index: int) -> ApplyResult:
    """Apply a HoldCommits command: block transaction commits while a backup reads the log end offsets."""
    writer.set_commit_hold_index(index)
    return ApplyResult(value=index)


def release_commits(writer: ImageWriter, command: ReleaseCommits, index: int) -> ApplyResult:
    """Apply a ReleaseCommits command: allow transaction commits again, unless another hold has replaced this one."""
    is_in_force = writer.image.commit_hold_index == command.hold
    if is_in_force:
        writer.set_commit_hold_index(0)
    return ApplyResult(value=int(is_in_force))


HANDLERS: CommandHandlers = {
    InitTransaction: init_transaction,
    AddToTransaction: add_to_transaction,
    EndTransaction: end_transaction,
    CompleteTransaction: complete_transaction,
    ExpireTransaction: expire_transaction,
    StageOffsets: stage_offsets,
    HoldCommits: hold_commits,
    ReleaseCommits: release_commits,
}
