"""Checks of a cluster: its nodes, partitions, groups and transactions.

Each check is a pure function from facts to findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from chronik.cli.doctor.findings import (
    UNCOLLECTED,
    DoctorFinding,
    abbreviate_names,
    error_finding,
    note_finding,
    warning_finding,
)
from chronik.cli.doctor.health_checks import check_health
from chronik.cli.monitoring.facts import REBALANCING, ClusterFacts, NodeFacts
from chronik.wording import pluralize

ClusterCheck = Callable[[ClusterFacts], Iterator[DoctorFinding]]


SLOW_SYNC_S: Final = 1.0


REBALANCING_WARNING_S: Final = 4.0
"""Time in seconds after which the doctor considers a group's rebalance stuck.

Members normally rejoin faster.
"""

UNEVEN_SHARE: Final = 0.25
UNEVEN_LEAST: Final = 3
"""Minimum difference in led partitions between two nodes that the doctor reports as uneven."""


def check_isolated_broker(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    if facts.note:
        yield error_finding(
            "cut-off",
            f"the queried broker reports: {facts.note}",
            "Its view of the cluster may be stale",
            "query another broker with -b, and check why this one does not reach the others",
        )


def check_slow_disks(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for node in facts.nodes:
        if node.longest_sync_s is not None and node.longest_sync_s >= SLOW_SYNC_S:
            yield note_finding(
                "slow-disk",
                f"the slowest disk sync of node {node.id} took {node.longest_sync_s:.1f} s"
                + (f", and {pluralize(node.slow_syncs, 'sync')} took over 50 ms" if node.slow_syncs else ""),
                "Produce requests with acks=all wait for disk syncs",
                "use a faster disk, or one disk per node; see Disk problems in docs/operate/operations.md",
            )


def check_feature_level(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    supported = [node.levels[1] for node in facts.nodes if node.levels is not None]
    if facts.level is not None and supported and len(supported) == len(facts.nodes) and min(supported) > facts.level:
        yield warning_finding(
            "level-not-raised",
            f"all nodes support feature level {min(supported)}, but the cluster is at level {facts.level}",
            "Features of the newer version are disabled until the level is raised, which cannot be undone",
            "chronik cluster upgrade",
        )


def check_mixed_versions(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    versions = sorted({node.version for node in facts.nodes if node.version is not None})
    if len(versions) > 1:
        yield note_finding(
            "mixed-versions",
            f"nodes run different versions: {', '.join(versions)}",
            "That is normal during a rolling upgrade, but should not last",
            "upgrade the other nodes (docs/operate/upgrading.md)",
        )


def check_voter_count(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    voters = [node for node in facts.nodes if node.is_voter]
    if len(voters) == 2 or (len(voters) == 1 and len(facts.nodes) > 1):
        candidates = [node.id for node in facts.nodes if node.is_voter is False]
        yield warning_finding(
            "few-voters",
            f"{len(voters)} of {pluralize(len(facts.nodes), 'node')} "
            f"{'are voters' if len(voters) > 1 else 'is a voter'}",
            "If one voter stops, the metadata cannot change until it is back; three voters tolerate one failure",
            f"chronik cluster promote {candidates[0]}" if candidates else "chronik cluster add-node",
        )
    elif len(voters) and len(voters) % 2 == 0:
        yield note_finding(
            "even-voters",
            f"the cluster has {pluralize(len(voters), 'voter')}",
            f"An even number of voters tolerates no more failures than {len(voters) - 1} voters",
            f"chronik cluster demote {max(node.id for node in voters if node.role != 'leader')}, or promote one more",
        )


def check_voter_racks(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    voters = [node for node in facts.nodes if node.is_voter]
    racks = {node.rack for node in voters}
    candidates_elsewhere = _find_observers_in_other_racks(facts, racks)
    hosts = {node.kafka.rpartition(":")[0] for node in facts.nodes}
    if len(hosts) == 1 and not candidates_elsewhere:
        return  # all nodes run on one machine, so racks make no difference
    if len(voters) > 1 and len(racks) == 1 and None not in racks:
        (rack,) = racks
        yield warning_finding(
            "one-rack",
            f"all {len(voters)} voters are in rack {rack}",
            "If that rack fails, the metadata cannot change, even if nodes in other racks are up",
            f"chronik cluster promote {candidates_elsewhere[0].id}, and demote a voter in rack {rack}"
            if candidates_elsewhere
            else "add nodes in other racks (chronik cluster add-node) and promote them",
        )


def _find_observers_in_other_racks(facts: ClusterFacts, racks: set[str | None]) -> list[NodeFacts]:
    return [node for node in facts.nodes if node.is_voter is False and node.rack not in racks]


def report_uncollected_facts(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for each in facts.unseen:
        yield note_finding(UNCOLLECTED, f"not checked: {each.what}", each.why)


NODE_CHECKS: Final[tuple[ClusterCheck, ...]] = (
    check_health,
    check_isolated_broker,
    check_slow_disks,
    check_feature_level,
    check_mixed_versions,
    check_voter_count,
    check_voter_racks,
)


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
    """Report an uneven distribution of leaders. Suggest a preferred leader election if it would improve the balance."""
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


def _format_minutes(seconds: float) -> str:
    return pluralize(round(seconds / 60), "minute")


WORKLOAD_CHECKS: Final[tuple[ClusterCheck, ...]] = (
    check_reassignments,
    check_leader_balance,
    check_rebalancing_groups,
    check_hanging_transactions,
)
