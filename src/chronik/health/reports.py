"""The facts that each node reports to the controller, and their aggregation into the facts about the cluster. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from chronik.health.checks import DISK_WINDOW_S, LAG_WINDOW_S
from chronik.health.facts import (
    HealthFacts,
    ObservedCertificate,
    ObservedClock,
    ObservedDisk,
    ObservedGroup,
    ObservedIsrShrinks,
    ObservedNode,
    ObservedPartitions,
    ObservedPipeline,
    ObservedQuorum,
    ObservedStalls,
    ObservedTransaction,
)
from chronik.health.history import SampleHistory
from chronik.health.problems import Problem, find_worst_severity, problem_to_json

REPORT_SECONDS: Final = 10.0
"""Interval in seconds at which nodes report to the controller."""
REPORT_VALID_SECONDS: Final = 45.0
"""Age in seconds above which a report is not used any more."""

REPORTED_GROUPS_MAX: Final = 500
"""Maximum number of groups in a report: those with the largest lag."""
TRACKED_GROUPS_MAX: Final = 200
TRACKED_PIPELINES_MAX: Final = 200
REPORTED_PARTITIONS_MAX: Final = 100
"""Maximum number of partitions whose ISR changes are reported."""


class PipelineReport(msgspec.Struct, frozen=True):
    """One topic of a pipeline, as the leader of the pipeline journal knows it."""

    pipeline: str
    topic: str
    lag: int | None = None
    is_stopped: bool = False
    is_failing: bool = False
    last_error: str | None = None
    reported_at_s: float | None = None


class NodeHealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that only one node knows. New fields need defaults, to decode the reports of earlier versions."""

    node_id: int
    time_s: float
    """The node's clock when it sent the report."""
    clock_ahead_s: float | None = None
    """By how much the node's clock is ahead of the controller's, measured with its previous report; None if unknown."""
    clock_uncertainty_s: float = 0.0
    is_fenced: bool = False
    group_lags: dict[str, int] = {}
    """The lag of groups over the partitions that the node leads."""
    disk_bytes: int = 0
    disk_free_bytes: int = 0
    stalls: int | None = None
    isr_shrinks: dict[str, int] = {}
    """How often replicas have left the ISRs of partitions that the node leads, within ISR_WINDOW_S."""
    damaged: tuple[str, ...] = ()
    certificates: tuple[ObservedCertificate, ...] = ()
    pipelines: tuple[PipelineReport, ...] | None = None
    """The pipelines, or None if another node leads the pipeline journal."""
    state_hashes: dict[int, str] = {}
    """The state hashes of the node's latest images, by index of the metadata log."""


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """The problems of the cluster, and which node found them."""

    node_id: int
    checked_at_s: float
    problems: tuple[Problem, ...] = ()

    @property
    def status(self) -> str:
        """The severity of the worst problem: ok, info, warning or critical."""
        worst = find_worst_severity(self.problems)
        return "ok" if worst is None else worst.label

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "status": self.status,
            "node_id": self.node_id,
            "checked_ms": round(self.checked_at_s * 1000),
            "problems": [problem_to_json(each) for each in self.problems],
        }


class ReportResponse(msgspec.Struct, frozen=True):
    """The controller's response to a node's report."""

    is_controller: bool
    time_s: float = 0.0
    """The controller's clock when it received the report."""
    health: HealthReport | None = None


class WindowCounter:
    """Counts events within a time window, from counts that are recorded from time to time."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._counts: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=128)

    def record(self, at_s: float, counts: Mapping[str, int]) -> None:
        """Record how often events have occurred since the previous call."""
        if any(counts.values()):
            self._counts.append((at_s, dict(counts)))
        while self._counts and not 0 <= at_s - self._counts[0][0] <= self._window_s:
            self._counts.popleft()

    def totals(self) -> dict[str, int]:
        """Return the counts within the window."""
        found: dict[str, int] = defaultdict(int)
        for _, counts in self._counts:
            for name, count in counts.items():
                found[name] += count
        return dict(found)


def select_largest_lags(lags: Mapping[str, int], find_lag_budget: Callable[[str], int], count: int) -> dict[str, int]:
    """Return the lags of the groups with the largest ones compared with their budgets."""
    if len(lags) <= count:
        return dict(lags)
    return dict(heapq.nlargest(count, lags.items(), key=lambda item: item[1] / find_lag_budget(item[0])))


class ReportAggregator:
    """Collects the reports of all nodes, and builds the facts about the cluster from them."""

    def __init__(self) -> None:
        self._reports: dict[int, tuple[float, NodeHealthReport]] = {}
        self._lags: SampleHistory[str] = SampleHistory(LAG_WINDOW_S, TRACKED_GROUPS_MAX)
        self._pipeline_lags: SampleHistory[tuple[str, str]] = SampleHistory(LAG_WINDOW_S, TRACKED_PIPELINES_MAX)
        self._free_bytes: SampleHistory[int] = SampleHistory(DISK_WINDOW_S, 1000)

    def add(self, report: NodeHealthReport, received_s: float) -> None:
        """Add a node's report, which replaces its previous one."""
        self._reports[report.node_id] = received_s, report

    def successor(self) -> ReportAggregator:
        """Return an aggregator with the same reports, but without the history of an earlier term."""
        found = ReportAggregator()
        found._reports = dict(self._reports)
        return found

    def build(
        self,
        now_s: float,
        *,
        nodes: Iterable[ObservedNode],
        quorum: ObservedQuorum,
        partitions: ObservedPartitions,
        transactions: tuple[ObservedTransaction, ...],
        find_membership: Callable[[str], bool | None],
        lag_budget: int,
        find_lag_budget: Callable[[str], int],
    ) -> HealthFacts:
        """Return the facts about the cluster, from the reports and from what this node's image says."""
        nodes = tuple(nodes)
        members = {node.id for node in nodes}
        self._reports = {
            node_id: received
            for node_id, received in self._reports.items()
            if node_id in members and 0 <= now_s - received[0] <= REPORT_VALID_SECONDS
        }
        reports = [report for _, report in self._reports.values()]
        if all(node.id in self._reports for node in nodes if node.is_up):
            self._record_lags(now_s, reports, find_lag_budget)
        self._free_bytes.record(now_s, {each.node_id: each.disk_free_bytes for each in reports if each.disk_bytes})
        index, is_same = compare_state_hashes(reports)
        return HealthFacts(
            now_s=now_s,
            lag_budget=lag_budget,
            quorum=msgspec.structs.replace(quorum, is_same_state=is_same, compared_index=index),
            nodes=tuple(self._add_report(node) for node in nodes),
            partitions=partitions,
            isr_shrinks=tuple(_sum_isr_shrinks(reports)),
            groups=tuple(
                ObservedGroup(name, self._lags.series(name), find_membership(name), find_lag_budget(name))
                for name in self._lags
            ),
            transactions=transactions,
            disks=tuple(
                ObservedDisk(each.node_id, each.disk_bytes, self._free_bytes.series(each.node_id))
                for each in reports
                if each.disk_bytes
            ),
            clocks=tuple(
                ObservedClock(each.node_id, each.clock_ahead_s, each.clock_uncertainty_s)
                for each in reports
                if each.clock_ahead_s is not None
            ),
            stalls=tuple(ObservedStalls(each.node_id, each.stalls) for each in reports if each.stalls is not None),
            certificates=tuple(certificate for each in reports for certificate in each.certificates),
            pipelines=tuple(self._observe_pipelines(reports)),
        )

    def _record_lags(
        self, now_s: float, reports: Iterable[NodeHealthReport], find_lag_budget: Callable[[str], int]
    ) -> None:
        """Record the lags. If a node's part of them were missing, it would look as if they grew when it is back."""
        totals: dict[str, int] = defaultdict(int)
        pipelines: dict[tuple[str, str], float] = {}
        for report in reports:
            for group, lag in report.group_lags.items():
                totals[group] += lag
            for each in report.pipelines or ():
                if each.lag is not None:
                    pipelines[each.pipeline, each.topic] = each.lag
        self._lags.record(now_s, select_largest_lags(totals, find_lag_budget, TRACKED_GROUPS_MAX))
        self._pipeline_lags.record(now_s, pipelines)

    def _add_report(self, node: ObservedNode) -> ObservedNode:
        if node.id not in self._reports:
            return node
        report = self._reports[node.id][1]
        is_fenced = report.is_fenced and node.status == "online"
        return msgspec.structs.replace(node, damaged=report.damaged, status="fenced" if is_fenced else node.status)

    def _observe_pipelines(self, reports: Iterable[NodeHealthReport]) -> Iterator[ObservedPipeline]:
        for each in (pipeline for report in reports for pipeline in report.pipelines or ()):
            yield ObservedPipeline(
                each.pipeline,
                each.topic,
                self._pipeline_lags.series((each.pipeline, each.topic)),
                each.is_stopped,
                each.is_failing,
                each.last_error,
                each.reported_at_s,
            )


def _sum_isr_shrinks(reports: Iterable[NodeHealthReport]) -> Iterator[ObservedIsrShrinks]:
    totals: dict[str, int] = defaultdict(int)
    for report in reports:
        for partition, count in report.isr_shrinks.items():
            totals[partition] += count
    for partition, count in sorted(totals.items(), key=lambda item: -item[1]):
        yield ObservedIsrShrinks(partition, count)


def compare_state_hashes(reports: Iterable[NodeHealthReport]) -> tuple[int | None, bool | None]:
    """Return the highest index for which all nodes report a state hash, and whether the hashes are the same."""
    known = [report.state_hashes for report in reports if report.state_hashes]
    common = set.intersection(*(set(each) for each in known)) if len(known) > 1 else set()
    if not common:
        return None, None
    index = max(common)
    return index, len({each[index] for each in known}) == 1
