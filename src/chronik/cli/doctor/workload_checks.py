"""Checks of a cluster's partitions, groups and transactions. Each check is a pure function from facts to findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from chronik.cli.doctor.cluster_checks import ClusterCheck
from chronik.cli.doctor.findings import DoctorFinding, abbreviate_names, error_finding, note_finding, warning_finding
from chronik.cli.monitoring.facts import REBALANCING, ClusterFacts
from chronik.wording import pluralize

LAG_WARNING: Final = 10_000
"""Lag in records above which a group is reported."""

REBALANCING_WARNING_S: Final = 4.0
"""Seconds after which a rebalance counts as stuck: by then all members have normally rejoined."""

UNEVEN_SHARE: Final = 0.25
UNEVEN_LEAST: Final = 3
"""Minimum difference in the number of leaders between two nodes that is reported."""

TRANSACTION_WARNED_S: Final = 900.0


def check_offline_partitions(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    leaderless = [each for each in facts.partitions if each.leader < 0]
    if leaderless:
        holders = sorted({replica for each in leaderless for replica in each.isr or each.replicas})
        yield error_finding(
            "offline-partitions",
            f"{pluralize(len(leaderless), 'partition')} without a leader: {abbreviate_names(leaderless)}",
            "They are unavailable until an in-sync replica is back",
            f"start {', '.join(f'node {node_id}' for node_id in holders)}; if they are lost for good: chronik topics "
            "elect-leaders --unclean",
        )


def check_min_in_sync_replicas(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    short = [each for each in facts.partitions if each.leader >= 0 and len(each.isr) < (each.min_in_sync or 0)]
    if short:
        yield error_finding(
            "below-min-insync",
            f"{pluralize(len(short), 'partition')} with fewer in-sync replicas than min.insync.replicas: "
            f"{abbreviate_names(short)}",
            "Produce requests with acks=all fail with NOT_ENOUGH_REPLICAS",
            _suggest_start(facts, {node for each in short for node in set(each.replicas) - set(each.isr)}),
        )


def check_under_replicated_partitions(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    """Report under-replicated partitions, except for those being reassigned."""
    moving = set(facts.moving)
    short = [
        each
        for each in facts.partitions
        if len(each.isr) < len(each.replicas)
        and each.leader >= 0
        and len(each.isr) >= (each.min_in_sync or 0)
        and str(each) not in moving
    ]
    short.sort(key=lambda each: each.is_internal)  # name partitions of user topics first
    if short:
        yield warning_finding(
            "under-replicated",
            f"{pluralize(len(short), 'partition')} with out-of-sync replicas: {abbreviate_names(short)}",
            "One more failure may make them unavailable or lose records",
            _suggest_start(facts, {node for each in short for node in set(each.replicas) - set(each.isr)}),
        )


def _suggest_start(facts: ClusterFacts, missing: set[int]) -> str:
    named = ", ".join(f"node {node_id}" for node_id in sorted(missing))
    known = {node.id: node for node in facts.nodes}
    down = [node_id for node_id in missing if node_id not in known or known[node_id].status in ("down", "fenced")]
    if down:
        return f"start {named}, and wait: chronik cluster ok-to-stop NODE reports when all replicas are in sync"
    return f"check why {named} cannot keep up: its log, its disk and its load"


def check_reassignments(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    if facts.moving:
        yield note_finding(
            "moving-partitions",
            f"{pluralize(len(facts.moving), 'partition')} being reassigned to other nodes: "
            f"{abbreviate_names(facts.moving)}",
            "Reassignments are normal and temporary",
            "chronik topics reassignments lists them; chronik cluster rebalance --cancel cancels them",
        )


def check_leader_balance(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    """Report an uneven distribution of leaders; suggest an election if preferred leaders are more even."""
    online = [node.id for node in facts.nodes if node.status == "online"]
    if len(online) < 2 or facts.moving:
        return
    leads = Counter(each.leader for each in facts.partitions if each.leader in online)
    most, least = (choose(online, key=lambda node_id: leads[node_id]) for choose in (max, min))
    difference = leads[most] - leads[least]
    if difference < UNEVEN_LEAST or difference <= UNEVEN_SHARE * leads.total() / len(online):
        return
    preferred = Counter(each.replicas[0] for each in facts.partitions if each.replicas)
    displaced = sum(
        1
        for each in facts.partitions
        if each.leader >= 0
        and each.replicas[0] in online
        and each.replicas[0] in each.isr
        and each.leader != each.replicas[0]
    )
    preferred_difference = max(preferred[node_id] for node_id in online) - min(preferred[node_id] for node_id in online)
    what = f"node {most} leads {pluralize(leads[most], 'partition')}, node {least} leads {leads[least]}"
    why = "Leaders serve all produce requests and most fetch requests, so one node has more load than another"
    if displaced and preferred_difference < difference:
        why += ". Preferred leaders are elected automatically within minutes after a node restarts"
        yield note_finding("uneven-leaders", what, why, "chronik topics elect-leaders elects them immediately")
    else:
        yield warning_finding("uneven-leaders", what, why, "chronik cluster rebalance")


def check_group_lag(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for group in sorted(facts.groups, key=lambda group: -(group.lag or 0)):
        if group.lag is None or group.lag < LAG_WARNING:
            continue
        is_read = group.state not in ("Empty", "Dead", "")
        yield (warning_finding if is_read else note_finding)(
            "lagging-group",
            f"group {group.name} has a lag of {pluralize(group.lag, 'record')}"
            + ("" if is_read or not group.state else ", and no members"),
            "Records that retention deletes before the group reads them are lost to it",
            f"check chronik groups describe {group.name}; add consumers, at most one per partition"
            if is_read
            else f"start its consumers; if the group is not needed: chronik groups delete {group.name}",
        )


def check_rebalancing_groups(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for group in facts.groups:
        if group.state in REBALANCING and group.rebalancing_for_s >= REBALANCING_WARNING_S:
            yield warning_finding(
                "rebalancing-group",
                f"group {group.name} has been rebalancing for at least {group.rebalancing_for_s:.0f} s ({group.state})",
                "Its members cannot fetch. One exceeds max.poll.interval.ms, or keeps leaving and rejoining",
                f"chronik groups describe {group.name} lists its members; use smaller batches or longer timeouts",
            )


def check_hanging_transactions(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for each in facts.transactions:
        if each.is_hanging:
            topic, _, index = each.partitions[0].rpartition("-")
            yield error_finding(
                "hanging-transaction",
                f"a transaction of {each.name} has been hanging in {abbreviate_names(each.partitions)} for "
                f"{_format_minutes(each.open_for_s)}: no coordinator knows it",
                "Consumers with isolation.level=read_committed are blocked there",
                f"chronik transactions abort --topic {topic} --partition {index} --start-offset {each.start_offset}",
            )


def check_long_transactions(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for each in facts.transactions:
        limit = max(TRANSACTION_WARNED_S, each.timeout_s or 0.0)
        if not each.is_hanging and each.open_for_s > limit:
            yield warning_finding(
                "long-transaction",
                f"transaction {each.name} is open for {_format_minutes(each.open_for_s)} in "
                f"{abbreviate_names(each.partitions)}",
                "Consumers with isolation.level=read_committed are blocked there",
                f"chronik transactions describe {each.name}; stop its producer, so that the transaction times out",
            )


def _format_minutes(seconds: float) -> str:
    return pluralize(round(seconds / 60), "minute")


WORKLOAD_CHECKS: Final[tuple[ClusterCheck, ...]] = (
    check_offline_partitions,
    check_min_in_sync_replicas,
    check_under_replicated_partitions,
    check_reassignments,
    check_leader_balance,
    check_group_lag,
    check_rebalancing_groups,
    check_hanging_transactions,
    check_long_transactions,
)
