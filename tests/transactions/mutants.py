"""Mutants: nodes that violate one transaction rule each. The tests or the simulation must detect every mutant.

A rule that can be violated undetected is either unnecessary or untested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from chronik.api import produce
from chronik.api.produce import TransactionStart
from chronik.broker.replica import Replica
from chronik.coordination.machine import Instruction, StateMachineReply, StateStoreFailed
from chronik.log.partition_log import PartitionLog
from chronik.log.partition_transactions import PartitionTransactions
from chronik.metadata.apply import HANDLERS
from chronik.metadata.commands.transactions import EndTransaction, StageOffsets
from chronik.metadata.handlers import transactions as handlers
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult, Transaction, TransactionState
from chronik.metadata.writer import ImageWriter
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode
from chronik.transactions import decisions, machine
from chronik.transactions.coordinator import TransactionCoordinator, TransactionMachineKind
from chronik.transactions.decisions import (
    EndTransactionRequested,
    InitProducerRequested,
    MarkersWritten,
    RequestDecision,
    StoreDecision,
    TransactionRequested,
    TransactionResult,
)
from chronik.transactions.machine import TransactionMachine
from chronik.transactions.markers import MarkerAppender, MarkerSender
from chronik.transactions.peer_messages import WriteMarkersRequest
from tests.replication.mutants import Mutant, Patch, replace_attribute


def wrap_function(owner: Any, name: str, broken: Callable[..., Any]) -> Patch:
    """Patch `owner.name` with `broken`, which receives the original as its first argument."""
    original = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *args, **named: broken(original, *args, **named))


def wrap_in_modules(modules: Sequence[Any], name: str, broken: Callable[..., Any]) -> Patch:
    """Patch a function in all modules that import it by name."""
    patches = [wrap_function(module, name, broken) for module in modules]

    def apply(patch: pytest.MonkeyPatch) -> None:
        for each in patches:
            each(patch)

    return apply


def replace_handler(command: type, broken: Callable[..., ApplyResult]) -> Patch:
    return lambda patch: patch.setitem(HANDLERS, command, broken)


# Decisions of the coordinator


def _keep_epoch(fence: Callable[..., EndTransaction], known: Transaction, **named: Any) -> EndTransaction:
    return replace(fence(known, **named), producer_epoch=known.producer_epoch)


def _assign_same_epoch(
    begin: Callable[..., RequestDecision], asked: InitProducerRequested, known: Transaction | None
) -> RequestDecision:
    outcome = begin(asked, known)
    if known is None or not isinstance(outcome, StoreDecision):
        return outcome
    given = TransactionResult(ErrorCode.NONE, known.producer_id, known.producer_epoch)
    return StoreDecision(
        replace(outcome.change, producer_id=given.producer_id, producer_epoch=given.producer_epoch), given
    )


def _ignore_epoch(refusal: Callable[..., ErrorCode | None], asked: Any, known: Transaction | None) -> Any:
    code = refusal(asked, known)
    return None if code is ErrorCode.PRODUCER_FENCED else code


def _keep_v2_epoch(
    decide: Callable[..., RequestDecision], asked: EndTransactionRequested, known: Transaction
) -> RequestDecision:
    return decide(replace(asked, bump_epoch=False), known)


def _ignore_pending_markers(
    decide: Callable[..., RequestDecision], asked: TransactionRequested, known: Transaction | None
) -> RequestDecision:
    if known is not None and known.state.is_prepared:
        return decide(asked, replace(known, state=TransactionState.COMPLETE_COMMIT))
    return decide(asked, known)


def _skip_abort(
    init: Callable[..., RequestDecision], asked: InitProducerRequested, known: Transaction | None
) -> RequestDecision:
    if known is not None and known.state is TransactionState.ONGOING:
        return init(asked, replace(known, state=TransactionState.COMPLETE_ABORT))
    return init(asked, known)


def _forget_last_producer(
    decide: Callable[..., RequestDecision], asked: EndTransactionRequested, known: Transaction
) -> RequestDecision:
    outcome = decide(asked, known)
    if isinstance(outcome, StoreDecision) and isinstance(outcome.change, EndTransaction):
        return outcome._replace(change=replace(outcome.change, last_producer_id=-1, last_epoch=-1))
    return outcome


def _accept_any_epoch(
    init: Callable[..., RequestDecision], asked: InitProducerRequested, known: Transaction | None
) -> RequestDecision:
    return init(replace(asked, producer_id=-1, producer_epoch=-1), known)


# The state machine


def _report_failure_as_success(
    failed: Callable[..., list[Instruction]], of: TransactionMachine, event: StateStoreFailed
) -> list[Instruction]:
    under_way = of._pending_store
    done = failed(of, event)
    if under_way is None or under_way.write.result is None:
        return done
    return [
        StateMachineReply(each.waiter, under_way.write.result) if isinstance(each, StateMachineReply) else each
        for each in done
    ]


def _disable_timeout(note: Callable[..., None], of: TransactionMachine, *about: Any) -> None:
    of._deadline_ms = None


async def _send_no_markers(sender: MarkerSender, *_: Any) -> None:
    await asyncio.sleep(0)


async def _send_markers_once(
    send: Callable[..., Any], sender: MarkerSender, transaction: Transaction, epoch: int, goes_on: Callable[[], bool]
) -> None:
    turns = iter((True, True))
    await send(sender, transaction, epoch, lambda: goes_on() and next(turns, False))


async def _wait_for_unsent_markers(
    coordinator: TransactionCoordinator, of: TransactionMachine, transaction: Transaction
) -> None:
    host = coordinator._host
    await coordinator._markers.send(transaction, of.epoch, lambda: host.is_term_running(of))
    if host.is_term_running(of):
        host.handle_event(of, MarkersWritten(host.now_ms(), transaction.index))


# Applying commands


def _skip_check(image: Image, command: Any) -> Transaction | None:
    return image.transactions.get(command.transactional_id)


def _commit_all_offsets(settle: Callable[..., None], writer: ImageWriter, *about: Any, commit: bool) -> None:
    settle(writer, *about, commit=True)


def _drop_all_offsets(settle: Callable[..., None], writer: ImageWriter, *about: Any, commit: bool) -> None:
    settle(writer, *about, commit=False)


def _stage_for_any_transaction(writer: ImageWriter, command: StageOffsets, index: int) -> ApplyResult:
    known = writer.image.transactions.get(command.transactional_id)
    command = command if known is None else replace(command, began_index=known.began_index)
    return handlers.stage_offsets(writer, command, index)


def _forget_earlier_partitions(wanted: Any, known: Any) -> list[Any]:
    return []


# Markers


def _make_all_due(due: Callable[..., Any], appender: MarkerAppender, markers: WriteMarkersRequest) -> Any:
    known = appender._store.image.find_transaction_by_producer_id(markers.producer_id)
    return due(appender, markers) if known is None else frozenset(markers.partitions)


async def _skip_confirmation(*_: Any) -> None:
    await asyncio.sleep(0)


def _skip_replication_wait(append: Callable[..., Any], *about: Any) -> Any:
    outcome = append(*about)
    return ErrorCode.NONE if isinstance(outcome, asyncio.Future) else outcome


def _commit_all_markers(append: Callable[..., int], replica: Replica, *about: Any, **named: Any) -> int:
    changed = [each._replace(is_commit=True) if isinstance(each, TransactionMarker) else each for each in about]
    return append(replica, *changed, **named)


# Records


class _ModifiedImage:
    """An image that shows a modified transaction."""

    def __init__(self, known: Transaction | None) -> None:
        self._known = known

    def transaction_of(self, producer_id: int) -> Transaction | None:
        return self._known


def _accept_any_partition(refusal: Callable[..., Any], first: TransactionStart, image: Image) -> Any:
    known = image.find_transaction_by_producer_id(first.header.producer_id)
    modified = None if known is None else replace(known, partitions=(*known.partitions, first.partition))
    return refusal(first, _ModifiedImage(modified))


def _accept_any_state(refusal: Callable[..., Any], first: TransactionStart, image: Image) -> Any:
    known = image.find_transaction_by_producer_id(first.header.producer_id)
    modified = None if known is None else replace(known, state=TransactionState.ONGOING)
    return refusal(first, _ModifiedImage(modified))


def _accept_records_of_any_epoch(refusal: Callable[..., Any], first: TransactionStart, image: Image) -> Any:
    known = image.find_transaction_by_producer_id(first.header.producer_id)
    modified = None if known is None else replace(known, producer_epoch=first.header.producer_epoch)
    return refusal(first, _ModifiedImage(modified))


# The log


def _stable_when_marked(first: Callable[..., Any], of: PartitionTransactions, high_watermark: int) -> int | None:
    return next(iter(of.open.values()), None)


def _stable_when_committed(first: Callable[..., Any], of: PartitionTransactions, high_watermark: int) -> int | None:
    of_open, of.open = of.open, {}
    try:
        found: int | None = first(of, high_watermark)
    finally:
        of.open = of_open
    return found


def _omit_earlier_aborted_transactions(aborted: Callable[..., Any], log: PartitionLog, records: Any, start: int) -> Any:
    return [each for each in aborted(log, records, start) if each.first_offset >= start]


def _high_watermark(replica: Replica) -> int:
    return replica.high_watermark


MUTANTS: Final = (
    Mutant(
        "does not fence producers after a timeout",
        wrap_in_modules((decisions, machine), "build_fencing_abort", _keep_epoch),
    ),
    Mutant("gives a second instance the same epoch", wrap_function(decisions, "_assign_producer", _assign_same_epoch)),
    Mutant("does not check the producer epoch", wrap_function(decisions, "_find_producer_error", _ignore_epoch)),
    Mutant(
        "does not bump the epoch of v2 transactions", wrap_function(decisions, "_end_open_transaction", _keep_v2_epoch)
    ),
    Mutant("adds partitions while markers are pending", wrap_function(decisions, "_add", _ignore_pending_markers)),
    Mutant(
        "initializes a producer while markers are pending",
        wrap_function(decisions, "_decide_init_producer", _ignore_pending_markers),
    ),
    Mutant(
        "does not abort the transaction of a fenced instance",
        wrap_function(decisions, "_decide_init_producer", _skip_abort),
    ),
    Mutant("rejects a repeated v2 EndTxn", wrap_function(decisions, "_end_open_transaction", _forget_last_producer)),
    Mutant(
        "lets an old instance fence a newer one", wrap_function(decisions, "_decide_init_producer", _accept_any_epoch)
    ),
    Mutant(
        "reports failed writes as stored",
        wrap_function(TransactionMachine, "_on_store_failed", _report_failure_as_success),
    ),
    Mutant("never times out", wrap_function(TransactionMachine, "_update_timeout_deadline", _disable_timeout)),
    Mutant(
        "ignores commands that are applied late",
        replace_attribute(TransactionCoordinator, "_wake_or_load_machine", lambda *_: None),
    ),
    Mutant(
        "does not load undecided transactions after failover",
        replace_attribute(TransactionMachineKind, "may_have_timers", lambda *_: False),
    ),
    Mutant("sends no markers", replace_attribute(MarkerSender, "send", _send_no_markers)),
    Mutant("sends markers only once", wrap_function(MarkerSender, "send", _send_markers_once)),
    Mutant(
        "waits for markers that it no longer sends",
        replace_attribute(TransactionCoordinator, "_send_markers", _wait_for_unsent_markers),
    ),
    Mutant(
        "does not recognize the next producer id",
        replace_attribute(decisions, "_uses_next_producer_id", lambda *_: False),
    ),
    Mutant("does not detect exhausted epochs", replace_attribute(decisions, "is_epoch_exhausted", lambda epoch: False)),
    Mutant("applies commands based on an outdated state", replace_attribute(handlers, "_check", _skip_check)),
    Mutant(
        "publishes offsets of aborted transactions", wrap_function(handlers, "_settle_offsets", _commit_all_offsets)
    ),
    Mutant("drops offsets of committed transactions", wrap_function(handlers, "_settle_offsets", _drop_all_offsets)),
    Mutant("never settles staged offsets", replace_attribute(handlers, "_settle_offsets", lambda *_, **__: None)),
    Mutant("stages offsets for any transaction", replace_handler(StageOffsets, _stage_for_any_transaction)),
    Mutant(
        "replaces the partitions of a transaction",
        replace_attribute(handlers, "_new_among", _forget_earlier_partitions),
    ),
    Mutant("keeps deleted topics in transactions", replace_attribute(Image, "transactions_with_topic", lambda *_: [])),
    Mutant("appends markers of any decision", wrap_function(MarkerAppender, "_list_partitions_due", _make_all_due)),
    Mutant("acknowledges uncommitted markers", wrap_function(MarkerAppender, "_append", _skip_replication_wait)),
    Mutant("marks everything as committed", wrap_function(Replica, "append_marker", _commit_all_markers)),
    Mutant("accepts any record", replace_attribute(TransactionStart, "rejection_code", lambda *_: None)),
    Mutant(
        "accepts records for any partition", wrap_function(TransactionStart, "rejection_code", _accept_any_partition)
    ),
    Mutant("accepts records after the decision", wrap_function(TransactionStart, "rejection_code", _accept_any_state)),
    Mutant(
        "accepts records of any epoch", wrap_function(TransactionStart, "rejection_code", _accept_records_of_any_epoch)
    ),
    Mutant(
        "does not confirm an outdated image",
        replace_attribute(produce, "confirm_transaction_state", _skip_confirmation),
    ),
    Mutant(
        "shows records of open transactions",
        wrap_function(PartitionTransactions, "first_unstable_offset", _stable_when_committed),
    ),
    Mutant(
        "advances the last stable offset on uncommitted markers",
        wrap_function(PartitionTransactions, "first_unstable_offset", _stable_when_marked),
    ),
    Mutant(
        "uses the high watermark as last stable offset",
        replace_attribute(Replica, "last_stable_offset", property(_high_watermark)),
    ),
    Mutant(
        "reports no aborted transactions", replace_attribute(PartitionLog, "find_aborted_transactions", lambda *_: [])
    ),
    Mutant(
        "omits aborted transactions that started earlier",
        wrap_function(PartitionLog, "find_aborted_transactions", _omit_earlier_aborted_transactions),
    ),
)
