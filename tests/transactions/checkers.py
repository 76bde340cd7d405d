"""Invariants of every transaction history, with Jepsen's names. Pure functions: evidence in, findings out.

A transaction's markers reach its partitions one after the other, so a reader of several partitions may see the
transaction in one and not yet in the next. A partition has one last stable offset for all transactions: records of a
committed transaction behind the start of an open one become visible later (as in Kafka). The guarantees are therefore:
- Per partition, a transaction becomes visible as a whole: once one of its records is visible, no more of them are
  appended, and a reader does not skip any of them.
- At the end, when all decisions have arrived, it is visible in all its partitions and group offsets, or nowhere.

Readers of uncommitted records are only guaranteed that records appear once, in order, and at constant offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from tests.chaos.findings import Finding, LowerBounds
from tests.chaos.history import Event, Place, RecordId

from .evidence import ClientTransaction, TransactionEvidence
from .history import NO_OFFSET, OffsetSeen, OffsetStaged, Outcome, Read, SentInTransaction, StableSeen, TransactionId


class PossibleViolation(NamedTuple):
    """A violation, before it is known whether late requests of v1 clients explain it."""

    finding: Finding
    transactions: frozenset[TransactionId] = frozenset()
    """The transactions that are affected."""
    correct_count: int = 0
    """How many of the affected transactions behaved correctly: of two that copied the same record, one."""

    def is_explained_by(self, touched: set[TransactionId]) -> bool:
        """Return whether all affected transactions were touched by a late request."""
        return not self.transactions.isdisjoint(touched) and len(self.transactions - touched) <= self.correct_count


class TransactionVerdict(NamedTuple):
    """The result of all checkers."""

    violations: list[Finding]
    v1_violations: list[Finding]
    """Violations that clients that reuse an epoch must expect from late requests (KIP-890)."""


Checker: TypeAlias = Callable[[TransactionEvidence], Iterator[PossibleViolation]]


def judge(events: Iterable[Event]) -> TransactionVerdict:
    evidence = TransactionEvidence(events)
    excused = {each for straggled in evidence.stragglers for each in (straggled.transaction, straggled.touched)}
    verdict = TransactionVerdict([], [])
    for found in (found for checker in CHECKERS for found in checker(evidence)):
        (verdict.v1_violations if found.is_explained_by(excused) else verdict.violations).append(found.finding)
    return verdict


def _found(kind: str, what: str, *about: TransactionId | None, at: float | None = None) -> PossibleViolation:
    return PossibleViolation(Finding(kind, what, at), frozenset(each for each in about if each is not None))


# Records shown to readers of committed records


def aborted_reads(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """G1a: a record of an aborted transaction, or of one that turns out not to be committed, was read."""
    for read, offset, record in _visible_records(evidence):
        transaction = evidence.transaction_of(record)
        if transaction is None:
            continue
        is_told = evidence.transactions[transaction].outcome is Outcome.ABORTED
        if is_told or (evidence.outcome_of(transaction) is Outcome.ABORTED and evidence.must_exist(read.place, offset)):
            what = f"{_reader_name(read)} read {record} of {transaction} at {read.place}@{offset}, which was aborted"
            yield _found("aborted read (G1a)", what, transaction, at=read.at)


def intermediate_reads(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """G1b: only a part of a transaction's records in a partition was read."""
    in_place = _by_place_and_transaction(evidence)
    for read in evidence.committed_reads():
        shown = {offset for offset, _ in read.records}
        for transaction in {evidence.transaction_of(record) for _, record in read.records} - {None}:
            assert transaction is not None
            offsets = in_place.get((read.place, transaction), [])
            skipped = [each for each in offsets if read.start <= each < read.end and each not in shown]
            unwritten = [each for each in offsets if each >= read.high_watermark != NO_OFFSET]
            for missing, why in ((skipped, "skipped"), (unwritten, f"not below {read.high_watermark}")):
                kept = [each for each in missing if evidence.must_exist(read.place, each)]
                if kept:
                    what = f"{_reader_name(read)} read some of {transaction} in {read.place}, but {kept[0]} is {why}"
                    yield _found("intermediate read (G1b)", what, transaction, at=read.at)


def torn_transactions(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """G1b at the end: some records of a transaction are visible and others are not, in any partition."""
    for client_transaction in evidence.transactions.values():
        kept = [sent for sent in client_transaction.sent if evidence.must_exist(sent.place)]
        there = [sent for sent in kept if sent.id in evidence.visible_records]
        if there and len(there) < len(kept):
            missing = next(sent for sent in kept if sent.id not in evidence.visible_records)
            what = f"{there[0].id} is in {there[0].place}, but {missing.id} is not in {missing.place}"
            yield _found(
                "intermediate read (G1b)", f"{client_transaction.id} at the end: {what}", client_transaction.id
            )


def unstable_reads(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """A record at or above the last stable offset was read."""
    for read, offset, record in _visible_records(evidence):
        if offset >= read.stable != NO_OFFSET:
            what = f"{_reader_name(read)} read {record} at {read.place}@{offset}, above the LSO {read.stable}"
            yield _found("unstable read", what, evidence.transaction_of(record), at=read.at)


def skipped_records(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """A reader skipped a committed record."""
    for read in evidence.committed_reads():
        shown = {offset for offset, _ in read.records}
        seen = {evidence.transaction_of(record) for _, record in read.records}
        log = evidence.log.get(read.place, {})
        for offset in range(read.start, read.end):
            record = log.get(offset)
            transaction = None if record is None or offset in shown else evidence.transaction_of(record)
            if transaction is None or transaction in seen:
                continue
            if evidence.outcome_of(transaction) is Outcome.COMMITTED and evidence.must_exist(read.place, offset):
                what = f"{_reader_name(read)} did not see {record} of {transaction} at {read.place}@{offset}"
                yield _found("committed and never seen", what, transaction, at=read.at)


def unreadable_transactions(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """A committed record is in the log but cannot be read at the end."""
    standing = evidence.offsets_by_record()
    for client_transaction in _committed(evidence):
        kept = [sent for sent in client_transaction.sent if sent.id in standing and evidence.must_exist(sent.place)]
        if kept and not any(sent.id in evidence.visible_records for sent in kept):
            what = f"{client_transaction.id} was committed, but {kept[0].id} cannot be read in {kept[0].place}"
            yield _found("committed and never seen", what, client_transaction.id)


# Contents of the log


def lost_writes(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    standing = evidence.offsets_by_record()
    for client_transaction in _committed(evidence):
        for sent in client_transaction.sent:
            if sent.id not in standing and evidence.must_exist(sent.place):
                yield _found(
                    "lost write",
                    f"{sent.id} of {client_transaction.id}, which was committed, is not in {sent.place}",
                    client_transaction.id,
                )


def duplicates(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    for record, where in evidence.offsets_by_record().items():
        if len(where) > 1:
            where_text = " and ".join(f"{place}@{offset}" for place, offset in where)
            yield _found("duplicate", f"{record} is at {where_text}", evidence.transaction_of(record))


def reordered_records(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """The records of a producer in a partition are not in the order in which they were sent."""
    for place, records in evidence.log.items():
        last: dict[str, RecordId] = {}
        for offset, record in records.items():
            before = last.setdefault(record.producer, record)
            if record.number < before.number:
                transactions = (evidence.transaction_of(record), evidence.transaction_of(before))
                yield _found("reordered", f"{record} is at {place}@{offset}, behind {before}", *transactions)
            else:
                last[record.producer] = record


def phantoms(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    client_transaction: set[tuple[Place, RecordId]] = set()
    for read in evidence.reads:
        for offset, record in read.records:
            sent = evidence.sent.get(record)
            if (sent is None or sent.place != read.place) and (read.place, record) not in client_transaction:
                client_transaction.add((read.place, record))
                what = f"{_reader_name(read)} read {record} at {read.place}@{offset}, which no client sent there"
                yield _found("phantom", what, evidence.transaction_of(record))


def contradictions(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """Two reads of one offset returned different records."""
    first: dict[tuple[Place, int], tuple[Read, RecordId]] = {}
    for read in evidence.reads:
        for offset, record in read.records:
            before, other = first.setdefault((read.place, offset), (read, record))
            if other != record:
                what = (
                    f"{_reader_name(before)} read {other} at {read.place}@{offset}, {_reader_name(read)} read {record}"
                )
                about = (evidence.transaction_of(record), evidence.transaction_of(other))
                yield _found("inconsistent", what, *about, at=read.at)


# Last stable offsets


def decreasing_stable_offsets(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """A last stable offset decreased, within a leader's term or after a new leader has caught up."""
    within = LowerBounds(((seen.place, seen.epoch), seen.at, seen.offset) for seen in evidence.stable_seen)
    highest: dict[Place, dict[int, int]] = defaultdict(dict)
    for seen in evidence.stable_seen:
        of_place = highest[seen.place]
        of_place[seen.epoch] = max(seen.offset, of_place.get(seen.epoch, 0))
    for seen in evidence.stable_seen:
        floor = within.bound_before((seen.place, seen.epoch), seen.asked_at)
        if seen.is_sure:
            earlier = (offset for epoch, offset in highest[seen.place].items() if epoch < seen.epoch)
            floor = max(floor, *earlier, 0)
        if seen.offset < floor:
            what = f"{_reader_name(seen)} got the LSO {seen.offset} of {seen.place}, and before that {floor}"
            yield _found("last stable offset went back", what, at=seen.at)


def hanging_transactions(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """A transaction is still open at the end."""
    for read in evidence.reads:
        if read.is_final and NO_OFFSET not in (read.stable, read.high_watermark) and read.stable < read.high_watermark:
            what = f"{read.place}: last stable offset {read.stable} below the high watermark {read.high_watermark}"
            owner = evidence.transaction_of(evidence.log.get(read.place, {}).get(read.stable, RecordId("", -1)))
            yield _found("hanging transaction", what, owner)


# Committed offsets of groups


def aborted_offsets(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """A group's offset of an aborted transaction was returned."""
    staged_by = _by_position(evidence)
    for seen in evidence.offsets_seen:
        staged = [each for each in staged_by[seen.group, seen.place, seen.offset] if each.at <= seen.at]
        if seen.offset == NO_OFFSET or any(
            evidence.outcome_of(each.transaction) is not Outcome.ABORTED for each in staged
        ):
            continue
        about = [each.transaction for each in staged]
        by = f"staged by {', '.join(map(str, about))}, aborted" if about else "which no transaction had staged"
        yield _found("aborted offset", f"{_describe_position(seen)}, {by}", *about, at=seen.at)


def lost_offsets(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """An offset that was committed with a transaction was not returned afterwards."""
    acknowledged = LowerBounds(
        (
            ((staged.group, staged.place), client_transaction.ended_at, staged.offset)
            for client_transaction in _committed(evidence)
            for staged in client_transaction.staged
        ),
        lowest=NO_OFFSET,
    )
    staged_by = _by_position(evidence)
    last: dict[tuple[str, Place], int] = {}
    for staged in evidence.staged():
        if evidence.outcome_of(staged.transaction) is Outcome.COMMITTED:
            key = (staged.group, staged.place)
            last[key] = max(staged.offset, last.get(key, NO_OFFSET))
    for seen in evidence.offsets_seen:
        key = (seen.group, seen.place)
        floor = last.get(key, NO_OFFSET) if seen.is_final else acknowledged.bound_before(key, seen.asked_at)
        if seen.offset < floor:
            about = [each.transaction for each in staged_by[seen.group, seen.place, floor]]
            yield _found("lost offset", f"{_describe_position(seen)}, but {floor} was committed", *about, at=seen.at)


def miscounted_copies(evidence: TransactionEvidence) -> Iterator[PossibleViolation]:
    """An input record below the group's committed offset was not copied exactly once, or one above it was copied."""
    senders: dict[tuple[str, Place], dict[int, list[SentInTransaction]]] = defaultdict(lambda: defaultdict(list))
    lossy: set[tuple[str, Place]] = set()
    for sent in evidence.sent.values():
        if sent.source is not None:
            key = (sent.source.group, sent.source.place)
            senders[key][sent.source.offset].append(sent)
            if not evidence.must_exist(sent.place):
                lossy.add(key)  # some copies were deleted
    staged_by = _by_position(evidence)
    for key in sorted(evidence.positions.keys() - lossy):
        position = evidence.positions[key]
        taken_back = _find_rewinding_transactions(evidence, {each.transaction for each in staged_by[(*key, position)]})
        for offset in sorted({*senders[key], *range(position)}):
            of_it = senders[key][offset]
            there = [sent.transaction for sent in of_it if sent.id in evidence.visible_records]
            if len(there) != (offset < position):
                times = f"{len(there)} times by {key[0]}, whose committed offset is {position}"
                about = there or [
                    sent.transaction for sent in of_it if evidence.outcome_of(sent.transaction) is not Outcome.ABORTED
                ]
                found = _found("not copied once", f"{key[1]}@{offset} was copied {times}", *about, *taken_back)
                yield found._replace(correct_count=1 if there and (offset < position or taken_back) else 0)


def _find_rewinding_transactions(evidence: TransactionEvidence, staged: set[TransactionId]) -> list[TransactionId]:
    """Return transactions that committed an earlier position again, late.

    Records copied after that position then look as if they had not been committed.
    """
    late = [each for each in evidence.stragglers if each.kind == "TxnOffsetCommit"]
    return [each.touched for each in late if each.transaction in staged]


CHECKERS: tuple[Checker, ...] = (
    aborted_reads,
    intermediate_reads,
    torn_transactions,
    unstable_reads,
    skipped_records,
    unreadable_transactions,
    lost_writes,
    duplicates,
    reordered_records,
    phantoms,
    contradictions,
    decreasing_stable_offsets,
    hanging_transactions,
    aborted_offsets,
    lost_offsets,
    miscounted_copies,
)


def _committed(evidence: TransactionEvidence) -> Iterator[ClientTransaction]:
    return (
        client_transaction
        for client_transaction in evidence.transactions.values()
        if client_transaction.outcome is Outcome.COMMITTED
    )


def _visible_records(evidence: TransactionEvidence) -> Iterator[tuple[Read, int, RecordId]]:
    return ((read, offset, record) for read in evidence.committed_reads() for offset, record in read.records)


def _by_place_and_transaction(evidence: TransactionEvidence) -> dict[tuple[Place, TransactionId], list[int]]:
    found: dict[tuple[Place, TransactionId], list[int]] = defaultdict(list)
    for place, records in evidence.log.items():
        for offset, record in records.items():
            transaction = evidence.transaction_of(record)
            if transaction is not None:
                found[place, transaction].append(offset)
    return found


def _by_position(evidence: TransactionEvidence) -> dict[tuple[str, Place, int], list[OffsetStaged]]:
    found: dict[tuple[str, Place, int], list[OffsetStaged]] = defaultdict(list)
    for staged in evidence.staged():
        found[staged.group, staged.place, staged.offset].append(staged)
    return found


def _reader_name(seen: Read | StableSeen) -> str:
    return f"{seen.reader} at node {seen.node}"


def _describe_position(seen: OffsetSeen) -> str:
    return f"group {seen.group} had the committed offset {seen.offset} in {seen.place}"
