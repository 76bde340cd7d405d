"""Invariants of every history, whatever faults the cluster had. Pure functions: evidence in, findings out.

Each checker detects one kind of violation. Records with an unknown outcome may be in the log or not.

Stale reads: every response of a single node is an interval between request and response, and may reflect any moment in
between. It is compared only with what clients knew before the request was sent.

Topics with copies: the key of a copy is the id of its original record. Its own id identifies the attempt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.chaos.evidence import AcknowledgedOffset, Evidence
from tests.chaos.findings import Checker, Finding, LowerBounds
from tests.chaos.history import NO_EPOCH, UNREADABLE, Answer, AnyEvent, Consumed, Place, RecordId, TopicSeen

NOBODY = -1
NOTHING_COMMITTED = -1


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


def stale_ends(evidence: Evidence) -> Iterator[Finding]:
    """A node returned an end offset below one that was acknowledged, read or returned before the request."""
    floors = _ends_known(evidence)
    for event in evidence.ends_seen:
        floor = floors.bound_before(event.place, event.asked_at)
        if event.end < floor:
            what = f"{event.reader} got the end offset {event.end} of {event.place}, when {floor} was known already"
            yield Finding("stale end", f"{what} ({event.asked_at:.3f} to {event.at:.3f})", event.asked_at)


def stale_watermarks(evidence: Evidence) -> Iterator[Finding]:
    floors = _ends_known(evidence)
    for event in evidence.watermarks_seen:
        floor = floors.bound_before(event.place, event.asked_at)
        if event.watermark < floor:
            what = f"returned a high watermark of {event.watermark} for {event.place}, when {floor} was known already"
            yield _finding("stale watermark", event, what)


def _ends_known(evidence: Evidence) -> LowerBounds[Place]:
    known = [(ack.place, ack.at, ack.offset + 1) for ack in evidence.placed]
    known += [(event.place, event.at, event.offset + 1) for event in evidence.consumed]
    known += [(event.place, event.at, event.end) for event in evidence.ends_seen]
    known += [(event.place, event.at, event.watermark) for event in evidence.watermarks_seen]
    return LowerBounds(known)


def stale_commits(evidence: Evidence) -> Iterator[Finding]:
    """A node returned a committed offset below one that was acknowledged or returned before.

    A commit that was never acknowledged may take effect late, after a higher one, and be returned.
    """
    settled = {(event.group, event.offset) for event in evidence.commits_acknowledged}
    known = [(event.group, event.at, event.offset) for event in evidence.commits_acknowledged]
    known += [(event.group, event.at, event.offset) for event in evidence.commits_seen]
    floors = LowerBounds(known, NOTHING_COMMITTED)
    for event in evidence.commits_seen:
        floor = floors.bound_before(event.group, event.asked_at)
        may_be_late = event.offset != NOTHING_COMMITTED and (event.group, event.offset) not in settled
        if event.offset < floor and not may_be_late:
            what = f"returned the committed offset {event.offset} of {event.group}, when {floor} was known already"
            yield _finding("stale commit", event, what)


def forgotten_topics(evidence: Evidence) -> Iterator[Finding]:
    """A node did not know an existing topic whose creation was acknowledged or that was shown before."""
    known_at = dict(evidence.topics_created)
    for event in evidence.topics_seen:
        if event.partitions:
            known_at[event.topic] = min(event.at, known_at.get(event.topic, event.at))
    for event in evidence.topics_seen:
        if event.partitions or event.topic not in known_at:
            continue
        is_deleted = evidence.deletions_sent.get(event.topic, event.at) < event.at
        if not is_deleted and known_at[event.topic] < evidence.must_know_before(event.node, event.asked_at):
            age_s = event.asked_at - known_at[event.topic]
            yield _finding("forgotten topic", event, f"did not know {event.topic}, {age_s:.1f} s old")


def undeleted_topics(evidence: Evidence) -> Iterator[Finding]:
    """A node returned a leader for a topic whose deletion was acknowledged."""
    for event in evidence.topics_seen:
        leaders = [led.leader for led in event.partitions if led.leader != NOBODY]
        if leaders and _is_deleted(evidence, event, event.topic):
            what = f"returned node {leaders[0]} as leader of the deleted topic {event.topic}"
            yield _finding("undeleted topic", event, what)


def undeleted_records(evidence: Evidence) -> Iterator[Finding]:
    """A node returned records of a topic whose deletion was acknowledged."""
    for event in evidence.records_seen:
        if _is_deleted(evidence, event, event.topic):
            yield _finding("undeleted records", event, f"returned records of the deleted topic {event.topic}")


def _is_deleted(evidence: Evidence, answer: Answer, topic: str) -> bool:
    deleted_at = evidence.topics_deleted.get(topic)
    return deleted_at is not None and deleted_at < evidence.must_know_before(answer.node, answer.asked_at)


def decreasing_epochs(evidence: Evidence) -> Iterator[Finding]:
    """A node returned a lower leader epoch than before, possibly across a restart."""
    answers = list(_led(evidence))
    floors = LowerBounds((((event.node, place), event.at, epoch) for event, place, _, epoch in answers))
    for event, place, _, epoch in answers:
        if epoch == NO_EPOCH:
            continue
        floor = floors.bound_before((event.node, place), event.asked_at)
        if epoch < floor:
            what = f"returned leader epoch {epoch} of {place} after {floor}"
            yield _finding("epoch decreased", event, what)


def stale_leaders(evidence: Evidence) -> Iterator[Finding]:
    """A replaced leader returned itself as the leader after its lease had expired."""
    answers = list(_led(evidence))
    by_others = [
        ((node, place), event.at, epoch)
        for event, place, leader, epoch in answers
        if leader != NOBODY
        for node in evidence.starts
        if node != leader
    ]
    floors = LowerBounds(by_others)
    for event, place, leader, epoch in answers:
        floor = floors.bound_before((event.node, place), evidence.must_know_before(event.node, event.asked_at))
        if leader == event.node and epoch < floor:
            what = f"returned itself as leader of {place} in epoch {epoch}, long after epoch {floor} began elsewhere"
            yield _finding("stale leader", event, what)


def _led(evidence: Evidence) -> Iterator[tuple[TopicSeen, Place, int, int]]:
    for event in evidence.topics_seen:
        for index, (leader, epoch) in enumerate(event.partitions):
            yield event, Place(event.topic, index), leader, epoch


def _finding(kind: str, answer: Answer, what: str) -> Finding:
    interval = f"({answer.asked_at:.3f} to {answer.at:.3f})"
    return Finding(kind, f"node {answer.node} {what} {interval}", answer.asked_at)


STALE_CHECKERS: tuple[Checker, ...] = (
    stale_ends,
    stale_watermarks,
    stale_commits,
    forgotten_topics,
    undeleted_topics,
    undeleted_records,
    decreasing_epochs,
    stale_leaders,
)


def judge(events: Iterable[AnyEvent]) -> list[Finding]:
    evidence = Evidence(events)
    return [finding for checker in CHECKERS for finding in checker(evidence)]


# Acknowledged records


def lost_records(evidence: Evidence) -> Iterator[Finding]:
    present = evidence.offsets_by_id()
    for ack in evidence.acknowledged:
        if ack.id not in present:
            yield Finding("lost", f"{ack.id}, acknowledged at {ack.place}@{ack.offset}, is missing at the end")


def misplaced_records(evidence: Evidence) -> Iterator[Finding]:
    """A different record was read at an acknowledged offset."""
    promised_at: dict[tuple[Place, int], RecordId] = {}
    for ack in evidence.placed:
        promised_at.setdefault((ack.place, ack.offset), ack.id)
    reported: set[tuple[Place, int]] = set()
    for event in evidence.consumed:
        expected = promised_at.get((event.place, event.offset))
        if expected is not None and expected != event.id and (event.place, event.offset) not in reported:
            reported.add((event.place, event.offset))
            where = f"{event.place}@{event.offset}"
            yield Finding("inconsistent", f"{expected} was acknowledged at {where}, but {event.reader} read {event.id}")


def offsets_acknowledged_twice(evidence: Evidence) -> Iterator[Finding]:
    by_offset: dict[tuple[Place, int], RecordId] = {}
    for ack in evidence.placed:
        other = by_offset.setdefault((ack.place, ack.offset), ack.id)
        if other != ack.id:
            yield Finding("not monotonic", f"{ack.place}@{ack.offset} was acknowledged for {other} and for {ack.id}")


def decreasing_acknowledgements(evidence: Evidence) -> Iterator[Finding]:
    """A record that was sent after another was acknowledged has a lower offset."""
    floors = LowerBounds((ack.place, ack.at, ack.offset + 1) for ack in evidence.placed)
    for ack in evidence.placed:
        sent = evidence.sent.get(ack.id)
        floor = floors.bound_before(ack.place, sent.at) if sent is not None else 0
        if ack.offset < floor:
            what = f"{ack.id} was sent when {ack.place}@{floor - 1} was acknowledged, and got offset {ack.offset}"
            yield Finding("not monotonic", what)


# Contents of the log


def duplicate_records(evidence: Evidence) -> Iterator[Finding]:
    for record, where in evidence.duplicates():
        if any(evidence.is_exactly_once(place) for place, _ in where) and record != UNREADABLE:
            yield Finding("duplicated", f"{record} stands at {_list_places(where)}")


def reordered_records(evidence: Evidence) -> Iterator[Finding]:
    """Acknowledged records are not in the order in which they were sent, per producer or per key."""
    streams: dict[tuple[str, str | None, Place], list[AcknowledgedOffset]] = defaultdict(list)
    for ack in evidence.placed:
        sent = evidence.sent.get(ack.id)
        if sent is not None and evidence.is_ordered(ack.place):
            streams[ack.id.producer, sent.key, ack.place].append(ack)
    for acks in streams.values():
        for before, after in pairwise(sorted(acks, key=lambda ack: ack.id.number)):
            if after.offset < before.offset:
                where = f"{after.place}@{after.offset}"
                yield Finding("reordered", f"{after.id} is at {where}, before {before.id} at {before.offset}")


def reordered_in_log(evidence: Evidence) -> Iterator[Finding]:
    """Records of an idempotent producer are not in order, acknowledged or not."""
    for place, records in evidence.log.items():
        if not evidence.is_exactly_once(place):
            continue
        last: dict[str, int] = {}
        seen: set[RecordId] = set()
        for offset, record in records.items():
            if record in seen:
                continue  # reported as a duplicate
            seen.add(record)
            if record.number < last.get(record.producer, -1):
                what = f"{record} is at {place}@{offset}, behind #{last[record.producer]}"
                yield Finding("reordered", what)
            last[record.producer] = max(record.number, last.get(record.producer, -1))


def scattered_keys(evidence: Evidence) -> Iterator[Finding]:
    """Records of one key are in different partitions."""
    homes: dict[tuple[str, str], Place] = {}
    for place, records in evidence.log.items():
        for offset, record in records.items():
            sent = evidence.sent.get(record)
            if sent is None or sent.key is None:
                continue
            home = homes.setdefault((place.topic, sent.key), place)
            if home != place:
                yield Finding("reordered", f"key {sent.key} is in {home}, and with {record} in {place}@{offset} too")


def phantom_records(evidence: Evidence) -> Iterator[Finding]:
    """A record was read that no client sent there, or whose send had definitely failed."""
    reported: set[tuple[Place, int, RecordId]] = set()
    for event in evidence.consumed:
        why = _why_phantom(evidence, event)
        if why is not None and (event.place, event.offset, event.id) not in reported:
            reported.add((event.place, event.offset, event.id))
            yield Finding("phantom", f"{event.reader} read {why} at {event.place}@{event.offset}")


def _why_phantom(evidence: Evidence, event: Consumed) -> str | None:
    if event.id == UNREADABLE:
        return "a corrupt record"
    sent = evidence.sent.get(event.id)
    if sent is None:
        return f"{event.id}, which no client sent,"
    if sent.topic != event.place.topic:
        return f"{event.id}, which was sent to {sent.topic},"
    failed = evidence.failed.get(event.id)
    if failed is None or sent.transaction is not None:  # reported as an aborted read
        return None
    return f"{event.id}, which had failed ({failed.error}),"


# Observations of readers


def contradicting_reads(evidence: Evidence) -> Iterator[Finding]:
    """Two reads of one offset returned different records or leader epochs."""
    first: dict[tuple[Place, int], Consumed] = {}
    for event in evidence.consumed:
        before = first.setdefault((event.place, event.offset), event)
        where = f"at {event.place}@{event.offset}"
        if before.id != event.id:
            what = f"{before.reader} read {before.id} {where}, {event.reader} read {event.id}"
            yield Finding("inconsistent", what)
        elif NO_EPOCH not in (before.epoch, event.epoch) and before.epoch != event.epoch:
            epochs = f"of epoch {before.epoch}, {event.reader} of {event.epoch}"
            yield Finding("inconsistent", f"{before.reader} read {event.id} {where} {epochs}")


def consumer_gaps(evidence: Evidence) -> Iterator[Finding]:
    """A reader skipped records or went back within one assignment."""
    passages: dict[tuple[str, int, Place], list[int]] = defaultdict(list)
    for event in evidence.consumed:
        passages[event.reader, event.assignment, event.place].append(event.offset)
    for (reader, _, place), offsets in passages.items():
        log = evidence.log.get(place, {})
        for before, after in pairwise(offsets):
            if after <= before:
                yield Finding("gap", f"{reader} went back in {place} from {before} to {after}")
            elif skipped := [offset for offset in range(before + 1, after) if offset in log]:
                yield Finding("gap", f"{reader} skipped {len(skipped)} records of {place} from {skipped[0]} on")


def undelivered_records(evidence: Evidence) -> Iterator[Finding]:
    """A group that has read all of a topic missed a record."""
    seen: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for event in evidence.consumed:
        if event.group is not None:
            seen[event.group, event.place].add(event.offset)
    for place in evidence.places():
        for group in evidence.promised[place.topic].groups:
            missed = sorted(evidence.log.get(place, {}).keys() - seen[group, place])
            if missed:
                yield Finding(
                    "unseen", f"group {group} never saw {len(missed)} records of {place}: {_format_offsets(missed)}"
                )


def final_read_gaps(evidence: Evidence) -> Iterator[Finding]:
    """The final reads do not cover a partition, or an offset that must contain a record."""
    read: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for event in evidence.consumed:
        read[event.reader, event.place].add(event.offset)
    for final in evidence.final_reads:
        if evidence.is_copy(final.place):
            continue
        missing = sorted(set(range(final.start, final.end)) - read[final.reader, final.place])
        if missing:
            what = (
                f"{final.reader} found nothing at {len(missing)} offsets of {final.place}: {_format_offsets(missing)}"
            )
            yield Finding("hole", what)
    for place in evidence.places():
        if place not in evidence.final_ranges:
            yield Finding("hole", f"{place} could not be read at the end")


def truncated_logs(evidence: Evidence) -> Iterator[Finding]:
    """A client read, saw or committed an offset beyond the final end of the log."""
    seen: dict[tuple[Place, str], int] = {}
    for event in evidence.consumed:
        key = (event.place, f"{event.reader} read")
        seen[key] = max(seen.get(key, 0), event.offset + 1)
    for seen_end in evidence.ends_seen:
        key = (seen_end.place, f"{seen_end.reader} got an end offset of")
        seen[key] = max(seen.get(key, 0), seen_end.end)
    for committed in evidence.committed:
        seen[committed.place, f"group {committed.group} committed"] = committed.offset
    for (place, who), end in seen.items():
        final = evidence.final_ranges.get(place)
        if final is not None and end > final.end:
            yield Finding("truncated", f"{who} {place} up to {end}, which ends at {final.end}")


# Availability


def stalled_partitions(evidence: Evidence) -> Iterator[Finding]:
    """A partition made no progress while a minority was faulty."""
    for fault in evidence.faults_began:
        ended = evidence.faults_ended.get(fault.number)
        if fault.demands_progress and (ended is None or ended.progressed_s is None):
            yield Finding("stalled", f"no progress in some partition during fault {fault.number}: {fault.what}")


def slow_recoveries(evidence: Evidence) -> Iterator[Finding]:
    """A partition did not acknowledge records soon enough after a fault that demands it."""
    for fault in evidence.faults_began:
        if fault.recovery_s_max is None or fault.number not in evidence.faults_ended:
            continue
        recovered_s = evidence.recovery_seconds(fault)
        if recovered_s is None or recovered_s > fault.recovery_s_max:
            took = "did not acknowledge again" if recovered_s is None else f"took {recovered_s:.1f} s"
            what = f"after fault {fault.number} ({fault.what}) the last partition {took}"
            yield Finding("slow recovery", f"{what}; {fault.recovery_s_max:g} s are allowed")


def broken_clients(evidence: Evidence) -> Iterator[Finding]:
    for event in evidence.broken:
        yield Finding("broken client", f"{event.client} gave up: {event.error}")


CHECKERS: tuple[Checker, ...] = (
    lost_records,
    misplaced_records,
    offsets_acknowledged_twice,
    decreasing_acknowledgements,
    duplicate_records,
    reordered_records,
    reordered_in_log,
    scattered_keys,
    phantom_records,
    contradicting_reads,
    consumer_gaps,
    undelivered_records,
    final_read_gaps,
    truncated_logs,
    *STALE_CHECKERS,
    *TRANSACTIONAL_CHECKERS,
    stalled_partitions,
    slow_recoveries,
    broken_clients,
)


def _format_offsets(offsets: list[int], shown: int = 5) -> str:
    return ", ".join(map(str, offsets[:shown])) + (", …" if len(offsets) > shown else "")


def _list_places(where: list[tuple[Place, int]]) -> str:
    return " and ".join(f"{place}@{offset}" for place, offset in where)
