"""The text report of a chaos run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from tests.chaos.evidence import Evidence
from tests.chaos.findings import Finding
from tests.chaos.harness import ChaosOutcome
from tests.chaos.history import Place

FINDINGS_SHOWN_PER_KIND = 10


def render_report(outcome: ChaosOutcome) -> list[str]:
    evidence = Evidence(outcome.events)
    return [
        *_table(evidence),
        "",
        *_faults(evidence),
        "",
        *format_recovery_table(recovery_times_by_kind(evidence)),
        "",
        *_findings(outcome.findings, evidence),
    ]


def _table(evidence: Evidence) -> Iterator[str]:
    yield _row("workload", "sent", "acked", "unknown", "failed", "doubled", "delivered", "gap s", "worst s")
    for topic in evidence.promised:
        counts = (f"{count:,}" for count in _counts(evidence, topic))
        yield _row(topic, *counts, *(f"{seconds:.1f}" for seconds in longest_gaps(evidence, topic)))
    yield "(doubled: records at two offsets, which only idempotence prevents; gap: the longest time without an"
    yield " acknowledgement; worst: in the partition with the longest)"


def _row(name: str, *figures: str) -> str:
    return "  ".join([f"{name:<13}", *(f"{figure:>9}" for figure in figures)])


def _counts(evidence: Evidence, topic: str) -> Iterator[int]:
    ids = {event.id for event in evidence.sent.values() if event.topic == topic}
    yield len(ids)
    yield sum(event.id in ids for event in evidence.acknowledged)
    yield sum(record in ids for record in evidence.unknown)
    yield sum(record in ids for record in evidence.failed)
    yield sum(record in ids for record, _ in evidence.duplicates())
    yield sum(event.group is not None and event.place.topic == topic for event in evidence.consumed)


class Gaps(NamedTuple):
    """The longest times without an acknowledgement while records were sent, overall and in the worst partition."""

    whole: float
    worst_partition: float


def longest_gaps(evidence: Evidence, topic: str) -> Gaps:
    sent_at = [event.at for event in evidence.sent.values() if event.topic == topic]
    if not sent_at:
        return Gaps(0.0, 0.0)
    began, ended = min(sent_at), max(sent_at)
    acknowledged_at: dict[Place, list[float]] = {place: [] for place in evidence.places() if place.topic == topic}
    for event in evidence.acknowledged:
        if event.place in acknowledged_at:
            acknowledged_at[event.place].append(event.at)
    together = [at for times in acknowledged_at.values() for at in times]
    worst = max(_longest(times, began, ended) for times in acknowledged_at.values())
    return Gaps(_longest(together, began, ended), worst)


def _longest(times: Iterable[float], began: float, ended: float) -> float:
    within = sorted(at for at in times if began <= at <= ended)
    return max(after - before for before, after in pairwise([began, *within, ended]))


def _faults(evidence: Evidence) -> Iterator[str]:
    kinds = Counter(event.kind for event in evidence.faults_began)
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    yield f"faults: {sum(kinds.values())} ({text})"
    demanded = [event.number for event in evidence.faults_began if event.demands_progress]
    ended = [evidence.faults_ended[number] for number in demanded if number in evidence.faults_ended]
    after = [event.progressed_s for event in ended if event.progressed_s is not None]
    yield f"responses of single nodes checked against all others: {count_node_responses(evidence):,}"
    if demanded:
        times = f", after {median(after):.1f} s (median), {max(after):.1f} s (most)" if after else ""
        yield f"every partition had to make progress in {len(demanded)} of them: it did in {len(after)}{times}"


def count_node_responses(evidence: Evidence) -> int:
    of_partitions = len(evidence.ends_seen) + len(evidence.watermarks_seen)
    return of_partitions + len(evidence.commits_seen) + len(evidence.topics_seen) + len(evidence.records_seen)


class RecoveryTimes(NamedTuple):
    """Recovery times of the faults of one kind."""

    progress_seconds: list[float]
    """Times until every partition had acknowledged records that were sent after the fault began."""
    recovery_seconds: list[float]
    """Times from the end of the fault to acknowledgements of all partitions, unless another fault came first."""
    faults: int


def recovery_times_by_kind(evidence: Evidence) -> dict[str, RecoveryTimes]:
    """Return the recovery times by kind of fault."""
    found: dict[str, RecoveryTimes] = {}
    for kind in sorted({event.kind for event in evidence.faults_began}):
        began = [event for event in evidence.faults_began if event.kind == kind]
        ended = [evidence.faults_ended.get(event.number) for event in began]
        went_on = [each.progressed_s for each in ended if each is not None and each.progressed_s is not None]
        back = [seconds for seconds in map(evidence.recovery_seconds, began) if seconds is not None]
        found[kind] = RecoveryTimes(went_on, back, len(began))
    return found


def format_recovery_table(taken: Mapping[str, RecoveryTimes]) -> Iterator[str]:
    yield _row("fault", "count", "on s", "on most s", "back s", "back most")
    for kind, (went_on, back, count) in taken.items():
        yield _row(kind, str(count), *_median_and_most(went_on), *_median_and_most(back))
    yield "(on: until every partition had acknowledged records that were sent after the fault began; back: after its"
    yield " end, until every partition acknowledged records, unless another fault came first)"


def _median_and_most(seconds: list[float]) -> tuple[str, str]:
    return (f"{median(seconds):.1f}", f"{max(seconds):.1f}") if seconds else ("-", "-")


def _findings(findings: list[Finding], evidence: Evidence) -> Iterator[str]:
    yield f"findings: {len(findings)}"
    kinds = Counter(finding.kind for finding in findings)
    for kind, count in kinds.items():
        yield f"  {kind}: {count}"
        of_kind = [each for each in findings if each.kind == kind]
        by_fault = Counter(_fault_at(evidence, each.at) for each in of_kind if each.at is not None)
        for fault, times in by_fault.items():
            yield f"    {times} {fault}"
        for finding in of_kind[:FINDINGS_SHOWN_PER_KIND]:
            yield f"    {finding.what}"


def _fault_at(evidence: Evidence, at: float) -> str:
    """Return the last fault that began before the given time."""
    before = [fault for fault in evidence.faults_began if fault.at <= at]
    if not before:
        return "before all faults"
    last = before[-1]
    ended = evidence.faults_ended.get(last.number)
    is_over = ended is not None and ended.at <= at
    return f"{'after' if is_over else 'during'} fault {last.number}, {last.kind}"
