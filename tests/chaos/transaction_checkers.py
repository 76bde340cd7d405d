"""Checkers of transactions, for topics that hold copies.

The key of a copy is the id of its original record. Its own id identifies the attempt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.evidence import Evidence
from tests.chaos.findings import Checker, Finding
from tests.chaos.history import Place, RecordId


def aborted_reads(evidence: Evidence) -> Iterator[Finding]:
    """A record of an aborted transaction was read as committed (G1a)."""
    reported: set[RecordId] = set()
    for event in evidence.consumed:
        sent, failed = evidence.sent.get(event.id), evidence.failed.get(event.id)
        if sent is not None and sent.transaction is not None and failed is not None and event.id not in reported:
            reported.add(event.id)
            where = f"{event.place}@{event.offset}"
            yield Finding("aborted read", f"{event.reader} read {event.id} at {where}, which was {failed.error}")


def torn_transactions(evidence: Evidence) -> Iterator[Finding]:
    """Only a part of a transaction's records exists at the end."""
    present = evidence.offsets_by_id()
    by_transaction: dict[str, list[RecordId]] = defaultdict(list)
    for sent in evidence.sent.values():
        if sent.transaction is not None:
            by_transaction[sent.transaction].append(sent.id)
    for transaction, records in by_transaction.items():
        there = [record for record in records if record in present]
        if there and len(there) < len(records):
            what = f"of the {len(records)} records of {transaction}, {len(there)} are there: {there[0]} is"
            yield Finding("torn", what)


def miscounted_copies(evidence: Evidence) -> Iterator[Finding]:
    """A record of the source topic was not copied exactly once."""
    for topic, promised in evidence.promised.items():
        if promised.copies_of is None:
            continue
        copied = Counter(_keys(evidence, topic))
        for source, where in _records(evidence, promised.copies_of):
            if copied[str(source)] != 1:
                kind = "copied twice" if copied[str(source)] else "not copied"
                yield Finding(kind, f"{source} of {where} is in {topic} {copied[str(source)]} times")


def _keys(evidence: Evidence, topic: str) -> Iterator[str | None]:
    for record, _ in _records(evidence, topic):
        sent = evidence.sent.get(record)
        yield None if sent is None else sent.key


def _records(evidence: Evidence, topic: str) -> Iterator[tuple[RecordId, Place]]:
    for place, records in evidence.log.items():
        if place.topic == topic:
            for record in set(records.values()):
                yield record, place


TRANSACTIONAL_CHECKERS: tuple[Checker, ...] = (aborted_reads, torn_transactions, miscounted_copies)
