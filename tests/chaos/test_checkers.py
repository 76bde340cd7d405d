"""Hand-written histories: each kind of violation is reported alone and by its name; valid histories pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.checkers import CHECKERS, STALE_CHECKERS, TRANSACTIONAL_CHECKERS, judge, stale_ends
from tests.chaos.evidence import Evidence
from tests.chaos.history import (
    UNREADABLE,
    Acknowledged,
    AnyEvent,
    ClientBroken,
    Committed,
    EndSeen,
    FaultBegan,
    FaultEnded,
    FinalRead,
    Journal,
    Place,
    RecordId,
    Sent,
    decode_value,
    encode_value,
    read_journal,
)
from tests.chaos.history_builder import LOOSE, ONCE, ORDERED, PROMISES, HistoryBuilder
from tests.chaos.test_stale_reads import TYPES_OF_SINGLE_NODES

BadHistory = Callable[[HistoryBuilder], str]
"""Builds a history with one violation and returns its kind."""

BAD: list[BadHistory] = []


def invalid_history(history: BadHistory) -> BadHistory:
    BAD.append(history)
    return history


def _two_written(story: HistoryBuilder, topic: str = ONCE) -> tuple[RecordId, RecordId]:
    """Write two records that the group reads."""
    first, second = story.write(0, 0, topic), story.write(1, 1, topic)
    story.read(first, 0, topic)
    story.read(second, 1, topic)
    return first, second


@invalid_history
def an_acknowledged_record_is_gone_and_its_offset_with_it(story: HistoryBuilder) -> str:
    first, _ = story.write(0, 0), story.write(1, 1)
    story.read(first, 0)
    story.end_with(first)
    return "lost"


@invalid_history
def an_acknowledged_record_is_gone_from_the_front(story: HistoryBuilder) -> str:
    story.write(0, 0, LOOSE)
    second = story.write(1, 1, LOOSE)
    story.end_with(second, topic=LOOSE, start=1)
    return "lost"


@invalid_history
def a_record_that_was_acknowledged_without_an_offset_is_gone(story: HistoryBuilder) -> str:
    story.acknowledge(story.send(0), None)
    return "lost"


@invalid_history
def another_record_is_at_an_acknowledged_offset(story: HistoryBuilder) -> str:
    first = story.write(0, 0, LOOSE)
    second = story.send(1, LOOSE)
    story.leave_unknown(second)
    story.end_with(second, first, topic=LOOSE)
    return "inconsistent"


@invalid_history
def two_readers_see_different_records_at_one_offset(story: HistoryBuilder) -> str:
    first, second = story.send(0, LOOSE), story.send(1, LOOSE)
    story.leave_unknown(first)
    story.leave_unknown(second)
    story.read(first, 0, LOOSE, reader="alone")
    story.end_with(second, first, topic=LOOSE)
    return "inconsistent"


@invalid_history
def two_readers_see_one_record_of_two_epochs(story: HistoryBuilder) -> str:
    first, _ = _two_written(story)
    story.read(first, 0, reader="d", epoch=4)
    story.end_with(first, RecordId("p", 1))
    return "inconsistent"


@invalid_history
def an_idempotent_producers_record_is_there_twice(story: HistoryBuilder) -> str:
    first, _ = _two_written(story)
    story.read(first, 2)
    story.end_with(first, RecordId("p", 1), first)
    return "duplicated"


@invalid_history
def an_idempotent_producers_unacknowledged_record_is_there_twice(story: HistoryBuilder) -> str:
    record = story.send(0)
    story.leave_unknown(record)
    story.read(record, 0)
    story.read(record, 1)
    story.end_with(record, record)
    return "duplicated"


@invalid_history
def records_that_were_in_flight_together_are_acknowledged_in_another_order(story: HistoryBuilder) -> str:
    first, second = story.send(0, ORDERED), story.send(1, ORDERED)
    story.acknowledge(second, 0, ORDERED)
    story.acknowledge(first, 1, ORDERED)
    story.end_with(second, first, topic=ORDERED)
    return "reordered"


@invalid_history
def records_of_one_key_are_acknowledged_in_another_order(story: HistoryBuilder) -> str:
    first, second = story.send(0, ORDERED, key="k"), story.send(1, ORDERED, key="k")
    story.acknowledge(second, 0, ORDERED)
    story.acknowledge(first, 1, ORDERED)
    story.end_with(second, first, topic=ORDERED)
    return "reordered"


@invalid_history
def an_idempotent_producers_record_of_unknown_outcome_comes_too_late(story: HistoryBuilder) -> str:
    first, second = story.send(0), story.send(1)
    story.leave_unknown(first)
    story.acknowledge(second, 0)
    story.read(second, 0)
    story.read(first, 1)
    story.end_with(second, first)
    return "reordered"


@invalid_history
def a_key_is_in_two_partitions(story: HistoryBuilder) -> str:
    first = story.write(0, 0, ORDERED, 0, key="k")
    second = story.write(1, 0, ORDERED, 1, key="k")
    story.end_with(first, topic=ORDERED, partition=0)
    story.end_with(second, topic=ORDERED, partition=1)
    return "reordered"


@invalid_history
def a_later_record_gets_an_offset_below_one_acknowledged_before(story: HistoryBuilder) -> str:
    first = story.send(0, LOOSE, producer="p")
    story.acknowledge(first, 1, LOOSE)
    second = story.send(0, LOOSE, producer="q")
    story.acknowledge(second, 0, LOOSE)
    story.end_with(second, first, topic=LOOSE)
    return "not monotonic"


@invalid_history
def one_offset_is_acknowledged_for_two_records(story: HistoryBuilder) -> str:
    first, second = story.send(0, LOOSE), story.send(1, LOOSE)
    story.acknowledge(first, 0, LOOSE)
    story.acknowledge(second, 0, LOOSE)
    story.end_with(first, second, topic=LOOSE)
    return "not monotonic"


@invalid_history
def a_consumer_skips_a_record(story: HistoryBuilder) -> str:
    first, second, third = story.write(0, 0), story.write(1, 1), story.write(2, 2)
    story.read(first, 0)
    story.read(third, 2)
    story.read(second, 1, reader="d")
    story.end_with(first, second, third)
    return "gap"


@invalid_history
def a_consumer_goes_back_within_one_assignment(story: HistoryBuilder) -> str:
    first, second = _two_written(story)
    story.read(first, 0)
    story.end_with(first, second)
    return "gap"


@invalid_history
def a_group_never_sees_a_record_although_no_member_skipped_one(story: HistoryBuilder) -> str:
    first, second = story.write(0, 0), story.write(1, 1)
    story.read(second, 1)
    story.end_with(first, second)
    return "unseen"


@invalid_history
def a_group_never_sees_the_last_record(story: HistoryBuilder) -> str:
    first, second = story.write(0, 0), story.write(1, 1)
    story.read(first, 0)
    story.end_with(first, second)
    return "unseen"


@invalid_history
def a_record_is_there_that_nobody_sent(story: HistoryBuilder) -> str:
    story.end_with(RecordId("unknown", 7), topic=LOOSE)
    return "phantom"


@invalid_history
def a_record_is_there_that_cannot_be_read(story: HistoryBuilder) -> str:
    story.end_with(UNREADABLE, topic=LOOSE)
    return "phantom"


@invalid_history
def a_record_is_there_that_had_failed(story: HistoryBuilder) -> str:
    record = story.send(0, LOOSE)
    story.fail(record)
    story.end_with(record, topic=LOOSE)
    return "phantom"


@invalid_history
def a_record_is_in_a_topic_that_it_was_not_sent_to(story: HistoryBuilder) -> str:
    record = story.send(0, ORDERED)
    story.leave_unknown(record)
    story.end_with(record, topic=LOOSE)
    return "phantom"


@invalid_history
def a_failed_record_was_read_once_and_is_gone(story: HistoryBuilder) -> str:
    """The record was read before it was truncated and overwritten."""
    record = story.send(0, LOOSE)
    story.fail(record)
    story.read(record, 0, LOOSE, reader="alone")
    story.end_with(RecordId("p", 0), topic=LOOSE)
    return "phantom"


@invalid_history
def a_consumer_read_what_was_cut_off_later(story: HistoryBuilder) -> str:
    first = story.write(0, 0, LOOSE)
    second = story.send(1, LOOSE)
    story.leave_unknown(second)
    story.read(first, 0, LOOSE)
    story.read(second, 1, LOOSE)
    story.end_with(first, topic=LOOSE)
    return "truncated"


@invalid_history
def an_end_was_told_that_is_beyond_the_last_one(story: HistoryBuilder) -> str:
    story.see_end(1, LOOSE)
    return "truncated"


@invalid_history
def a_group_committed_what_is_beyond_the_end(story: HistoryBuilder) -> str:
    story.events.append(Committed(at=story.tick(), group="g", place=Place(ONCE, 0), offset=1))
    return "truncated"


@invalid_history
def an_end_is_told_that_is_below_what_was_acknowledged(story: HistoryBuilder) -> str:
    record = story.write(0, 0, LOOSE)
    story.see_end(0, LOOSE)
    story.end_with(record, topic=LOOSE)
    return "stale end"


@invalid_history
def an_end_is_told_that_is_below_the_one_before(story: HistoryBuilder) -> str:
    record = story.send(0, LOOSE)
    story.leave_unknown(record)
    story.see_end(1, LOOSE)
    story.see_end(0, LOOSE)
    story.end_with(record, topic=LOOSE)
    return "stale end"


@invalid_history
def an_end_is_told_that_is_below_what_was_read(story: HistoryBuilder) -> str:
    record = story.send(0, LOOSE)
    story.leave_unknown(record)
    story.read(record, 0, LOOSE)
    story.see_end(0, LOOSE)
    story.end_with(record, topic=LOOSE)
    return "stale end"


@invalid_history
def the_final_read_has_a_hole(story: HistoryBuilder) -> str:
    place = Place(LOOSE, 0)
    story.end_with(topic=LOOSE)
    story.events.append(FinalRead(at=story.tick(), reader="other", place=place, start=0, end=1))
    record = story.send(0, LOOSE)
    story.leave_unknown(record)
    return "hole"


@invalid_history
def a_partition_stalls_while_a_minority_is_down(story: HistoryBuilder) -> str:
    story.events.append(FaultBegan(number=1, kind="kill", what="node 2 killed", demands_progress=True))
    story.events.append(FaultEnded(number=1))
    return "stalled"


def _recovers_after(story: HistoryBuilder, seconds: float) -> None:
    """Build a fault with a recovery limit that ends at 100; all partitions but one acknowledge immediately."""
    fault = FaultBegan(at=90.0, number=1, kind="longcut", what="all cut off", recovery_s_max=2.0)
    story.events += [fault, FaultEnded(at=100.0, number=1)]
    for number, (topic, partition) in enumerate(((ONCE, 0), (ORDERED, 0), (ORDERED, 1), (LOOSE, 0))):
        record = RecordId(f"r{number}", 0)
        at = 100.0 + (seconds if topic == LOOSE else 0.5)
        story.events.append(Sent(at=95.0, id=record, topic=topic))
        story.events.append(Acknowledged(at=at, id=record, place=Place(topic, partition), offset=0))
        if topic == ONCE:
            story.read(record, 0)
        story.end_with(record, topic=topic, partition=partition)


@invalid_history
def a_partition_takes_too_long_to_come_back(story: HistoryBuilder) -> str:
    _recovers_after(story, 2.1)
    return "slow recovery"


@invalid_history
def a_partition_does_not_come_back_before_the_next_fault(story: HistoryBuilder) -> str:
    _recovers_after(story, 1.9)
    story.events.append(FaultBegan(at=101.0, number=2, kind="kill", what="node 1 killed"))
    story.events.append(FaultEnded(at=102.0, number=2))
    return "slow recovery"


@invalid_history
def a_producer_gives_up_for_good(story: HistoryBuilder) -> str:
    story.events.append(ClientBroken(client="p", error="OUT_OF_ORDER_SEQUENCE_NUMBER"))
    return "broken client"


@pytest.mark.parametrize("history", BAD, ids=lambda history: history.__name__)
def test_checker_reports_violation_by_name(history: BadHistory) -> None:
    story = HistoryBuilder()
    expected = history(story)
    findings = judge(story.build())
    assert {finding.kind for finding in findings} == {expected}, "\n".join(map(str, findings))


def test_checker_reports_partition_not_read_at_end() -> None:
    assert {finding.kind for finding in judge(PROMISES)} == {"hole"}


def test_every_checker_has_history_only_it_detects() -> None:
    idle = set(CHECKERS) - {*STALE_CHECKERS, *TRANSACTIONAL_CHECKERS} | {stale_ends}
    for history in BAD:
        story = HistoryBuilder()
        history(story)
        evidence = Evidence(story.build())
        found_by = [checker for checker in CHECKERS if any(checker(evidence))]
        if len(found_by) == 1:
            idle.discard(found_by[0])
    assert not idle, f"checkers without a history: {[checker.__name__ for checker in idle]}"


def valid_histories() -> Iterator[tuple[str, HistoryBuilder]]:
    story = HistoryBuilder()
    yield "nothing happened", story

    story = HistoryBuilder()
    first, second = _two_written(story)
    story.see_end(2)
    story.events.append(Committed(at=story.tick(), group="g", place=Place(ONCE, 0), offset=2))
    story.end_with(first, second)
    yield "no faults", story

    story = HistoryBuilder()
    first, second = story.send(0, LOOSE), story.send(1, LOOSE)
    story.leave_unknown(first)
    story.leave_unknown(second)
    story.end_with(second, topic=LOOSE)
    yield "of two records with unknown outcome, one exists", story

    story = HistoryBuilder()
    first, second = story.send(0, LOOSE), story.send(1, LOOSE)
    story.acknowledge(first, 2, LOOSE)
    story.acknowledge(second, 1, LOOSE)
    story.end_with(first, second, first, topic=LOOSE)
    yield "without guarantees, a retry duplicates and reorders a record", story

    story = HistoryBuilder()
    first, second = story.send(0, ORDERED), story.send(1, ORDERED)
    story.leave_unknown(first)
    story.acknowledge(second, 0, ORDERED)
    story.end_with(second, first, topic=ORDERED)
    yield "without idempotence, a record of unknown outcome may be late", story

    story = HistoryBuilder()
    first, second = story.send(0, ORDERED, key="k"), story.send(1, ORDERED, key="l")
    story.acknowledge(second, 0, ORDERED)
    story.acknowledge(first, 1, ORDERED)
    story.end_with(second, first, topic=ORDERED)
    yield "different keys are in any order", story

    story = HistoryBuilder()
    record = story.send(0, LOOSE)
    story.fail(record)
    story.end_with(topic=LOOSE)
    yield "a failed record does not exist", story

    story = HistoryBuilder()
    first, second = _two_written(story)
    story.read(first, 0, assignment=2)
    story.read(second, 1, assignment=2)
    story.read(second, 1, reader="d")
    story.end_with(first, second)
    yield "after a rebalance, records are delivered again", story

    story = HistoryBuilder()
    first = story.send(0, LOOSE)
    asked_at = story.tick()
    story.acknowledge(first, 0, LOOSE)
    seen = EndSeen(at=story.tick(), reader="watcher", place=Place(LOOSE, 0), asked_at=asked_at, end=0)
    story.events.append(seen)
    story.end_with(first, topic=LOOSE)
    yield "an end offset requested before the acknowledgement may exclude the record", story

    story = HistoryBuilder()
    story.events.append(FaultBegan(number=1, kind="kill", what="all killed"))
    story.events.append(FaultEnded(number=1))
    story.events.append(FaultBegan(number=2, kind="kill", what="node 2 killed", demands_progress=True))
    story.events.append(FaultEnded(number=2, progressed_s=1.5))
    yield "no progress while all nodes are down", story

    story = HistoryBuilder()
    _recovers_after(story, 1.9)
    yield "every partition recovers in time", story


@pytest.mark.parametrize("story", [pytest.param(story, id=name) for name, story in valid_histories()])
def test_checkers_accept_valid_history(story: HistoryBuilder) -> None:
    assert judge(story.build()) == []


def test_history_survives_round_trip_to_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    all_events: list[AnyEvent] = []
    for history in BAD:
        story = HistoryBuilder()
        history(story)
        all_events += story.build()
    for _, story in valid_histories():
        all_events += story.build()
    for event in all_events:
        journal.add(event)
    journal.close()
    assert read_journal(journal.path) == all_events == journal.events()
    assert {type(event) for event in all_events} == set(AnyEvent.__args__) - TYPES_OF_SINGLE_NODES


@pytest.mark.parametrize("key", [None, "", "a key"])
def test_record_value_identifies_writer_and_detects_corruption(key: str | None) -> None:
    record = RecordId("p", 12)
    value, raw_key = encode_value(record, key, padding=10), None if key is None else key.encode()
    assert decode_value(value, raw_key) == record
    assert decode_value(value, b"another") == UNREADABLE
    assert decode_value(value, b"" if key is None else None) == UNREADABLE
    assert decode_value(None, raw_key) == UNREADABLE
    assert decode_value(value.replace(b"12", b"13"), raw_key) == UNREADABLE
    assert decode_value(b"\xff" + value, raw_key) == UNREADABLE
