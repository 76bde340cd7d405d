"""What can be wrong with the nodes of a cluster. Each check is a function of what was seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from chronik.cli.doctor.findings import UNSEEN, Finding, error, note, some, warning
from chronik.cli.watching.facts import ClusterFacts, NodeFacts
from chronik.wording import counted

Check = Callable[[ClusterFacts], Iterator[Finding]]

CLOCK_WARNED_MS: Final = 500.0
CLOCK_WRONG_MS: Final = 30_000.0
"""Timestamps of records, retention and the ages of transactions are told by clocks; who leads is not."""

DISK_WARNED_SHARE: Final = 0.10
DISK_WRONG_SHARE: Final = 0.03
SLOW_SYNC_S: Final = 1.0
GIB: Final = 1 << 30


def unreachable_nodes(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.is_unresponsive:
            yield error(
                "unresponsive-node",
                f"node {node.id} does not answer: {node.silence}",
                "Its replicas fall behind, and what it alone holds cannot be read",
                "look at the state of its process (ps, top): kill -CONT PID continues a stopped one; otherwise "
                "restart it: chronik start --config FILE",
            )
        elif node.silence is not None:
            yield error(
                "unreachable-node",
                f"node {node.id} does not answer at {node.kafka}: {node.silence}",
                "Its replicas fall behind, and what it alone holds cannot be read",
                "see whether it runs, and what the end of its log says; then start it: chronik start --config FILE",
            )


def fenced_nodes(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.status == "fenced" and node.silence is None:
            yield error(
                "fenced-node",
                f"node {node.id} runs, and is fenced: the others do not hear from it, so it serves no data",
                "It has no time, its line to the others is cut, or its secret or its certificate is not theirs",
                "look at its log for what it waits for, at the machine's load, and at the raft ports between nodes",
            )


def cut_off(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.note:
        yield error(
            "cut-off",
            f"the broker that was asked says: {facts.note}",
            "What it tells of the cluster may be old",
            "ask another one with -b, and see why this one does not hear the others",
        )


def no_leader(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.controller is None and not any(node.role in ("leader", "standalone") for node in facts.nodes):
        yield error(
            "no-leader",
            "nobody leads the metadata",
            "Topics, groups and offsets cannot change until a majority of voters runs",
            "start the voters that are down; observers cannot help, they have no vote",
        )


def diverged_states(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.same_state is False:
        told = ", ".join(f"node {node.id}: {node.state_hash[:12]}" for node in facts.nodes if node.state_hash)
        yield error(
            "diverged-states",
            f"nodes hold different metadata at index {facts.compared_index} ({told})",
            "The same commands must give the same state everywhere: this is a bug, and answers differ by node",
            "keep folders and logs, stop the node that differs from the majority, and report it",
        )


def damaged_logs(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.damaged:
            yield error(
                "damaged-logs",
                f"node {node.id}'s disk has lost records: {some(node.damaged)}",
                "It does not serve what is missing, and others fill it if they have it",
                "bring the files back, or let replicas fill it; lost for good: chronik topics begin-anew TOPIC",
            )


def full_disks(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.nodes:
        if not node.disk_bytes or node.disk_free_bytes is None:
            continue
        share = node.disk_free_bytes / node.disk_bytes
        if share < DISK_WARNED_SHARE:
            severe = share < DISK_WRONG_SHARE
            yield (error if severe else warning)(
                "full-disk",
                f"node {node.id} has {node.disk_free_bytes / GIB:.1f} GiB free on its disk, {share:.0%} of it",
                "A node whose disk is full stops",
                "lower retention.ms or retention.bytes (chronik topics alter TOPIC -c …), or add a node and chronik "
                "cluster rebalance",
            )


def slow_disks(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.nodes:
        if node.longest_sync_s is not None and node.longest_sync_s >= SLOW_SYNC_S:
            yield note(
                "slow-disk",
                f"the longest sync of node {node.id}'s disk took {node.longest_sync_s:.1f} s"
                + (f", and {counted(node.slow_syncs, 'sync')} over 50 ms" if node.slow_syncs else ""),
                "A produce with acks=all waits for it",
                "a better disk, or one disk for each node; see Disks in docs/operations.md",
            )


def different_clocks(facts: ClusterFacts) -> Iterator[Finding]:
    """Clocks are compared by way of our own; how long answers took is how far that may be off."""
    told = [node for node in facts.nodes if node.clock_ahead_ms is not None]
    if len(told) < 2:
        return
    ahead = max(told, key=lambda node: node.clock_ahead_ms or 0.0)
    behind = min(told, key=lambda node: node.clock_ahead_ms or 0.0)
    apart_ms = (ahead.clock_ahead_ms or 0.0) - (behind.clock_ahead_ms or 0.0)
    certain_ms = apart_ms - (ahead.clock_doubt_ms + behind.clock_doubt_ms) / 2
    if certain_ms >= CLOCK_WARNED_MS:
        yield (error if certain_ms >= CLOCK_WRONG_MS else warning)(
            "different-clocks",
            f"the clock of node {ahead.id} is {apart_ms / 1000:.1f} s ahead of node {behind.id}'s",
            "Timestamps, retention by time and ages of transactions are told by clocks (who leads is not)",
            "keep clocks with chrony or systemd-timesyncd on every machine: timedatectl set-ntp true",
        )


def features_not_finalised(facts: ClusterFacts) -> Iterator[Finding]:
    supported = [node.levels[1] for node in facts.nodes if node.levels is not None]
    if facts.level is not None and supported and len(supported) == len(facts.nodes) and min(supported) > facts.level:
        yield warning(
            "level-not-raised",
            f"all nodes support level {min(supported)}, and the cluster is at level {facts.level}",
            "What came with the newer version is not used until it is raised; after that there is no way back",
            "chronik cluster upgrade",
        )


def mixed_versions(facts: ClusterFacts) -> Iterator[Finding]:
    versions = sorted({node.version for node in facts.nodes if node.version is not None})
    if len(versions) > 1:
        yield note(
            "mixed-versions",
            f"nodes run different versions: {', '.join(versions)}",
            "That is how a cluster is upgraded, node by node, and not how it should stay",
            "upgrade the others (docs/upgrading.md)",
        )


def few_voters(facts: ClusterFacts) -> Iterator[Finding]:
    voters = [node for node in facts.nodes if node.is_voter]
    if len(voters) == 2 or (len(voters) == 1 and len(facts.nodes) > 1):
        candidates = [node.id for node in facts.nodes if node.is_voter is False]
        yield warning(
            "few-voters",
            f"of {counted(len(facts.nodes), 'node')} {len(voters)} {'vote' if len(voters) > 1 else 'votes'}",
            "If one voter stops, nothing can be changed until it is back: three voters can lose one",
            f"chronik cluster promote {candidates[0]}" if candidates else "chronik cluster add-node",
        )
    elif len(voters) and len(voters) % 2 == 0:
        yield note(
            "even-voters",
            f"{counted(len(voters), 'node')} vote",
            f"They can lose no more than {len(voters) - 1} can",
            f"chronik cluster demote {max(node.id for node in voters if node.role != 'leader')}, or promote one more",
        )


def voters_down(facts: ClusterFacts) -> Iterator[Finding]:
    voters = [node for node in facts.nodes if node.is_voter]
    down = [node.id for node in voters if node.status in ("down", "fenced")]
    left = len(voters) - len(down)
    if down and left == len(voters) // 2 + 1:
        yield warning(
            "no-voter-to-spare",
            f"{counted(left, 'voter')} of {len(voters)} {'are' if left != 1 else 'is'} up, which is just a majority",
            "If one more stops, nothing can be changed",
            f"start {', '.join(f'node {node_id}' for node_id in down)} before anything else is stopped",
        )


def voters_on_one_rack(facts: ClusterFacts) -> Iterator[Finding]:
    voters = [node for node in facts.nodes if node.is_voter]
    racks = {node.rack for node in voters}
    elsewhere = _on_other_racks(facts, racks)
    hosts = {node.kafka.rpartition(":")[0] for node in facts.nodes}
    if len(hosts) == 1 and not elsewhere:
        return  # all nodes run on one machine, which is no rack that could be changed
    if len(voters) > 1 and len(racks) == 1 and None not in racks:
        (rack,) = racks
        yield warning(
            "one-rack",
            f"all {len(voters)} voters are on rack {rack}",
            "If that rack fails, nothing can be changed, whatever runs elsewhere",
            f"chronik cluster promote {elsewhere[0].id}, and demote one of rack {rack}"
            if elsewhere
            else "add nodes on other racks (chronik cluster add-node) and promote them",
        )


def _on_other_racks(facts: ClusterFacts, racks: set[str | None]) -> list[NodeFacts]:
    return [node for node in facts.nodes if node.is_voter is False and node.rack not in racks]


def unseen(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.unseen:
        yield note(UNSEEN, f"not looked at: {each.what}", each.why)


NODE_CHECKS: Final[tuple[Check, ...]] = (
    unreachable_nodes,
    fenced_nodes,
    cut_off,
    no_leader,
    diverged_states,
    damaged_logs,
    full_disks,
    slow_disks,
    different_clocks,
    features_not_finalised,
    mixed_versions,
    few_voters,
    voters_down,
    voters_on_one_rack,
)
