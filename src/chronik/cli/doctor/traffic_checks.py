"""What can be wrong with partitions, groups and transactions of a cluster. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from chronik.cli.doctor.cluster_checks import Check
from chronik.cli.doctor.findings import Finding, error, note, some, warning
from chronik.cli.watching.facts import REBALANCING, ClusterFacts
from chronik.wording import counted

LAG_WARNED: Final = 10_000
"""Records. Few enough that somebody waits for them, many enough that a group at work is not told of."""

REBALANCING_WARNED_S: Final = 4.0
"""By then members have joined again, unless one of them does not, or another comes each time."""

UNEVEN_SHARE: Final = 0.25
UNEVEN_LEAST: Final = 3
"""Leaders that a node has more than another, before it is told."""

TRANSACTION_WARNED_S: Final = 900.0


def offline_partitions(facts: ClusterFacts) -> Iterator[Finding]:
    lost = [each for each in facts.partitions if each.leader < 0]
    if lost:
        holders = sorted({replica for each in lost for replica in each.isr or each.replicas})
        yield error(
            "offline-partitions",
            f"{counted(len(lost), 'partition')} without a leader: {some(lost)}",
            "They can be neither written nor read until a replica in sync is back",
            f"start {', '.join(f'node {node_id}' for node_id in holders)}; if that is lost for good: chronik topics "
            "elect-leaders --unclean",
        )


def below_min_in_sync(facts: ClusterFacts) -> Iterator[Finding]:
    short = [each for each in facts.partitions if each.leader >= 0 and len(each.isr) < (each.min_in_sync or 0)]
    if short:
        yield error(
            "below-min-insync",
            f"{counted(len(short), 'partition')} with fewer replicas in sync than min.insync.replicas: {some(short)}",
            "Producers with acks=all are told NOT_ENOUGH_REPLICAS",
            _start_missing(facts, {node for each in short for node in set(each.replicas) - set(each.isr)}),
        )


def under_replicated(facts: ClusterFacts) -> Iterator[Finding]:
    """Partitions on their way elsewhere are short on purpose."""
    moving = set(facts.moving)
    short = [
        each
        for each in facts.partitions
        if len(each.isr) < len(each.replicas)
        and each.leader >= 0
        and len(each.isr) >= (each.min_in_sync or 0)
        and str(each) not in moving
    ]
    short.sort(key=lambda each: each.is_internal)  # those with records are named first
    if short:
        yield warning(
            "under-replicated",
            f"{counted(len(short), 'partition')} with replicas that are not in sync: {some(short)}",
            "One fault more may take the last copies",
            _start_missing(facts, {node for each in short for node in set(each.replicas) - set(each.isr)}),
        )


def _start_missing(facts: ClusterFacts, missing: set[int]) -> str:
    named = ", ".join(f"node {node_id}" for node_id in sorted(missing))
    known = {node.id: node for node in facts.nodes}
    down = [node_id for node_id in missing if node_id not in known or known[node_id].status in ("down", "fenced")]
    if down:
        return f"start {named}, and wait: chronik cluster ok-to-stop NODE tells when all is in sync"
    return f"see why {named} cannot keep up: its log, its disk, its load"


def moving_partitions(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.moving:
        yield note(
            "moving-partitions",
            f"{counted(len(facts.moving), 'partition')} on the way to other nodes: {some(facts.moving)}",
            "That is nothing bad, and ends",
            "chronik topics reassignments shows them; chronik cluster rebalance --cancel gives up",
        )


def uneven_leaders(facts: ClusterFacts) -> Iterator[Finding]:
    """Judges by what nodes lead, of those that may lead. Whether an election is enough is told by preferred leaders."""
    able = [node.id for node in facts.nodes if node.status == "online"]
    if len(able) < 2 or facts.moving:
        return
    leads = Counter(each.leader for each in facts.partitions if each.leader in able)
    most, least = (choose(able, key=lambda node_id: leads[node_id]) for choose in (max, min))
    apart = leads[most] - leads[least]
    if apart < UNEVEN_LEAST or apart <= UNEVEN_SHARE * leads.total() / len(able):
        return
    preferred = Counter(each.replicas[0] for each in facts.partitions if each.replicas)
    displaced = sum(
        1
        for each in facts.partitions
        if each.leader >= 0
        and each.replicas[0] in able
        and each.replicas[0] in each.isr
        and each.leader != each.replicas[0]
    )
    would_be = max(preferred[node_id] for node_id in able) - min(preferred[node_id] for node_id in able)
    told = f"node {most} leads {counted(leads[most], 'partition')}, node {least} {leads[least]}"
    why = "Clients write to and read from leaders: one node has more to do than another"
    if displaced and would_be < apart:
        why += ". Leaders come back by themselves within minutes after a node does"
        yield note("uneven-leaders", told, why, "chronik topics elect-leaders has them back at once")
    else:
        yield warning("uneven-leaders", told, why, "chronik cluster rebalance")


def lagging_groups(facts: ClusterFacts) -> Iterator[Finding]:
    for group in sorted(facts.groups, key=lambda group: -(group.lag or 0)):
        if group.lag is None or group.lag < LAG_WARNED:
            continue
        is_read = group.state not in ("Empty", "Dead", "")
        yield (warning if is_read else note)(
            "lagging-group",
            f"group {group.name} is {counted(group.lag, 'record')} behind"
            + ("" if is_read or not group.state else ", and has no members"),
            "What it has not read before retention deletes it, it never will",
            f"chronik groups describe {group.name}; more consumers, up to one for each partition"
            if is_read
            else f"start its consumers; if nobody needs it any more: chronik groups delete {group.name}",
        )


def rebalancing_groups(facts: ClusterFacts) -> Iterator[Finding]:
    for group in facts.groups:
        if group.state in REBALANCING and group.rebalancing_for_s >= REBALANCING_WARNED_S:
            yield warning(
                "rebalancing-group",
                f"group {group.name} was rebalancing in every look for {group.rebalancing_for_s:.0f} s ({group.state})",
                "Meanwhile nobody in it reads. A member takes longer than max.poll.interval.ms, or comes and goes",
                f"chronik groups describe {group.name} shows its members; smaller batches, longer times there",
            )


def hanging_transactions(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.transactions:
        if each.is_hanging:
            topic, _, index = each.partitions[0].rpartition("-")
            yield error(
                "hanging-transaction",
                f"a transaction of {each.name} hangs in {some(each.partitions)} for {_minutes(each.open_for_s)}, and "
                " no coordinator knows it",
                "Whoever reads read_committed waits there for ever",
                f"chronik transactions abort --topic {topic} --partition {index} --start-offset {each.start_offset}",
            )


def long_transactions(facts: ClusterFacts) -> Iterator[Finding]:
    for each in facts.transactions:
        limit = max(TRANSACTION_WARNED_S, each.timeout_s or 0.0)
        if not each.is_hanging and each.open_for_s > limit:
            yield warning(
                "long-transaction",
                f"transaction {each.name} is open for {_minutes(each.open_for_s)} in {some(each.partitions)}",
                "Whoever reads read_committed waits there",
                f"chronik transactions describe {each.name}; end its producer, whose timeout ends the transaction",
            )


def _minutes(seconds: float) -> str:
    return counted(round(seconds / 60), "minute")


TRAFFIC_CHECKS: Final[tuple[Check, ...]] = (
    offline_partitions,
    below_min_in_sync,
    under_replicated,
    moving_partitions,
    uneven_leaders,
    lagging_groups,
    rebalancing_groups,
    hanging_transactions,
    long_transactions,
)
