"""The health checks: each is a pure function from facts to conditions.

A condition has two thresholds: one above which it becomes a problem, and a lower one below which an existing problem
ends. Between them, a problem stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from chronik.health.facts import HealthFacts, ObservedDisk, ObservedGroup, ObservedNode, PartitionSet, Series
from chronik.health.history import measure_growth, predict_seconds_to_zero
from chronik.health.problems import ProblemSeverity
from chronik.wording import pluralize

INFO, WARNING, CRITICAL = ProblemSeverity.INFO, ProblemSeverity.WARNING, ProblemSeverity.CRITICAL

HOLD_RATIO: Final = 0.8
"""The lower threshold as a part of the upper one: a value must fall by a fifth before its problem ends."""

SUBJECTS_MAX: Final = 50
"""Maximum number of conditions per check. The remaining ones are summed up in one condition."""

LAG_WINDOW_S: Final = 300.0
LAG_SPAN_MIN_S: Final = 60.0
"""Minimum time in seconds for which a lag must be known before the check decides whether it grows."""
LAG_GROWTH_RATIO: Final = 0.01
"""Minimum growth of a lag within its window, as a part of the lag."""

TRANSACTION_S: Final = 900.0
"""Time in seconds after which an open transaction is a problem, unless its own timeout is longer."""

FREE_WARNING_RATIO: Final = 0.10
FREE_CRITICAL_RATIO: Final = 0.03
DISK_WINDOW_S: Final = 3600.0
DISK_SPAN_MIN_S: Final = 600.0
FULL_WARNING_S: Final = 86_400.0
FULL_CRITICAL_S: Final = 3600.0
"""Time in seconds until a disk is full, below which its problem is critical."""

CLOCK_WARNING_S: Final = 0.5
CLOCK_CRITICAL_S: Final = 30.0

STALL_S: Final = 1.0
"""Minimum duration in seconds of the event-loop stalls that are counted."""
STALL_WINDOW_S: Final = 300.0
STALLS_MAX: Final = 10

ISR_WINDOW_S: Final = 600.0
ISR_SHRINKS_MAX: Final = 5

CERTIFICATE_WARNING_DAYS: Final = 30
DAY_S: Final = 86_400.0
MIB: Final = 1 << 20
GIB: Final = 1 << 30

PIPELINE_SILENT_S: Final = 30.0


class HealthCondition(msgspec.Struct, frozen=True):
    """A condition that a check has found."""

    kind: str
    subject: str
    severity: ProblemSeverity | None
    """The severity by the upper thresholds; None if the condition is too weak to become a problem."""
    message: str
    action: str
    held_severity: ProblemSeverity | None = None
    """The severity by the lower thresholds: an existing problem of at most this severity keeps its severity."""


HealthCheck = Callable[[HealthFacts], Iterator[HealthCondition]]


def grade(value: float, warning: float, critical: float | None = None) -> tuple[ProblemSeverity | None, ...]:
    """Return the severities of a value by its upper and its lower thresholds."""

    def by(ratio: float) -> ProblemSeverity | None:
        if critical is not None and value >= critical * ratio:
            return CRITICAL
        return WARNING if value >= warning * ratio else None

    return by(1.0), by(HOLD_RATIO)


def check_quorum(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find a missing controller, and a quorum without a voter to spare."""
    quorum = facts.quorum
    if quorum.is_isolated or not quorum.has_controller:
        yield HealthCondition(
            "no-leader",
            "",
            CRITICAL,
            "no majority of nodes responds: the cluster cannot be changed, and this view may be outdated"
            if quorum.is_isolated
            else "the cluster has no controller: the voters have elected no leader",
            "start the voters that are down; observers have no vote",
        )
    voters = [node for node in facts.nodes if node.is_voter and node.status != "absent"]
    down = [node.id for node in voters if not node.is_up]
    left = len(voters) - len(down)
    if down and left <= len(voters) // 2 + 1:
        yield HealthCondition(
            "no-voter-to-spare",
            "",
            WARNING,
            f"{left} of {pluralize(len(voters), 'voter')} {'are' if left != 1 else 'is'} up, "
            + ("the minimum for a majority" if left == len(voters) // 2 + 1 else "which is no majority"),
            f"start {_list_nodes(down)} before any other node is stopped",
        )


def check_metadata(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find nodes that have diverged."""
    if facts.quorum.is_same_state is False:
        yield HealthCondition(
            "diverged-states",
            "",
            CRITICAL,
            f"nodes have different metadata at index {facts.quorum.compared_index}",
            "keep data directories and logs, stop the node that differs from the majority, and report the bug",
        )


def check_nodes(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find nodes that have stopped, do not respond, are fenced, have not joined or are drained."""
    for node in facts.nodes:
        yield from _check_node(node)


def _check_node(node: ObservedNode) -> Iterator[HealthCondition]:
    subject = str(node.id)
    if node.status == "absent":
        message = f"node {node.id} was added but has not joined yet"
        yield HealthCondition("absent-node", subject, INFO, message, "start it: chronik start --config FILE", INFO)
    elif node.is_unresponsive:
        yield HealthCondition(
            "unresponsive-node",
            subject,
            CRITICAL,
            f"node {node.id} is unresponsive: {node.unreachable_why}",
            "check the state of its process (ps, top): kill -CONT PID continues a stopped process; otherwise "
            "restart the node: chronik start --config FILE",
        )
    elif node.unreachable_why is not None or node.status == "offline":
        yield HealthCondition(
            "unreachable-node",
            subject,
            CRITICAL,
            f"node {node.id} is unreachable at {node.unreachable_why}"
            if node.unreachable_why
            else f"node {node.id} does not respond",
            "check whether its process runs, and the end of its log; then start it: chronik start --config FILE",
        )
    elif node.status == "fenced":
        yield HealthCondition(
            "fenced-node",
            subject,
            CRITICAL,
            f"node {node.id} is running but fenced: the controller gets no heartbeats, so it serves no data",
            "check its log, the load of its machine, and the connections between the nodes' Raft ports",
        )
    elif node.is_drained or node.status == "maintenance":
        message, action = f"node {node.id} is drained", f"chronik cluster undrain {node.id}"
        yield HealthCondition("drained-node", subject, INFO, message, action, INFO)
    if node.damaged:
        yield HealthCondition(
            "damaged-logs",
            subject,
            CRITICAL,
            f"node {node.id} has lost records on its disk: {join_names(node.damaged)}",
            "restore the files, or wait for replication; if they are lost: chronik topics begin-anew TOPIC",
        )


def check_partitions(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find partitions that are offline, under min.insync.replicas or under-replicated."""
    total = facts.partitions.total
    offline = facts.partitions.offline
    if offline.count:
        yield HealthCondition(
            "offline-partitions",
            "",
            CRITICAL,
            _count(offline, total, "without a leader"),
            f"start {_list_nodes(offline.missing_nodes) or 'the nodes of their replicas'}; if they are lost for good: "
            "chronik topics elect-leaders --unclean",
        )
    short = facts.partitions.under_min_isr
    if short.count:
        message = _count(short, total, "with fewer in-sync replicas than min.insync.replicas")
        yield HealthCondition("below-min-insync", "", CRITICAL, message, _suggest_start(facts, short))
    behind = facts.partitions.under_replicated
    if behind.count:
        message = _count(behind, total, "under-replicated")
        yield HealthCondition("under-replicated", "", WARNING, message, _suggest_start(facts, behind))


def _count(partitions: PartitionSet, total: int, what: str) -> str:
    named = join_names(partitions.names, partitions.count)
    return f"{partitions.count:,} of {pluralize(total, 'partition')} {what}: {named}"


def _suggest_start(facts: HealthFacts, partitions: PartitionSet) -> str:
    named = _list_nodes(partitions.missing_nodes)
    known = {node.id: node for node in facts.nodes}
    if any(node_id not in known or not known[node_id].is_up for node_id in partitions.missing_nodes):
        return f"start {named}, and wait: chronik cluster ok-to-stop NODE reports when all replicas are in sync"
    return f"check why {named} cannot keep up: its log, its disk and its load"


def check_isr(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find partitions whose replicas leave and join the ISR again and again."""
    for each in facts.isr_shrinks:
        severity, held = grade(each.shrinks, ISR_SHRINKS_MAX)
        if held is not None:
            yield HealthCondition(
                "isr-flapping",
                each.partition,
                severity,
                f"replicas of {each.partition} have left the ISR {pluralize(each.shrinks, 'time')} within "
                f"{ISR_WINDOW_S / 60:.0f} minutes",
                "check the disks, the load and the network of the nodes that host its replicas: chronik topics "
                f"describe {each.partition.rpartition('-')[0]}",
                held,
            )


def check_groups(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find groups whose lag exceeds the budget: growing, steady, or of a group that has stopped."""
    for group in sorted(facts.groups, key=lambda each: -each.lag[-1].value if each.lag else 0.0):
        budget = facts.lag_budget if group.lag_budget is None else group.lag_budget
        severity, held = grade(group.lag[-1].value if group.lag else 0.0, budget)
        if held is not None:
            yield from _check_group(group, facts, is_over_budget=severity is not None)


def _check_group(group: ObservedGroup, facts: HealthFacts, *, is_over_budget: bool) -> Iterator[HealthCondition]:
    name, lag = group.name, int(group.lag[-1].value)
    records, is_stopped = pluralize(lag, "record"), group.has_members is False
    growth = measure_growth(group.lag, LAG_SPAN_MIN_S)
    start = f"start its consumers; if the group is not needed: chronik groups delete {name}"
    add = f"check chronik groups describe {name}; add consumers, at most one per partition"
    is_growing = _is_growing(growth, lag) if facts.has_history else not is_stopped
    if is_growing is not False:
        raised = is_growing and is_over_budget
        message = f"group {name} has a lag of {records}"
        if growth is not None:
            message += f", which has grown by {int(growth):,} within {_format_span(group.lag)}"
        if is_stopped:
            message += ", and no members"
        action = start if is_stopped else add
        yield HealthCondition("lagging-group", name, WARNING if raised else None, message, action, WARNING)
    info = INFO if is_over_budget else None
    if is_stopped:
        message = f"group {name} has no members and a lag of {records}"
        yield HealthCondition("stopped-group", name, info, message, start, INFO)
    elif not (is_growing and not facts.has_history):
        left_s = None if growth is None or growth >= 0 else predict_seconds_to_zero(group.lag, LAG_SPAN_MIN_S)
        trend = "" if growth is None else ", which does not shrink"
        if left_s is not None:
            trend = f", and catches up in about {format_duration(left_s)}"
        yield HealthCondition("steady-lag", name, info, f"group {name} has a lag of {records}{trend}", add, INFO)


def _is_growing(growth: float | None, lag: float) -> bool | None:
    """Return whether a lag is growing; None if that neither raises a problem nor ends one, or is not known yet."""
    if growth is None:
        return None
    if growth <= 0:
        return False
    return True if growth >= LAG_GROWTH_RATIO * lag else None


def check_transactions(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find transactions that are open beyond their time limit."""
    for each in sorted(facts.transactions, key=lambda each: each.open_since_s):
        open_s = facts.now_s - each.open_since_s
        if open_s > max(TRANSACTION_S, each.timeout_s or 0.0):
            where = f" in {join_names(each.partitions)}" if each.partitions else ""
            yield HealthCondition(
                "long-transaction",
                each.transactional_id,
                WARNING,
                f"transaction {each.transactional_id} is open for {pluralize(round(open_s / 60), 'minute')}{where}",
                f"chronik transactions describe {each.transactional_id}; stop its producer, so that the transaction "
                "times out",
            )


def _format_size(size_bytes: float) -> str:
    """Return a size with a unit in which small sizes are not rounded to zero."""
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.1f} MiB"


def check_disks(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find disks that are almost full, or that will be full soon at the current rate."""
    action = (
        "reduce retention.ms or retention.bytes (chronik topics alter TOPIC -c …), or add a node and run "
        "chronik cluster rebalance"
    )
    for disk in facts.disks:
        if not disk.total_bytes or not disk.free_bytes:
            continue
        free, subject = disk.free_bytes[-1].value, str(disk.node_id)
        ratio = free / disk.total_bytes
        if ratio < FREE_WARNING_RATIO / HOLD_RATIO:
            message = f"node {disk.node_id} has {_format_size(free)} of free disk space ({ratio:.0%})"
            yield HealthCondition("full-disk", subject, _grade_free(ratio), message, action, _grade_free(ratio, True))
        yield from _check_trend(disk, free, action)


def _check_trend(disk: ObservedDisk, free: float, action: str) -> Iterator[HealthCondition]:
    left_s = predict_seconds_to_zero(disk.free_bytes, DISK_SPAN_MIN_S)
    if left_s is not None and left_s < FULL_WARNING_S / HOLD_RATIO:
        message = f"the disk of node {disk.node_id} is full in about {format_duration(left_s)} at the current rate"
        message += f" ({_format_size(free)} left)"
        raised = CRITICAL if left_s < FULL_CRITICAL_S else WARNING if left_s < FULL_WARNING_S else None
        held = CRITICAL if left_s < FULL_CRITICAL_S / HOLD_RATIO else WARNING
        yield HealthCondition("filling-disk", str(disk.node_id), raised, message, action, held)


def _grade_free(ratio: float, is_held: bool = False) -> ProblemSeverity | None:
    scale = 1 / HOLD_RATIO if is_held else 1.0
    if ratio < FREE_CRITICAL_RATIO * scale:
        return CRITICAL
    return WARNING if ratio < FREE_WARNING_RATIO * scale else None


def check_clocks(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find clock skew between nodes that exceeds the uncertainty of its measurement."""
    if len(facts.clocks) < 2:
        return
    ahead = max(facts.clocks, key=lambda each: each.ahead_s)
    behind = min(facts.clocks, key=lambda each: each.ahead_s)
    skew_s = ahead.ahead_s - behind.ahead_s
    severity, held = grade(skew_s - (ahead.uncertainty_s + behind.uncertainty_s) / 2, CLOCK_WARNING_S, CLOCK_CRITICAL_S)
    if held is not None:
        yield HealthCondition(
            "different-clocks",
            "",
            severity,
            f"the clock of node {ahead.node_id} is {skew_s:.1f} s ahead of the clock of node {behind.node_id}",
            "synchronize the clocks of all machines with chrony or systemd-timesyncd: timedatectl set-ntp true",
            held,
        )


def check_stalls(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find nodes whose event loop stalls often."""
    for each in facts.stalls:
        severity, held = grade(each.stalls, STALLS_MAX)
        if held is not None:
            yield HealthCondition(
                "event-loop-stalls",
                str(each.node_id),
                severity,
                f"the event loop of node {each.node_id} has stalled {pluralize(each.stalls, 'time')} for over "
                f"{STALL_S:g} s within {STALL_WINDOW_S / 60:.0f} minutes",
                "check the load of its machine (other processes, swapping, CPU limits); its log names the causes",
                held,
            )


def check_certificates(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find certificates that have expired or expire soon."""
    for each in sorted(facts.certificates, key=lambda each: each.not_after_s):
        left_s = each.not_after_s - facts.now_s
        days = int(abs(left_s) / DAY_S)
        what = f"the certificate of {each.subject} in {each.where}"
        action = "replace the file; nodes reload it within a minute, without a restart"
        if left_s < 0:
            message = f"{what} expired {pluralize(days, 'day')} ago"
            yield HealthCondition("expired-certificate", each.where, CRITICAL, message, action)
        elif days < CERTIFICATE_WARNING_DAYS:
            message = f"{what} expires in {pluralize(days, 'day')}"
            yield HealthCondition("expiring-certificate", each.where, WARNING, message, action)


def check_pipelines(facts: HealthFacts) -> Iterator[HealthCondition]:
    """Find pipelines that fail, lag or do not report."""
    for each in facts.pipelines:
        if each.is_stopped:
            continue
        subject = f"{each.pipeline}/{each.topic}"
        silent_s = 0.0 if each.reported_at_s is None else facts.now_s - each.reported_at_s
        if silent_s > PIPELINE_SILENT_S:
            yield HealthCondition(
                "silent-pipeline",
                subject,
                WARNING,
                f"the driver of pipeline {each.pipeline} has not reported topic {each.topic} for "
                f"{format_duration(silent_s)}",
                "check whether its process runs, and start it: chronik pipeline run",
            )
            continue
        if each.is_failing:
            yield HealthCondition(
                "failing-pipeline",
                subject,
                WARNING,
                f"pipeline {each.pipeline} fails to write topic {each.topic}: {each.last_error or 'unknown error'}",
                "chronik pipeline status shows the error; the driver retries until it succeeds",
            )
        lag = each.lag[-1].value if each.lag else 0.0
        severity, held = grade(lag, facts.lag_budget)
        growth = measure_growth(each.lag, LAG_SPAN_MIN_S)
        is_growing = _is_growing(growth, lag)
        if held is not None and is_growing is not False:
            yield HealthCondition(
                "lagging-pipeline",
                subject,
                severity if is_growing else None,
                f"pipeline {each.pipeline} is {pluralize(int(lag), 'record')} behind topic {each.topic}"
                + ("" if growth is None else f", {int(growth):,} more than {_format_span(each.lag)} ago"),
                "give the driver more cores, or run it on a Spark cluster; chronik pipeline status shows its rate",
                held,
            )


CHECKS: Final[tuple[HealthCheck, ...]] = (
    check_quorum,
    check_metadata,
    check_nodes,
    check_partitions,
    check_isr,
    check_groups,
    check_transactions,
    check_disks,
    check_clocks,
    check_stalls,
    check_certificates,
    check_pipelines,
)


def find_conditions(facts: HealthFacts) -> list[HealthCondition]:
    """Run all checks. Of each kind, at most SUBJECTS_MAX conditions are returned, and one that sums up the others."""
    by_kind: dict[str, list[HealthCondition]] = defaultdict(list)
    for check in CHECKS:
        for condition in check(facts):
            by_kind[condition.kind].append(condition)
    return [each for conditions in by_kind.values() for each in _limit_conditions(conditions)]


def _limit_conditions(conditions: list[HealthCondition]) -> list[HealthCondition]:
    shown, rest = conditions[:SUBJECTS_MAX], [each for each in conditions[SUBJECTS_MAX:] if each.severity is not None]
    if not rest:
        return shown
    first = rest[0]
    message = f"{pluralize(len(rest), 'more problem')} of this kind, such as: {first.message}"
    worst = max((each.severity for each in rest if each.severity is not None), default=None)
    return [*shown, HealthCondition(first.kind, "", worst, message, first.action, worst)]


def join_names(names: Iterable[str], count: int | None = None) -> str:
    """Join the first names of a set with `count` members: `a, b, c and 7 more`."""
    listed = list(names)
    shown = listed[:5]
    more = (len(listed) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _list_nodes(ids: Iterable[int]) -> str:
    return ", ".join(f"node {node_id}" for node_id in sorted(ids))


def _format_span(series: Series) -> str:
    return format_duration(series[-1].at_s - series[0].at_s)


def format_duration(seconds: float) -> str:
    """Format a duration in its largest suitable unit: 40 seconds, 5 minutes, 3 hours, 2 days."""
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return pluralize(round(seconds / size), unit)
    return pluralize(round(seconds), "second")
