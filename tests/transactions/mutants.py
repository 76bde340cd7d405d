"""Mutants: nodes that violate one transaction rule each. The tests or the simulation must detect every mutant.

A rule that can be violated undetected is either unnecessary or untested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from chronik.api.producing import transactional
from chronik.api.producing.transactional import First
from chronik.broker.replica import Replica
from chronik.coordination.machine import Instruction, Reply, StoreFailed
from chronik.log.partition import PartitionLog
from chronik.log.transactions import Transactions
from chronik.metadata.apply import HANDLERS
from chronik.metadata.commands.transactions import EndTransaction, StageOffsets
from chronik.metadata.handlers import transactions as handlers
from chronik.metadata.image import Image
from chronik.metadata.records import Result, Transaction, TransactionState
from chronik.metadata.writer import ImageWriter
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode
from chronik.transactions import decisions, machine
from chronik.transactions.coordinator import StoredTransactions, TransactionCoordinator
from chronik.transactions.decisions import Outcome, Write
from chronik.transactions.events import Asked, EndAsked, Given, InitAsked, MarkersWritten
from chronik.transactions.machine import TransactionMachine
from chronik.transactions.marker_appending import MarkerAppender
from chronik.transactions.marker_sending import MarkerSender
from chronik.transactions.messages import Markers
from tests.replication.mutants import Mutant, Patch, instead


def wrapped(owner: Any, name: str, broken: Callable[..., Any]) -> Patch:
    """Patch `owner.name` with `broken`, which receives the original as its first argument."""
    original = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *args, **named: broken(original, *args, **named))


def everywhere(modules: Sequence[Any], name: str, broken: Callable[..., Any]) -> Patch:
    """Patch a function in all modules that import it by name."""
    patches = [wrapped(module, name, broken) for module in modules]

    def apply(patch: pytest.MonkeyPatch) -> None:
        for each in patches:
            each(patch)

    return apply


def handled(command: type, broken: Callable[..., Result]) -> Patch:
    return lambda patch: patch.setitem(HANDLERS, command, broken)


# Decisions of the coordinator


def _keep_epoch(fence: Callable[..., EndTransaction], known: Transaction, **named: Any) -> EndTransaction:
    return replace(fence(known, **named), producer_epoch=known.producer_epoch)


def _assign_same_epoch(begin: Callable[..., Outcome], asked: InitAsked, known: Transaction | None) -> Outcome:
    outcome = begin(asked, known)
    if known is None or not isinstance(outcome, Write):
        return outcome
    given = Given(ErrorCode.NONE, known.producer_id, known.producer_epoch)
    return Write(replace(outcome.change, producer_id=given.producer_id, producer_epoch=given.producer_epoch), given)


def _ignore_epoch(refusal: Callable[..., ErrorCode | None], asked: Any, known: Transaction | None) -> Any:
    code = refusal(asked, known)
    return None if code is ErrorCode.PRODUCER_FENCED else code


def _keep_v2_epoch(decide: Callable[..., Outcome], asked: EndAsked, known: Transaction) -> Outcome:
    return decide(replace(asked, bump=False), known)


def _ignore_pending_markers(decide: Callable[..., Outcome], asked: Asked, known: Transaction | None) -> Outcome:
    if known is not None and known.state.is_prepared:
        return decide(asked, replace(known, state=TransactionState.COMPLETE_COMMIT))
    return decide(asked, known)


def _skip_abort(init: Callable[..., Outcome], asked: InitAsked, known: Transaction | None) -> Outcome:
    if known is not None and known.state is TransactionState.ONGOING:
        return init(asked, replace(known, state=TransactionState.COMPLETE_ABORT))
    return init(asked, known)


def _forget_last_producer(decide: Callable[..., Outcome], asked: EndAsked, known: Transaction) -> Outcome:
    outcome = decide(asked, known)
    if isinstance(outcome, Write) and isinstance(outcome.change, EndTransaction):
        return outcome._replace(change=replace(outcome.change, last_producer_id=-1, last_epoch=-1))
    return outcome


def _accept_any_epoch(init: Callable[..., Outcome], asked: InitAsked, known: Transaction | None) -> Outcome:
    return init(replace(asked, producer_id=-1, producer_epoch=-1), known)


# The state machine


def _report_failure_as_success(
    failed: Callable[..., list[Instruction]], of: TransactionMachine, event: StoreFailed
) -> list[Instruction]:
    under_way = of._pending_store
    done = failed(of, event)
    if under_way is None or under_way.write.answer is None:
        return done
    return [Reply(each.waiter, under_way.write.answer) if isinstance(each, Reply) else each for each in done]


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
    custody = coordinator._custody
    await coordinator._markers.send(transaction, of.epoch, lambda: custody.holds(of))
    if custody.holds(of):
        custody.feed(of, MarkersWritten(custody.now_ms(), transaction.index))


# Applying commands


def _skip_check(image: Image, command: Any) -> Transaction | None:
    return image.transactions.get(command.transactional_id)


def _commit_all_offsets(settle: Callable[..., None], writer: ImageWriter, *about: Any, commit: bool) -> None:
    settle(writer, *about, commit=True)


def _drop_all_offsets(settle: Callable[..., None], writer: ImageWriter, *about: Any, commit: bool) -> None:
    settle(writer, *about, commit=False)


def _stage_for_any_transaction(writer: ImageWriter, command: StageOffsets, index: int) -> Result:
    known = writer.image.transactions.get(command.transactional_id)
    command = command if known is None else replace(command, began_index=known.began_index)
    return handlers.stage_offsets(writer, command, index)


def _forget_earlier_partitions(wanted: Any, known: Any) -> list[Any]:
    return []


# Markers


def _make_all_due(due: Callable[..., Any], appender: MarkerAppender, markers: Markers) -> Any:
    known = appender._store.image.transaction_of(markers.producer_id)
    return due(appender, markers) if known is None else frozenset(markers.partitions)


async def _skip_confirmation(*_: Any) -> None:
    await asyncio.sleep(0)


def _skip_replication_wait(append: Callable[..., Any], *about: Any) -> Any:
    outcome = append(*about)
    return ErrorCode.NONE if isinstance(outcome, asyncio.Future) else outcome


def _commit_all_markers(append: Callable[..., int], replica: Replica, *about: Any, **named: Any) -> int:
    changed = [each._replace(committed=True) if isinstance(each, TransactionMarker) else each for each in about]
    return append(replica, *changed, **named)


# Records


class _ModifiedImage:
    """An image that shows a modified transaction."""

    def __init__(self, known: Transaction | None) -> None:
        self._known = known

    def transaction_of(self, producer_id: int) -> Transaction | None:
        return self._known


def _accept_any_partition(refusal: Callable[..., Any], first: First, image: Image) -> Any:
    known = image.transaction_of(first.header.producer_id)
    modified = None if known is None else replace(known, partitions=(*known.partitions, first.partition))
    return refusal(first, _ModifiedImage(modified))


def _accept_any_state(refusal: Callable[..., Any], first: First, image: Image) -> Any:
    known = image.transaction_of(first.header.producer_id)
    modified = None if known is None else replace(known, state=TransactionState.ONGOING)
    return refusal(first, _ModifiedImage(modified))


def _accept_records_of_any_epoch(refusal: Callable[..., Any], first: First, image: Image) -> Any:
    known = image.transaction_of(first.header.producer_id)
    modified = None if known is None else replace(known, producer_epoch=first.header.producer_epoch)
    return refusal(first, _ModifiedImage(modified))


# The log


def _stable_when_marked(first: Callable[..., Any], of: Transactions, high_watermark: int) -> int | None:
    return next(iter(of.open.values()), None)


def _stable_when_committed(first: Callable[..., Any], of: Transactions, high_watermark: int) -> int | None:
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
    Mutant("does not fence producers after a timeout", everywhere((decisions, machine), "fence", _keep_epoch)),
    Mutant("gives a second instance the same epoch", wrapped(decisions, "_assign_producer", _assign_same_epoch)),
    Mutant("does not check the producer epoch", wrapped(decisions, "_producer_error", _ignore_epoch)),
    Mutant("does not bump the epoch of v2 transactions", wrapped(decisions, "_end_ongoing", _keep_v2_epoch)),
    Mutant("adds partitions while markers are pending", wrapped(decisions, "_add", _ignore_pending_markers)),
    Mutant("initializes a producer while markers are pending", wrapped(decisions, "_init", _ignore_pending_markers)),
    Mutant("does not abort the transaction of a fenced instance", wrapped(decisions, "_init", _skip_abort)),
    Mutant("rejects a repeated v2 EndTxn", wrapped(decisions, "_end_ongoing", _forget_last_producer)),
    Mutant("lets an old instance fence a newer one", wrapped(decisions, "_init", _accept_any_epoch)),
    Mutant(
        "reports failed writes as stored", wrapped(TransactionMachine, "_on_store_failed", _report_failure_as_success)
    ),
    Mutant("never times out", wrapped(TransactionMachine, "_note_deadline", _disable_timeout)),
    Mutant("ignores commands that are applied late", instead(TransactionCoordinator, "_wake_or_load", lambda *_: None)),
    Mutant(
        "does not load undecided transactions after failover",
        instead(StoredTransactions, "acts_by_itself", lambda *_: False),
    ),
    Mutant("sends no markers", instead(MarkerSender, "send", _send_no_markers)),
    Mutant("sends markers only once", wrapped(MarkerSender, "send", _send_markers_once)),
    Mutant(
        "waits for markers that it no longer sends",
        instead(TransactionCoordinator, "_send_markers", _wait_for_unsent_markers),
    ),
    Mutant("does not recognize the next producer id", instead(decisions, "_uses_next_producer_id", lambda *_: False)),
    Mutant("does not detect exhausted epochs", instead(decisions, "is_exhausted", lambda epoch: False)),
    Mutant("applies commands based on an outdated state", instead(handlers, "_check", _skip_check)),
    Mutant("publishes offsets of aborted transactions", wrapped(handlers, "_settle_offsets", _commit_all_offsets)),
    Mutant("drops offsets of committed transactions", wrapped(handlers, "_settle_offsets", _drop_all_offsets)),
    Mutant("never settles staged offsets", instead(handlers, "_settle_offsets", lambda *_, **__: None)),
    Mutant("stages offsets for any transaction", handled(StageOffsets, _stage_for_any_transaction)),
    Mutant("replaces the partitions of a transaction", instead(handlers, "_new_among", _forget_earlier_partitions)),
    Mutant("keeps deleted topics in transactions", instead(Image, "transactions_with", lambda *_: [])),
    Mutant("appends markers of any decision", wrapped(MarkerAppender, "_partitions_due", _make_all_due)),
    Mutant("acknowledges uncommitted markers", wrapped(MarkerAppender, "_append", _skip_replication_wait)),
    Mutant("marks everything as committed", wrapped(Replica, "append_marker", _commit_all_markers)),
    Mutant("accepts any record", instead(First, "refusal", lambda *_: None)),
    Mutant("accepts records for any partition", wrapped(First, "refusal", _accept_any_partition)),
    Mutant("accepts records after the decision", wrapped(First, "refusal", _accept_any_state)),
    Mutant("accepts records of any epoch", wrapped(First, "refusal", _accept_records_of_any_epoch)),
    Mutant("does not confirm an outdated image", instead(transactional, "confirm", _skip_confirmation)),
    Mutant("shows records of open transactions", wrapped(Transactions, "first_unstable", _stable_when_committed)),
    Mutant(
        "advances the last stable offset on uncommitted markers",
        wrapped(Transactions, "first_unstable", _stable_when_marked),
    ),
    Mutant(
        "uses the high watermark as last stable offset",
        instead(Replica, "last_stable_offset", property(_high_watermark)),
    ),
    Mutant("reports no aborted transactions", instead(PartitionLog, "aborted_in", lambda *_: [])),
    Mutant(
        "omits aborted transactions that started earlier",
        wrapped(PartitionLog, "aborted_in", _omit_earlier_aborted_transactions),
    ),
)
