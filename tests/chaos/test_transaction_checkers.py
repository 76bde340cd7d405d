"""Hand-written transaction histories: each kind of violation is reported alone and by its name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.chaos.checkers import CHECKERS, TRANSACTIONAL_CHECKERS, judge
from tests.chaos.evidence import Evidence
from tests.chaos.history import FinalRead, Place, RecordId, events_of_type
from tests.chaos.history_builder import COPIES, COPYING, SOURCE, HistoryBuilder

BadHistory = Callable[[HistoryBuilder], str]


def write_two_records(story: HistoryBuilder) -> tuple[RecordId, RecordId]:
    records = story.write(0, 0, SOURCE), story.write(1, 1, SOURCE)
    story.end_with(*records, topic=SOURCE)
    return records


def commit(story: HistoryBuilder, copy: RecordId, offset: int, partition: int = 0) -> None:
    story.acknowledge(copy, offset, COPIES, partition)


def test_checkers_accept_records_copied_once() -> None:
    story = HistoryBuilder(COPYING)
    first, second = write_two_records(story)
    aborted = story.copy(0, first, "t1")
    story.fail(aborted)
    one, other = story.copy(1, first, "t2"), story.copy(2, second, "t2")
    commit(story, one, 2)
    commit(story, other, 0, partition=1)
    story.end_with(one, topic=COPIES, start=2)  # after an aborted copy and its marker, and before another marker
    story.end_with(other, topic=COPIES, partition=1)
    assert judge(story.build()) == []


def test_control_records_are_not_offset_gaps() -> None:
    story = HistoryBuilder(COPYING)
    first, second = write_two_records(story)
    copies = [story.copy(0, first), story.copy(1, second)]
    for offset, copy in enumerate(copies):
        commit(story, copy, offset)
    story.end_with(*copies, topic=COPIES)
    (final,) = (each for each in events_of_type(story.events, FinalRead) if each.place == Place(COPIES, 0))
    story.events[story.events.index(final)] = msgspec.structs.replace(final, end=3)
    assert judge(story.build()) == []


def read_of_what_was_aborted(story: HistoryBuilder) -> str:
    first, second = write_two_records(story)
    aborted = story.copy(0, first, "t1")
    story.fail(aborted)
    story.read(aborted, 0, COPIES, reader="alone")
    copies = story.copy(1, first, "t2"), story.copy(2, second, "t2")
    for offset, copy in enumerate(copies, 2):
        commit(story, copy, offset)
    story.end_with(*copies, topic=COPIES, start=2)
    return "aborted read"


def half_of_a_transaction(story: HistoryBuilder) -> str:
    """A transaction of unknown outcome may exist or not, but not in part."""
    first, second = write_two_records(story)
    half = story.copy(0, first, "t1"), story.copy(1, second, "t1")
    for copy in half:
        story.leave_unknown(copy)
    rest = story.copy(2, second, "t2")
    commit(story, rest, 2)
    story.end_with(half[0], topic=COPIES)
    story.end_with(rest, topic=COPIES, partition=1, start=2)
    return "torn"


def a_record_that_two_transactions_have_copied(story: HistoryBuilder) -> str:
    first, second = write_two_records(story)
    copies = story.copy(0, first, "t1"), story.copy(1, second, "t1"), story.copy(2, first, "t2", producer="zombie")
    for offset, copy in enumerate(copies):
        commit(story, copy, offset)
    story.end_with(*copies, topic=COPIES)
    return "copied twice"


def a_record_that_nobody_has_copied(story: HistoryBuilder) -> str:
    first, _ = write_two_records(story)
    copy = story.copy(0, first)
    commit(story, copy, 0)
    story.end_with(copy, topic=COPIES)
    return "not copied"


def a_committed_copy_that_is_gone(story: HistoryBuilder) -> str:
    """The copy was repeated by another transaction."""
    first, second = write_two_records(story)
    gone = story.copy(0, first, "t1")
    commit(story, gone, 0)
    copies = story.copy(1, first, "t2"), story.copy(2, second, "t2")
    for offset, copy in enumerate(copies, 1):
        commit(story, copy, offset)
    story.end_with(*copies, topic=COPIES, start=1)
    return "lost"


BAD = (
    read_of_what_was_aborted,
    half_of_a_transaction,
    a_record_that_two_transactions_have_copied,
    a_record_that_nobody_has_copied,
    a_committed_copy_that_is_gone,
)


@pytest.mark.parametrize("history", BAD)
def test_checker_reports_only_the_injected_violation(history: BadHistory) -> None:
    story = HistoryBuilder(COPYING)
    expected = history(story)
    assert {finding.kind for finding in judge(story.build())} == {expected}


def test_every_checker_has_history_only_it_detects() -> None:
    idle = set(TRANSACTIONAL_CHECKERS)
    for history in BAD:
        story = HistoryBuilder(COPYING)
        history(story)
        evidence = Evidence(story.build())
        found_by = [checker for checker in CHECKERS if any(checker(evidence))]
        if len(found_by) == 1:
            idle.discard(found_by[0])
    assert not idle, f"checkers without a history: {[checker.__name__ for checker in idle]}"
