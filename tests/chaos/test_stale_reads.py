"""Hand-written responses of single nodes: each kind of stale read is reported alone and by its name.

Responses that may reflect an earlier moment, because of the time of the request or of the node's lease, pass.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.chaos.checkers import STALE_CHECKERS, judge, stale_ends
from tests.chaos.evidence import LEASE_SECONDS, Evidence
from tests.chaos.history import (
    AnyEvent,
    CommitAcknowledged,
    CommitSeen,
    DeletionSent,
    EndSeen,
    Journal,
    NodeStarted,
    PartitionLeader,
    Place,
    RecordsSeen,
    TopicCreated,
    TopicDeleted,
    TopicSeen,
    WatermarkSeen,
    read_journal,
)
from tests.chaos.history_builder import LOOSE, HistoryBuilder

TYPES_OF_SINGLE_NODES: set[type[AnyEvent]] = {
    WatermarkSeen,
    CommitSeen,
    TopicSeen,
    RecordsSeen,
    CommitAcknowledged,
    TopicCreated,
    DeletionSent,
    TopicDeleted,
    NodeStarted,
}

PLACE = Place(LOOSE, 0)
LONG = 2 * LEASE_SECONDS
"""A node without contact for this long must know that it is outdated."""

SHORT = LEASE_SECONDS / 2
UNKNOWN: tuple[PartitionLeader, ...] = ()

History = Callable[["Nodes"], str | None]
BAD: list[History] = []
GOOD: list[History] = []


class Nodes:
    """A builder of responses of three nodes, each a second after its request. All nodes started at 0."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = [NodeStarted(at=0.0, node=node) for node in (1, 2, 3)]
        self.clock = 1.0

    def wait(self, seconds: float) -> None:
        self.clock += seconds

    def _times(self, asked_at: float | None) -> tuple[float, float]:
        """Return the times of the request and of the response."""
        self.clock += 0.1
        asked_at = self.clock if asked_at is None else asked_at
        self.clock += 1.0
        return asked_at, self.clock

    def end(self, node: int, end: int) -> None:
        asked_at, at = self._times(None)
        self.events.append(EndSeen(at=at, reader=f"probe-{node}", place=PLACE, asked_at=asked_at, end=end))

    def watermark(self, node: int, watermark: int, asked_at: float | None = None) -> None:
        asked_at, at = self._times(asked_at)
        self.events.append(WatermarkSeen(at=at, node=node, asked_at=asked_at, place=PLACE, watermark=watermark))

    def committed(self, node: int, offset: int, asked_at: float | None = None) -> None:
        asked_at, at = self._times(asked_at)
        self.events.append(CommitSeen(at=at, node=node, asked_at=asked_at, group="g", offset=offset))

    def topic(self, node: int, *led: PartitionLeader, asked_at: float | None = None) -> None:
        asked_at, at = self._times(asked_at)
        self.events.append(TopicSeen(at=at, node=node, asked_at=asked_at, topic="t", partitions=led))

    def records(self, node: int) -> None:
        asked_at, at = self._times(None)
        self.events.append(RecordsSeen(at=at, node=node, asked_at=asked_at, topic="t"))

    def acknowledge_commit(self, offset: int) -> None:
        self.clock += 1.0
        self.events.append(CommitAcknowledged(at=self.clock, group="g", offset=offset))

    def create(self) -> None:
        self.clock += 1.0
        self.events.append(TopicCreated(at=self.clock, topic="t"))

    def send_deletion(self) -> None:
        self.clock += 1.0
        self.events.append(DeletionSent(at=self.clock, topic="t"))

    def delete(self) -> None:
        self.send_deletion()
        self.clock += 1.0
        self.events.append(TopicDeleted(at=self.clock, topic="t"))

    def start(self, node: int) -> None:
        self.clock += 0.1
        self.events.append(NodeStarted(at=self.clock, node=node))

    def finished(self) -> list[AnyEvent]:
        """Return the history, with a valid history of two written records."""
        story = HistoryBuilder()
        records = story.write(0, 0, LOOSE), story.write(1, 1, LOOSE)
        story.end_with(*records, topic=LOOSE)
        before = max(event.at for event in self.events)
        return [*(event for event in story.build() if not event.at), *self.events, *_later(story, before)]


def _later(story: HistoryBuilder, seconds: float) -> list[AnyEvent]:
    return [replace(event, at=event.at + seconds) for event in story.events if event.at]


def invalid_history(history: History) -> History:
    BAD.append(history)
    return history


def valid_history(history: History) -> History:
    GOOD.append(history)
    return history


@invalid_history
def an_end_is_told_that_is_below_what_another_node_told(nodes: Nodes) -> str:
    nodes.end(1, 2)
    nodes.end(2, 1)
    return "stale end"


@invalid_history
def an_end_is_told_that_is_below_a_watermark_of_another_node(nodes: Nodes) -> str:
    nodes.watermark(1, 2)
    nodes.end(2, 1)
    return "stale end"


@invalid_history
def a_watermark_is_told_that_is_below_an_end_of_another_node(nodes: Nodes) -> str:
    nodes.end(1, 2)
    nodes.watermark(2, 1)
    return "stale watermark"


@invalid_history
def a_watermark_goes_back_on_one_node(nodes: Nodes) -> str:
    nodes.watermark(1, 2)
    nodes.watermark(1, 0)
    return "stale watermark"


@valid_history
def a_watermark_that_was_asked_for_before_the_higher_one_was_told_may_be_lower(nodes: Nodes) -> None:
    asked_at = nodes.clock
    nodes.watermark(1, 2)
    nodes.watermark(2, 1, asked_at=asked_at)


@invalid_history
def a_commit_is_told_that_is_below_an_acknowledged_one(nodes: Nodes) -> str:
    nodes.acknowledge_commit(5)
    nodes.acknowledge_commit(6)
    nodes.committed(2, 5)
    return "stale commit"


@invalid_history
def a_commit_is_told_that_is_below_one_shown_elsewhere(nodes: Nodes) -> str:
    nodes.acknowledge_commit(5)
    nodes.committed(1, 6)
    nodes.committed(2, 5)
    return "stale commit"


@invalid_history
def no_commit_is_told_after_one_was_acknowledged(nodes: Nodes) -> str:
    nodes.acknowledge_commit(5)
    nodes.committed(2, -1)
    return "stale commit"


@valid_history
def nothing_is_committed_at_first(nodes: Nodes) -> None:
    nodes.committed(1, -1)
    nodes.committed(2, -1)
    nodes.acknowledge_commit(0)
    nodes.committed(2, 0)


@valid_history
def a_commit_that_was_asked_for_before_the_acknowledgement_may_be_lower(nodes: Nodes) -> None:
    nodes.acknowledge_commit(5)
    asked_at = nodes.clock
    nodes.acknowledge_commit(6)
    nodes.committed(2, 5, asked_at=asked_at)


@valid_history
def a_commit_that_nobody_acknowledged_may_take_effect_late(nodes: Nodes) -> None:
    nodes.acknowledge_commit(5)
    nodes.acknowledge_commit(7)
    nodes.committed(2, 6)


@invalid_history
def a_topic_is_unknown_long_after_its_creation(nodes: Nodes) -> str:
    nodes.create()
    nodes.wait(LONG)
    nodes.topic(2, *UNKNOWN)
    return "forgotten topic"


@invalid_history
def a_topic_is_unknown_long_after_another_node_showed_it(nodes: Nodes) -> str:
    nodes.topic(1, PartitionLeader(1, 0))
    nodes.wait(LONG)
    nodes.topic(2, *UNKNOWN)
    return "forgotten topic"


@invalid_history
def a_topic_is_unknown_to_a_node_that_started_after_its_creation(nodes: Nodes) -> str:
    nodes.create()
    nodes.start(2)
    nodes.topic(2, *UNKNOWN)
    return "forgotten topic"


@valid_history
def a_topic_may_be_unknown_elsewhere_for_a_moment(nodes: Nodes) -> None:
    nodes.wait(LONG)
    nodes.create()
    nodes.topic(2, *UNKNOWN)
    nodes.topic(3, PartitionLeader(1, 0))
    nodes.topic(2, *UNKNOWN)


@valid_history
def a_topic_may_be_unknown_when_somebody_has_asked_for_its_deletion(nodes: Nodes) -> None:
    nodes.create()
    nodes.wait(LONG)
    asked_at = nodes.clock
    nodes.send_deletion()
    nodes.topic(2, *UNKNOWN, asked_at=asked_at)
    nodes.topic(3, PartitionLeader(3, 0))


@invalid_history
def a_deleted_topic_has_a_leader(nodes: Nodes) -> str:
    nodes.delete()
    nodes.wait(LONG)
    nodes.topic(2, PartitionLeader(1, 0))
    return "undeleted topic"


@invalid_history
def a_deleted_topic_has_a_leader_on_a_node_that_started_later(nodes: Nodes) -> str:
    nodes.delete()
    nodes.start(2)
    nodes.topic(2, PartitionLeader(-1, 0), PartitionLeader(1, 0))
    return "undeleted topic"


@valid_history
def a_deleted_topic_may_be_shown_for_a_moment_and_later_without_a_leader(nodes: Nodes) -> None:
    nodes.wait(LONG)
    nodes.delete()
    nodes.topic(2, PartitionLeader(1, 0))
    nodes.wait(LONG)
    nodes.topic(2, PartitionLeader(-1, 0))


@valid_history
def a_topic_whose_deletion_nobody_acknowledged_may_stay(nodes: Nodes) -> None:
    nodes.send_deletion()
    nodes.wait(LONG)
    nodes.topic(2, PartitionLeader(1, 0))
    nodes.records(2)


@invalid_history
def records_of_a_deleted_topic_are_read(nodes: Nodes) -> str:
    nodes.delete()
    nodes.wait(LONG)
    nodes.records(2)
    return "undeleted records"


@invalid_history
def records_of_a_deleted_topic_are_read_from_a_node_that_started_later(nodes: Nodes) -> str:
    nodes.delete()
    nodes.start(2)
    nodes.records(2)
    return "undeleted records"


@valid_history
def records_of_a_deleted_topic_may_be_read_for_a_moment(nodes: Nodes) -> None:
    nodes.wait(LONG)
    nodes.delete()
    nodes.records(2)


@invalid_history
def a_leader_epoch_goes_back_on_one_node(nodes: Nodes) -> str:
    nodes.topic(2, PartitionLeader(1, 4))
    nodes.topic(2, PartitionLeader(3, 3))
    return "epoch decreased"


@invalid_history
def a_leader_epoch_goes_back_over_a_restart(nodes: Nodes) -> str:
    nodes.topic(2, PartitionLeader(1, 4))
    nodes.start(2)
    nodes.topic(2, PartitionLeader(-1, 3))
    return "epoch decreased"


@valid_history
def a_restarted_node_may_omit_leader_epochs(nodes: Nodes) -> None:
    nodes.topic(2, PartitionLeader(1, 4))
    nodes.start(2)
    nodes.topic(2, PartitionLeader(-1, -1))


@valid_history
def an_older_leader_epoch_may_be_told_by_another_node(nodes: Nodes) -> None:
    nodes.topic(2, PartitionLeader(1, 4))
    nodes.topic(3, PartitionLeader(2, 3))


@valid_history
def two_answers_of_one_node_that_were_under_way_together_come_in_any_order(nodes: Nodes) -> None:
    asked_at = nodes.clock
    nodes.topic(2, PartitionLeader(1, 4))
    nodes.topic(2, PartitionLeader(3, 3), asked_at=asked_at)


@invalid_history
def a_node_names_itself_long_after_another_one_led(nodes: Nodes) -> str:
    nodes.topic(1, PartitionLeader(1, 4))
    nodes.wait(LONG)
    nodes.topic(2, PartitionLeader(2, 3))
    return "stale leader"


@invalid_history
def a_node_names_itself_after_it_was_started_again(nodes: Nodes) -> str:
    nodes.topic(1, PartitionLeader(1, 4))
    nodes.start(2)
    nodes.topic(2, PartitionLeader(2, 3))
    return "stale leader"


@valid_history
def a_node_may_name_itself_while_its_lease_lasts_and_others_what_they_know(nodes: Nodes) -> None:
    nodes.wait(LONG)
    nodes.topic(1, PartitionLeader(1, 4))
    nodes.topic(2, PartitionLeader(2, 3))
    nodes.wait(LONG)
    nodes.topic(3, PartitionLeader(2, 3))
    nodes.topic(2, PartitionLeader(-1, 3))


def judge_history(history: History) -> tuple[str | None, list[AnyEvent]]:
    nodes = Nodes()
    expected = history(nodes)
    return expected, nodes.finished()


@pytest.mark.parametrize("history", BAD, ids=lambda history: history.__name__)
def test_checker_reports_stale_response_by_name(history: History) -> None:
    expected, events = judge_history(history)
    findings = judge(events)
    assert [finding.kind for finding in findings] == [expected], "\n".join(map(str, findings))


@pytest.mark.parametrize("history", GOOD, ids=lambda history: history.__name__)
def test_checker_accepts_valid_response(history: History) -> None:
    assert judge(judge_history(history)[1]) == []


def test_every_checker_has_history_only_it_detects() -> None:
    idle = set(STALE_CHECKERS) - {stale_ends}
    for history in BAD:
        evidence = Evidence(judge_history(history)[1])
        found_by = [checker for checker in STALE_CHECKERS if any(checker(evidence))]
        if len(found_by) == 1:
            idle.discard(found_by[0])
    assert not idle, f"checkers without a history: {[checker.__name__ for checker in idle]}"


def test_history_on_disk_gives_same_verdict(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    events = [event for history in BAD + GOOD for event in judge_history(history)[1]]
    for event in events:
        journal.add(event)
    journal.close()
    assert read_journal(journal.path) == events
    assert {type(event) for event in events} >= TYPES_OF_SINGLE_NODES
