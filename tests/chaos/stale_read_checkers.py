"""Detection of stale reads: responses of single nodes are compared with everything acknowledged or shown before. Pure.

Every response is an interval between request and response, and may reflect any moment in between. It is compared only
with what clients knew before the request was sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.evidence import Evidence
from tests.chaos.findings import Checker, Finding, LowerBounds
from tests.chaos.history import Answer, Place, TopicSeen

NOBODY = -1
NOTHING_COMMITTED = -1


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
