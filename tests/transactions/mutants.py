"""Nodes with one rule of transactions broken each. The stories or the simulation must notice every one of them: a rule
that can be broken unnoticed is either not needed or not tested."""

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
    """`broken` gets the real thing as its first argument."""
    original = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *args, **named: broken(original, *args, **named))


def everywhere(modules: Sequence[Any], name: str, broken: Callable[..., Any]) -> Patch:
    """In all modules that have imported it by its name."""
    patches = [wrapped(module, name, broken) for module in modules]

    def apply(patch: pytest.MonkeyPatch) -> None:
        for each in patches:
            each(patch)

    return apply


def handled(command: type, broken: Callable[..., Result]) -> Patch:
    return lambda patch: patch.setitem(HANDLERS, command, broken)


# The coordinator's decisions


def _keeps_the_epoch(fence: Callable[..., EndTransaction], known: Transaction, **named: Any) -> EndTransaction:
    return replace(fence(known, **named), producer_epoch=known.producer_epoch)


def _gives_the_same_epoch(begin: Callable[..., Outcome], asked: InitAsked, known: Transaction | None) -> Outcome:
    outcome = begin(asked, known)
    if known is None or not isinstance(outcome, Write):
        return outcome
    given = Given(ErrorCode.NONE, known.producer_id, known.producer_epoch)
    return Write(replace(outcome.change, producer_id=given.producer_id, producer_epoch=given.producer_epoch), given)


def _asks_for_no_epoch(refusal: Callable[..., ErrorCode | None], asked: Any, known: Transaction | None) -> Any:
    code = refusal(asked, known)
    return None if code is ErrorCode.PRODUCER_FENCED else code


def _keeps_the_epoch_of_v2(decide: Callable[..., Outcome], asked: EndAsked, known: Transaction) -> Outcome:
    return decide(replace(asked, bump=False), known)


def _as_if_at_rest(decide: Callable[..., Outcome], asked: Asked, known: Transaction | None) -> Outcome:
    if known is not None and known.state.is_prepared:
        return decide(asked, replace(known, state=TransactionState.COMPLETE_COMMIT))
    return decide(asked, known)


def _aborts_nothing(init: Callable[..., Outcome], asked: InitAsked, known: Transaction | None) -> Outcome:
    if known is not None and known.state is TransactionState.ONGOING:
        return init(asked, replace(known, state=TransactionState.COMPLETE_ABORT))
    return init(asked, known)


def _forgets_who_asked(decide: Callable[..., Outcome], asked: EndAsked, known: Transaction) -> Outcome:
    outcome = decide(asked, known)
    if isinstance(outcome, Write) and isinstance(outcome.change, EndTransaction):
        return outcome._replace(change=replace(outcome.change, last_producer_id=-1, last_epoch=-1))
    return outcome


def _begins_anew_for_any_epoch(init: Callable[..., Outcome], asked: InitAsked, known: Transaction | None) -> Outcome:
    return init(replace(asked, producer_id=-1, producer_epoch=-1), known)


# The machine


def _takes_a_failure_for_success(
    failed: Callable[..., list[Instruction]], of: TransactionMachine, event: StoreFailed
) -> list[Instruction]:
    under_way = of._pending_store
    done = failed(of, event)
    if under_way is None or under_way.write.answer is None:
        return done
    return [Reply(each.waiter, under_way.write.answer) if isinstance(each, Reply) else each for each in done]


def _never_times_out(note: Callable[..., None], of: TransactionMachine, *about: Any) -> None:
    of._deadline_ms = None


async def _sends_no_markers(sender: MarkerSender, *_: Any) -> None:
    await asyncio.sleep(0)


async def _sends_markers_once(
    send: Callable[..., Any], sender: MarkerSender, transaction: Transaction, epoch: int, goes_on: Callable[[], bool]
) -> None:
    turns = iter((True, True))
    await send(sender, transaction, epoch, lambda: goes_on() and next(turns, False))


async def _waits_for_markers_it_stopped_sending(
    coordinator: TransactionCoordinator, of: TransactionMachine, transaction: Transaction
) -> None:
    custody = coordinator._custody
    await coordinator._markers.send(transaction, of.epoch, lambda: custody.holds(of))
    if custody.holds(of):
        custody.feed(of, MarkersWritten(custody.now_ms(), transaction.index))


# What is applied


def _checks_nothing(image: Image, command: Any) -> Transaction | None:
    return image.transactions.get(command.transactional_id)


def _commits_every_offset(settle: Callable[..., None], writer: ImageWriter, *about: Any, commit: bool) -> None:
    settle(writer, *about, commit=True)


def _drops_every_offset(settle: Callable[..., None], writer: ImageWriter, *about: Any, commit: bool) -> None:
    settle(writer, *about, commit=False)


def _stages_for_any_transaction(writer: ImageWriter, command: StageOffsets, index: int) -> Result:
    known = writer.image.transactions.get(command.transactional_id)
    command = command if known is None else replace(command, began_index=known.began_index)
    return handlers.stage_offsets(writer, command, index)


def _forgets_earlier_partitions(wanted: Any, known: Any) -> list[Any]:
    return []


# Markers


def _are_always_due(due: Callable[..., Any], appender: MarkerAppender, markers: Markers) -> Any:
    known = appender._store.image.transaction_of(markers.producer_id)
    return due(appender, markers) if known is None else frozenset(markers.partitions)


async def _waits_for_nothing(*_: Any) -> None:
    await asyncio.sleep(0)


def _does_not_wait(append: Callable[..., Any], *about: Any) -> Any:
    outcome = append(*about)
    return ErrorCode.NONE if isinstance(outcome, asyncio.Future) else outcome


def _commits_all(append: Callable[..., int], replica: Replica, *about: Any, **named: Any) -> int:
    changed = [each._replace(committed=True) if isinstance(each, TransactionMarker) else each for each in about]
    return append(replica, *changed, **named)


# Records


class _Pretended:
    """An image that shows a transaction other than it is."""

    def __init__(self, known: Transaction | None) -> None:
        self._known = known

    def transaction_of(self, producer_id: int) -> Transaction | None:
        return self._known


def _whatever_the_partition(refusal: Callable[..., Any], first: First, image: Image) -> Any:
    known = image.transaction_of(first.header.producer_id)
    pretended = None if known is None else replace(known, partitions=(*known.partitions, first.partition))
    return refusal(first, _Pretended(pretended))


def _whatever_the_state(refusal: Callable[..., Any], first: First, image: Image) -> Any:
    known = image.transaction_of(first.header.producer_id)
    pretended = None if known is None else replace(known, state=TransactionState.ONGOING)
    return refusal(first, _Pretended(pretended))


def _whatever_the_epoch(refusal: Callable[..., Any], first: First, image: Image) -> Any:
    known = image.transaction_of(first.header.producer_id)
    pretended = None if known is None else replace(known, producer_epoch=first.header.producer_epoch)
    return refusal(first, _Pretended(pretended))


# The log


def _stable_as_soon_as_marked(first: Callable[..., Any], of: Transactions, high_watermark: int) -> int | None:
    return next(iter(of.open.values()), None)


def _stable_as_soon_as_committed(first: Callable[..., Any], of: Transactions, high_watermark: int) -> int | None:
    of_open, of.open = of.open, {}
    try:
        found: int | None = first(of, high_watermark)
    finally:
        of.open = of_open
    return found


def _knows_only_what_began_there(aborted: Callable[..., Any], log: PartitionLog, records: Any, start: int) -> Any:
    return [each for each in aborted(log, records, start) if each.first_offset >= start]


def _high_watermark(replica: Replica) -> int:
    return replica.high_watermark


MUTANTS: Final = (
    Mutant("fences nobody by a timeout", everywhere((decisions, machine), "fence", _keeps_the_epoch)),
    Mutant("gives a second instance the same epoch", wrapped(decisions, "_assign_producer", _gives_the_same_epoch)),
    Mutant("asks whoever ends or adds for no epoch", wrapped(decisions, "_producer_error", _asks_for_no_epoch)),
    Mutant("has one epoch for many transactions of v2", wrapped(decisions, "_end_ongoing", _keeps_the_epoch_of_v2)),
    Mutant("adds to a transaction whose markers are on their way", wrapped(decisions, "_add", _as_if_at_rest)),
    Mutant("lets an instance in before the markers are written", wrapped(decisions, "_init", _as_if_at_rest)),
    Mutant("leaves open what a fenced instance began", wrapped(decisions, "_init", _aborts_nothing)),
    Mutant("answers a repeated end of v2 as a stranger's", wrapped(decisions, "_end_ongoing", _forgets_who_asked)),
    Mutant("lets an old instance fence a newer one", wrapped(decisions, "_init", _begins_anew_for_any_epoch)),
    Mutant(
        "says done what is not stored", wrapped(TransactionMachine, "_on_store_failed", _takes_a_failure_for_success)
    ),
    Mutant("never times out", wrapped(TransactionMachine, "_note_deadline", _never_times_out)),
    Mutant("sees to nothing that came to hold late", instead(TransactionCoordinator, "_wake_or_load", lambda *_: None)),
    Mutant("takes up nothing by itself", instead(StoredTransactions, "acts_by_itself", lambda *_: False)),
    Mutant("sends no markers", instead(MarkerSender, "send", _sends_no_markers)),
    Mutant("tries only once to send a marker", wrapped(MarkerSender, "send", _sends_markers_once)),
    Mutant(
        "waits for markers that it has stopped sending",
        instead(TransactionCoordinator, "_send_markers", _waits_for_markers_it_stopped_sending),
    ),
    Mutant("knows no producer by its next id", instead(decisions, "_uses_next_producer_id", lambda *_: False)),
    Mutant("uses up its epochs", instead(decisions, "is_exhausted", lambda epoch: False)),
    Mutant("applies what was decided upon something else", instead(handlers, "_check", _checks_nothing)),
    Mutant("publishes offsets of aborted transactions", wrapped(handlers, "_settle_offsets", _commits_every_offset)),
    Mutant("drops offsets of committed transactions", wrapped(handlers, "_settle_offsets", _drops_every_offset)),
    Mutant("settles no offsets", instead(handlers, "_settle_offsets", lambda *_, **__: None)),
    Mutant("stages offsets for any transaction", handled(StageOffsets, _stages_for_any_transaction)),
    Mutant("adds nothing to a transaction", instead(handlers, "_new_among", _forgets_earlier_partitions)),
    Mutant("keeps deleted topics in transactions", instead(Image, "transactions_with", lambda *_: [])),
    Mutant("appends markers of any decision", wrapped(MarkerAppender, "_partitions_due", _are_always_due)),
    Mutant("says a marker written that is not committed", wrapped(MarkerAppender, "_append", _does_not_wait)),
    Mutant("marks everything as committed", wrapped(Replica, "append_marker", _commits_all)),
    Mutant("takes any record", instead(First, "refusal", lambda *_: None)),
    Mutant("takes records for any partition", wrapped(First, "refusal", _whatever_the_partition)),
    Mutant("takes records after the decision", wrapped(First, "refusal", _whatever_the_state)),
    Mutant("takes records of any epoch", wrapped(First, "refusal", _whatever_the_epoch)),
    Mutant("trusts an image that is behind", instead(transactional, "confirm", _waits_for_nothing)),
    Mutant("shows what is open", wrapped(Transactions, "first_unstable", _stable_as_soon_as_committed)),
    Mutant("trusts markers that may be lost", wrapped(Transactions, "first_unstable", _stable_as_soon_as_marked)),
    Mutant("shows everything that is committed", instead(Replica, "last_stable_offset", property(_high_watermark))),
    Mutant("tells of no aborted transactions", instead(PartitionLog, "aborted_in", lambda *_: [])),
    Mutant("forgets what began before", wrapped(PartitionLog, "aborted_in", _knows_only_what_began_there)),
)
