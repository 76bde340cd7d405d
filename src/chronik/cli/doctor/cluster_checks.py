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
from chronik.cli.monitoring.facts import REBALANCING, ClusterFacts, NodeFacts
from chronik.wording import pluralize

ClusterCheck = Callable[[ClusterFacts], Iterator[DoctorFinding]]

CLOCK_SKEW_WARNING_MS: Final = 500.0
CLOCK_SKEW_ERROR_MS: Final = 30_000.0
"""Minimum clock skew between nodes, in milliseconds, that the doctor reports as an error."""

FREE_DISK_WARNING_RATIO: Final = 0.10
FREE_DISK_ERROR_RATIO: Final = 0.03
SLOW_SYNC_S: Final = 1.0
GIB: Final = 1 << 30

LAG_WARNING: Final = 10_000
"""Consumer group lag, in records, above which the doctor reports a warning."""

REBALANCING_WARNING_S: Final = 4.0
"""Time in seconds after which the doctor considers a group's rebalance stuck.

Members normally rejoin faster.
"""

UNEVEN_SHARE: Final = 0.25
UNEVEN_LEAST: Final = 3
"""Minimum difference in led partitions between two nodes that the doctor reports as uneven."""

TRANSACTION_WARNED_S: Final = 900.0


def check_unreachable_nodes(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for node in facts.nodes:
        if node.is_unresponsive:
            yield error_finding(
                "unresponsive-node",
                f"node {node.id} is unresponsive: {node.silence}",
                "Its replicas fall behind, and partitions that only it hosts are unavailable",
                "check the state of its process (ps, top): kill -CONT PID continues a stopped process; otherwise "
                "restart the node: chronik start --config FILE",
            )
        elif node.silence is not None:
            yield error_finding(
                "unreachable-node",
                f"node {node.id} is unreachable at {node.kafka}: {node.silence}",
                "Its replicas fall behind, and partitions that only it hosts are unavailable",
                "check whether its process runs, and the end of its log; then start it: chronik start --config FILE",
            )


def check_fenced_nodes(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for node in facts.nodes:
        if node.status == "fenced" and node.silence is None:
            yield error_finding(
                "fenced-node",
                f"node {node.id} is running but fenced: the controller gets no heartbeats, so it serves no data",
                "The node is overloaded, its network is partitioned, or its cluster secret or certificate is wrong",
                "check its log, the load of its machine, and the connections between the nodes' Raft ports",
            )


def check_isolated_broker(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    if facts.note:
        yield error_finding(
            "cut-off",
            f"the queried broker reports: {facts.note}",
            "Its view of the cluster may be stale",
            "query another broker with -b, and check why this one does not reach the others",
        )


def check_missing_controller(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    if facts.controller is None and not any(node.role in ("leader", "standalone") for node in facts.nodes):
        yield error_finding(
            "no-leader",
            "the cluster has no controller",
            "Topics, groups and offsets cannot change until a majority of the voters runs",
            "start the voters that are down; observers have no vote",
        )


def check_diverged_metadata(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    if facts.same_state is False:
        state_hashes = ", ".join(f"node {node.id}: {node.state_hash[:12]}" for node in facts.nodes if node.state_hash)
        yield error_finding(
            "diverged-states",
            f"nodes have different metadata at index {facts.compared_index} ({state_hashes})",
            "The same commands must lead to the same state on every node: this is a bug, and responses differ by node",
            "keep data directories and logs, stop the node that differs from the majority, and report the bug",
        )


def check_damaged_logs(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for node in facts.nodes:
        if node.damaged:
            yield error_finding(
                "damaged-logs",
                f"node {node.id} has lost records on its disk: {abbreviate_names(node.damaged)}",
                "It does not serve the missing records; they are copied from other replicas that have them",
                "restore the files, or wait for replication; if they are lost: chronik topics begin-anew TOPIC",
            )


def check_full_disks(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    for node in facts.nodes:
        if not node.disk_bytes or node.disk_free_bytes is None:
            continue
        ratio = node.disk_free_bytes / node.disk_bytes
        if ratio < FREE_DISK_WARNING_RATIO:
            is_critical = ratio < FREE_DISK_ERROR_RATIO
            yield (error_finding if is_critical else warning_finding)(
                "full-disk",
                f"node {node.id} has {node.disk_free_bytes / GIB:.1f} GiB of free disk space ({ratio:.0%})",
                "A node stops when its disk is full",
                "reduce retention.ms or retention.bytes (chronik topics alter TOPIC -c …), or add a node and run "
                "chronik cluster rebalance",
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


def check_clock_skew(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    """Report clock skew between nodes that exceeds the measurement uncertainty (the request's round-trip time)."""
    state_hashes = [node for node in facts.nodes if node.clock_ahead_ms is not None]
    if len(state_hashes) < 2:
        return
    ahead = max(state_hashes, key=lambda node: node.clock_ahead_ms or 0.0)
    behind = min(state_hashes, key=lambda node: node.clock_ahead_ms or 0.0)
    skew_ms = (ahead.clock_ahead_ms or 0.0) - (behind.clock_ahead_ms or 0.0)
    certain_ms = skew_ms - (ahead.clock_doubt_ms + behind.clock_doubt_ms) / 2
    if certain_ms >= CLOCK_SKEW_WARNING_MS:
        yield (error_finding if certain_ms >= CLOCK_SKEW_ERROR_MS else warning_finding)(
            "different-clocks",
            f"the clock of node {ahead.id} is {skew_ms / 1000:.1f} s ahead of the clock of node {behind.id}",
            "Clock skew affects timestamps, time-based retention and transaction timeouts (but not leader elections)",
            "synchronize the clocks of all machines with chrony or systemd-timesyncd: timedatectl set-ntp true",
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


def check_voters_down(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    voters = [node for node in facts.nodes if node.is_voter]
    down = [node.id for node in voters if node.status in ("down", "fenced")]
    left = len(voters) - len(down)
    if down and left == len(voters) // 2 + 1:
        yield warning_finding(
            "no-voter-to-spare",
            f"{left} of {pluralize(len(voters), 'voter')} {'are' if left != 1 else 'is'} up, the minimum for a "
            "majority",
            "If one more voter stops, the metadata cannot change",
            f"start {', '.join(f'node {node_id}' for node_id in down)} before any other node is stopped",
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
    check_unreachable_nodes,
    check_fenced_nodes,
    check_isolated_broker,
    check_missing_controller,
    check_diverged_metadata,
    check_damaged_logs,
    check_full_disks,
    check_slow_disks,
    check_clock_skew,
    check_feature_level,
    check_mixed_versions,
    check_voter_count,
    check_voters_down,
    check_voter_racks,
)


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
    """Report under-replicated partitions that are not being reassigned."""
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
