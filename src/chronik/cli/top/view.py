"""The contents of a frame: the facts of a cluster, and rates relative to the previous facts. Free of I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from chronik.cli.doctor.checks import run_cluster_checks
from chronik.cli.doctor.findings import DoctorFinding, Severity, sort_by_severity
from chronik.cli.doctor.health_checks import check_health
from chronik.cli.monitoring.facts import ClusterFacts, GroupFacts, NodeFacts, PartitionFacts

SECONDS_MIN: Final = 0.05
"""Minimum interval in seconds between two collections of facts from which rates are computed."""


class NodeRow(msgspec.Struct, frozen=True):
    node: NodeFacts
    requests_s: float | None = None
    in_bytes_s: float | None = None
    out_bytes_s: float | None = None
    written_bytes_s: float | None = None
    """Growth of the node's logs in bytes per second, available even without the node's metrics."""


class TopicRow(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    replicas: int
    bytes: int | None
    """Total size of the topic's partitions in bytes, counting one replica of each."""
    records_s: float | None
    written_bytes_s: float | None
    under_replicated: int
    offline: int
    is_internal: bool


class GroupRow(msgspec.Struct, frozen=True):
    group: GroupFacts
    lag_change_s: float | None = None
    """Change of the lag in records per second; negative while the group catches up."""


class TopView(msgspec.Struct, frozen=True):
    facts: ClusterFacts
    seconds: float | None
    """Interval in seconds over which the view's rates are measured, or None without previous facts."""
    nodes: tuple[NodeRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    attention: tuple[DoctorFinding, ...]

    @property
    def records_s(self) -> float | None:
        return sum_known(topic.records_s for topic in self.topics)

    @property
    def written_bytes_s(self) -> float | None:
        return sum_known(topic.written_bytes_s for topic in self.topics)

    @property
    def requests_s(self) -> float | None:
        return sum_known(node.requests_s for node in self.nodes)


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values, or None if all values are None."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def build_view(now: ClusterFacts, before: ClusterFacts | None) -> TopView:
    seconds = None if before is None else now.monotonic_s - before.monotonic_s
    if seconds is not None and seconds < SECONDS_MIN:
        before, seconds = None, None
    rates = _RowBuilder(before, seconds)
    topics = {each.topic: None for each in now.partitions}
    rows = [rates.topic(name, parts) for name, parts in _group_by_topic(now.partitions, topics).items()]
    return TopView(
        now,
        seconds,
        tuple(rates.node(node) for node in now.nodes),
        tuple(sorted(rows, key=lambda row: (-(row.records_s or 0.0), -(row.bytes or 0), row.name))),
        tuple(
            sorted(
                (rates.group(group) for group in now.groups), key=lambda row: (-(row.group.lag or 0), row.group.name)
            )
        ),
        tuple(_find_problems(now)),
    )


def _find_problems(facts: ClusterFacts) -> Iterable[DoctorFinding]:
    """Return all problems of the cluster, and the doctor's other findings that are more than notes."""
    health = {finding.what for finding in check_health(facts)}
    for finding in sort_by_severity(run_cluster_checks(facts)):
        if finding.severity > Severity.NOTE or finding.what in health:
            yield finding


def _group_by_topic(
    partitions: Iterable[PartitionFacts], topics: Mapping[str, None]
) -> dict[str, list[PartitionFacts]]:
    found: dict[str, list[PartitionFacts]] = {name: [] for name in topics}
    for each in partitions:
        found[each.topic].append(each)
    return found


class _RowBuilder:
    def __init__(self, before: ClusterFacts | None, seconds: float | None) -> None:
        self._seconds = seconds
        self._nodes = {node.id: node for node in before.nodes} if before is not None else {}
        self._partitions = {(each.topic, each.index): each for each in before.partitions} if before is not None else {}
        self._groups = {group.name: group for group in before.groups} if before is not None else {}

    def node(self, node: NodeFacts) -> NodeRow:
        before = self._nodes.get(node.id)
        if before is None:
            return NodeRow(node)
        return NodeRow(
            node,
            self._rate(before.requests, node.requests),
            self._rate(before.bytes_in, node.bytes_in),
            self._rate(before.bytes_out, node.bytes_out),
            self._rate(before.log_bytes, node.log_bytes),
        )

    def topic(self, name: str, partitions: list[PartitionFacts]) -> TopicRow:
        sizes = [each.bytes for each in partitions if each.bytes is not None]
        records, written = [], []
        for each in partitions:
            before = self._partitions.get((each.topic, each.index))
            if before is not None:
                records.append(self._rate(before.end, each.end))
                written.append(self._rate(before.bytes, each.bytes))
        return TopicRow(
            name,
            len(partitions),
            max((len(each.replicas) for each in partitions), default=0),
            sum(sizes) if sizes else None,
            sum_known(records),
            sum_known(written),
            sum(len(each.isr) < len(each.replicas) for each in partitions),
            sum(each.leader < 0 for each in partitions),
            any(each.is_internal for each in partitions),
        )

    def group(self, group: GroupFacts) -> GroupRow:
        before = self._groups.get(group.name)
        if before is None or before.lag is None or group.lag is None or not self._seconds:
            return GroupRow(group)
        return GroupRow(group, (group.lag - before.lag) / self._seconds)

    def _rate(self, before: int | None, now: int | None) -> float | None:
        """Return the change of a counter per second, or None if it has decreased because of a restart."""
        if before is None or now is None or not self._seconds or now < before:
            return None
        return (now - before) / self._seconds
