"""Each check, with facts that show what it looks for, and with facts that do not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from chronik.cli.doctor.cluster_checks import NODE_CHECKS
from chronik.cli.doctor.examining import examined, of_cluster
from chronik.cli.doctor.findings import Finding, Severity
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.doctor.traffic_checks import LAG_WARNED, REBALANCING_WARNED_S, TRAFFIC_CHECKS
from chronik.cli.watching.facts import ClusterFacts, GroupFacts, PartitionFacts, TransactionFacts, Unseen
from tests.cli.watching.healthy import cluster, node, partition, with_node

HEALTHY = cluster()
GIB = 1 << 30


def found(facts: ClusterFacts) -> dict[str, Finding]:
    return {finding.check: finding for finding in of_cluster(facts)}


def test_nothing_is_wrong_with_a_healthy_cluster() -> None:
    assert found(HEALTHY) == {}


def with_partition(**changes: Any) -> ClusterFacts:
    return replace(HEALTHY, partitions=(partition("orders", 0, 1, **changes), *HEALTHY.partitions[1:]))


ILL = {
    "unreachable-node": (with_node(HEALTHY, 2, silence="no broker at …", status="down"), Severity.ERROR, "node 2"),
    "fenced-node": (with_node(HEALTHY, 2, status="fenced"), Severity.ERROR, "node 2"),
    "cut-off": (cluster(note="not heard from the others"), Severity.ERROR, "not heard"),
    "no-leader": (with_node(cluster(controller=None), 1, role="follower"), Severity.ERROR, "nobody leads"),
    "diverged-states": (cluster(same_state=False), Severity.ERROR, "index 100"),
    "damaged-logs": (with_node(HEALTHY, 3, damaged=("orders-1: lost",)), Severity.ERROR, "orders-1"),
    "full-disk": (with_node(HEALTHY, 3, disk_free_bytes=2 * GIB), Severity.ERROR, "2.0 GiB"),
    "slow-disk": (with_node(HEALTHY, 3, longest_sync_s=2.5, slow_syncs=7), Severity.NOTE, "2.5 s"),
    "different-clocks": (with_node(HEALTHY, 3, clock_ahead_ms=2000.0), Severity.WARNING, "2.0 s ahead"),
    "level-not-raised": (cluster(level=3), Severity.WARNING, "level 4"),
    "mixed-versions": (with_node(HEALTHY, 3, version="0.5.0"), Severity.NOTE, "0.5.0, 0.6.0"),
    "few-voters": (cluster(nodes=(node(1), node(2))), Severity.WARNING, "2 vote"),
    "even-voters": (cluster(nodes=tuple(map(node, (1, 2, 3, 4)))), Severity.NOTE, "4 nodes vote"),
    "no-voter-to-spare": (with_node(HEALTHY, 2, status="fenced"), Severity.WARNING, "2 voters of 3"),
    "unresponsive-node": (
        with_node(HEALTHY, 2, silence="127.0.0.1:9093 accepts connections, but …", is_unresponsive=True, status="down"),
        Severity.ERROR,
        "node 2",
    ),
    "one-rack": (
        cluster(nodes=tuple(node(each, rack="a", kafka=f"host{each}:9092") for each in (1, 2, 3))),
        Severity.WARNING,
        "rack a",
    ),
    "offline-partitions": (with_partition(leader=-1, isr=(2,)), Severity.ERROR, "orders-0"),
    "below-min-insync": (with_partition(isr=(1,), min_in_sync=2), Severity.ERROR, "orders-0"),
    "under-replicated": (with_partition(isr=(1, 2), min_in_sync=2), Severity.WARNING, "orders-0"),
    "moving-partitions": (cluster(moving=("orders-0",)), Severity.NOTE, "orders-0"),
    "uneven-leaders": (
        cluster(partitions=tuple(partition("orders", index, 1) for index in range(6))),
        Severity.WARNING,
        "node 1 leads 6 partitions",
    ),
    "lagging-group": (cluster(groups=(GroupFacts("slow", "Stable", LAG_WARNED),)), Severity.WARNING, "10,000"),
    "rebalancing-group": (
        cluster(groups=(GroupFacts("busy", "PreparingRebalance", 0, True, REBALANCING_WARNED_S),)),
        Severity.WARNING,
        "busy",
    ),
    "hanging-transaction": (
        cluster(transactions=(TransactionFacts("producer 7", "hanging", 1800, None, True, ("a-b-3",), 42),)),
        Severity.ERROR,
        "producer 7",
    ),
    "long-transaction": (
        cluster(transactions=(TransactionFacts("pay", "Ongoing", 1800, 60.0, False, ("orders-3",)),)),
        Severity.WARNING,
        "30 minutes",
    ),
}


@pytest.mark.parametrize("check", ILL)
def test_what_is_wrong_is_told_with_what_mends_it(check: str) -> None:
    facts, severity, told = ILL[check]
    finding = found(facts)[check]
    assert finding.severity is severity
    assert told in finding.what
    assert finding.why
    assert finding.do


def test_every_check_is_shown_by_facts() -> None:
    fired = {each.__name__ for each in (*NODE_CHECKS, *TRAFFIC_CHECKS) for facts, *_ in ILL.values() if [*each(facts)]}
    assert fired == {each.__name__ for each in (*NODE_CHECKS, *TRAFFIC_CHECKS)}


# What looks like it, and is not


def test_a_node_that_is_silent_is_not_also_told_to_be_fenced() -> None:
    assert "fenced-node" not in found(with_node(HEALTHY, 2, status="fenced", silence="Connection refused"))


def test_clocks_are_not_told_apart_by_less_than_answers_took() -> None:
    slow = with_node(with_node(HEALTHY, 3, clock_ahead_ms=900.0, clock_doubt_ms=1000.0), 1, clock_doubt_ms=1000.0)
    assert "different-clocks" not in found(slow)
    assert found(with_node(HEALTHY, 3, clock_ahead_ms=-60_000.0))["different-clocks"].severity is Severity.ERROR
    assert "different-clocks" not in found(with_node(HEALTHY, 3, clock_ahead_ms=None))


def test_a_level_is_not_raised_before_all_nodes_support_it() -> None:
    assert "level-not-raised" not in found(with_node(cluster(level=3), 3, levels=(1, 3)))
    assert "level-not-raised" not in found(with_node(cluster(level=3), 3, levels=None))


def test_a_node_that_stands_alone_needs_no_voters() -> None:
    alone = cluster(
        nodes=(node(1, role="standalone"),),
        partitions=tuple(PartitionFacts("orders", index, 1, (1,), (1,)) for index in range(6)),
    )
    assert found(alone) == {}


def test_voters_of_two_racks_are_fine_and_nodes_without_racks_too() -> None:
    assert "one-rack" not in found(with_node(ILL["one-rack"][0], 3, rack="b"))
    assert "one-rack" not in found(HEALTHY)


def test_nodes_of_one_machine_get_no_warning_about_its_rack() -> None:
    nodes = tuple(node(each, rack="laptop") for each in (1, 2, 3))
    assert "one-rack" not in found(cluster(nodes=nodes))


def test_an_observer_on_another_rack_is_the_one_to_promote() -> None:
    nodes = (*(node(each, rack="a") for each in (1, 2, 3)), node(4, rack="b", is_voter=False, role="observer"))
    assert "promote 4" in found(cluster(nodes=nodes))["one-rack"].do


def test_partitions_that_move_are_short_on_purpose() -> None:
    assert "under-replicated" not in found(replace(with_partition(isr=(1, 2)), moving=("orders-0",)))


def test_a_partition_is_told_of_once_and_by_the_worst() -> None:
    assert "under-replicated" not in found(with_partition(isr=(1,), min_in_sync=2))
    offline = found(with_partition(leader=-1, isr=()))
    assert "offline-partitions" in offline
    assert "under-replicated" not in offline


def test_leaders_that_an_election_brings_back_need_no_rebalance() -> None:
    """All partitions are led by node 1, and half of them should not be."""
    displaced = tuple(
        partition("orders", index, 1, replicas=(1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3))
        for index in range(6)
    )
    finding = found(cluster(partitions=displaced))["uneven-leaders"]
    assert finding.severity is Severity.NOTE
    assert finding.do.startswith("chronik topics elect-leaders")
    one_sided = ILL["uneven-leaders"][0]
    assert found(one_sided)["uneven-leaders"].do == "chronik cluster rebalance"


def test_a_drained_node_may_lead_nothing() -> None:
    facts = cluster(partitions=tuple(partition("orders", index, 1 + index % 2) for index in range(6)))
    assert "uneven-leaders" in found(facts)
    assert "uneven-leaders" not in found(with_node(facts, 3, status="drained"))


def test_a_group_without_members_is_no_alarm() -> None:
    facts = cluster(groups=(GroupFacts("old", "Empty", LAG_WARNED), GroupFacts("near", "Stable", LAG_WARNED - 1)))
    assert found(facts)["lagging-group"].severity is Severity.NOTE


def test_a_group_that_rebalances_for_a_moment_is_none() -> None:
    assert found(cluster(groups=(GroupFacts("g", "PreparingRebalance", 0, True, 1.0),))) == {}


def test_a_transaction_that_hangs_is_ended_by_the_command_told() -> None:
    do = found(ILL["hanging-transaction"][0])["hanging-transaction"].do
    assert do == "chronik transactions abort --topic a-b --partition 3 --start-offset 42"


def test_a_transaction_within_its_own_timeout_is_none() -> None:
    facts = cluster(transactions=(TransactionFacts("nightly", "Ongoing", 1800, 3600.0, False, ("orders-3",)),))
    assert found(facts) == {}


def test_what_could_not_be_seen_is_told() -> None:
    findings = examined(LocalFacts(), cluster(unseen=(Unseen("sizes", "CLUSTER_AUTHORIZATION_FAILED"),)), 0.0)
    assert [(each.check, each.severity, each.why) for each in findings] == [
        ("not-seen", Severity.NOTE, "CLUSTER_AUTHORIZATION_FAILED")
    ]
