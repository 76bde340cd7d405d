"""Cluster checks, each with facts that trigger it and facts that do not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from chronik.cli.doctor.checks import run_all_checks, run_cluster_checks
from chronik.cli.doctor.cluster_checks import NODE_CHECKS, REBALANCING_WARNING_S, WORKLOAD_CHECKS
from chronik.cli.doctor.findings import DoctorFinding, Severity
from chronik.cli.doctor.local_facts import LocalFacts
from chronik.cli.monitoring.facts import ClusterFacts, GroupFacts, PartitionFacts, TransactionFacts, UncollectedFact
from tests.cli.monitoring.healthy_facts import cluster, node, partition, with_node

HEALTHY = cluster()
GIB = 1 << 30


def run_checks(facts: ClusterFacts) -> dict[str, DoctorFinding]:
    return {finding.check: finding for finding in run_cluster_checks(facts)}


def test_healthy_cluster_has_no_findings() -> None:
    assert run_checks(HEALTHY) == {}


def with_partition(**changes: Any) -> ClusterFacts:
    return replace(HEALTHY, partitions=(partition("orders", 0, 1, **changes), *HEALTHY.partitions[1:]))


UNHEALTHY = {
    "unreachable-node": (with_node(HEALTHY, 2, silence="no broker at …", status="down"), Severity.ERROR, "node 2"),
    "fenced-node": (with_node(HEALTHY, 2, status="fenced"), Severity.ERROR, "node 2"),
    "cut-off": (cluster(note="isolated from the others"), Severity.ERROR, "isolated"),
    "no-leader": (with_node(cluster(controller=None), 1, role="follower"), Severity.ERROR, "no controller"),
    "diverged-states": (cluster(same_state=False), Severity.ERROR, "index 100"),
    "damaged-logs": (with_node(HEALTHY, 3, damaged=("orders-1: lost",)), Severity.ERROR, "orders-1"),
    "full-disk": (with_node(HEALTHY, 3, disk_free_bytes=2 * GIB), Severity.ERROR, "2.0 GiB"),
    "slow-disk": (with_node(HEALTHY, 3, longest_sync_s=2.5, slow_syncs=7), Severity.NOTE, "2.5 s"),
    "different-clocks": (with_node(HEALTHY, 3, clock_ahead_ms=2000.0), Severity.WARNING, "2.0 s ahead"),
    "level-not-raised": (cluster(level=3), Severity.WARNING, "level 4"),
    "mixed-versions": (with_node(HEALTHY, 3, version="0.5.0"), Severity.NOTE, "0.5.0, 0.6.0"),
    "few-voters": (cluster(nodes=(node(1), node(2))), Severity.WARNING, "2 of 2 nodes are voters"),
    "even-voters": (cluster(nodes=tuple(map(node, (1, 2, 3, 4)))), Severity.NOTE, "4 voters"),
    "no-voter-to-spare": (with_node(HEALTHY, 2, status="fenced"), Severity.WARNING, "2 of 3 voters"),
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
    "lagging-group": (cluster(groups=(GroupFacts("slow", "Stable", 10_000),)), Severity.WARNING, "10,000"),
    "rebalancing-group": (
        cluster(groups=(GroupFacts("busy", "PreparingRebalance", 0, True, REBALANCING_WARNING_S),)),
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


@pytest.mark.parametrize("check", UNHEALTHY)
def test_unhealthy_cluster_has_finding_with_fix(check: str) -> None:
    facts, severity, expected_text = UNHEALTHY[check]
    finding = run_checks(facts)[check]
    assert finding.severity is severity
    assert expected_text in finding.what
    assert finding.why
    assert finding.do


def test_every_cluster_check_is_triggered() -> None:
    fired = {
        each.__name__ for each in (*NODE_CHECKS, *WORKLOAD_CHECKS) for facts, *_ in UNHEALTHY.values() if [*each(facts)]
    }
    assert fired == {each.__name__ for each in (*NODE_CHECKS, *WORKLOAD_CHECKS)}


# Facts that must not trigger a check


def test_unreachable_node_is_not_reported_as_fenced() -> None:
    assert "fenced-node" not in run_checks(with_node(HEALTHY, 2, status="fenced", silence="Connection refused"))


def test_clock_skew_within_measurement_uncertainty_is_ignored() -> None:
    slow = with_node(with_node(HEALTHY, 3, clock_ahead_ms=900.0, clock_doubt_ms=1000.0), 1, clock_doubt_ms=1000.0)
    assert "different-clocks" not in run_checks(slow)
    assert run_checks(with_node(HEALTHY, 3, clock_ahead_ms=-60_000.0))["different-clocks"].severity is Severity.ERROR
    assert "different-clocks" not in run_checks(with_node(HEALTHY, 3, clock_ahead_ms=None))


def test_feature_level_finding_requires_support_of_all_nodes() -> None:
    assert "level-not-raised" not in run_checks(with_node(cluster(level=3), 3, levels=(1, 3)))
    assert "level-not-raised" not in run_checks(with_node(cluster(level=3), 3, levels=None))


def test_standalone_node_has_no_findings() -> None:
    alone = cluster(
        nodes=(node(1, role="standalone"),),
        partitions=tuple(PartitionFacts("orders", index, 1, (1,), (1,)) for index in range(6)),
    )
    assert run_checks(alone) == {}


def test_voters_in_two_racks_or_without_racks_are_accepted() -> None:
    assert "one-rack" not in run_checks(with_node(UNHEALTHY["one-rack"][0], 3, rack="b"))
    assert "one-rack" not in run_checks(HEALTHY)


def test_nodes_on_one_machine_have_no_rack_finding() -> None:
    nodes = tuple(node(each, rack="laptop") for each in (1, 2, 3))
    assert "one-rack" not in run_checks(cluster(nodes=nodes))


def test_rack_finding_suggests_promotion_of_observer_in_other_rack() -> None:
    nodes = (*(node(each, rack="a") for each in (1, 2, 3)), node(4, rack="b", is_voter=False, role="observer"))
    assert "promote 4" in run_checks(cluster(nodes=nodes))["one-rack"].do


def test_reassigned_partitions_are_not_under_replicated() -> None:
    assert "under-replicated" not in run_checks(replace(with_partition(isr=(1, 2)), moving=("orders-0",)))


def test_partition_is_reported_only_by_most_severe_check() -> None:
    assert "under-replicated" not in run_checks(with_partition(isr=(1,), min_in_sync=2))
    offline = run_checks(with_partition(leader=-1, isr=()))
    assert "offline-partitions" in offline
    assert "under-replicated" not in offline


def test_uneven_leaders_suggest_election_if_preferred_leaders_are_even() -> None:
    """Node 1 leads all partitions, although it is the preferred leader of a third of them only."""
    displaced = tuple(
        partition("orders", index, 1, replicas=(1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3))
        for index in range(6)
    )
    finding = run_checks(cluster(partitions=displaced))["uneven-leaders"]
    assert finding.severity is Severity.NOTE
    assert finding.do.startswith("chronik topics elect-leaders")
    one_sided = UNHEALTHY["uneven-leaders"][0]
    assert run_checks(one_sided)["uneven-leaders"].do == "chronik cluster rebalance"


def test_drained_node_is_ignored_in_leader_balance() -> None:
    facts = cluster(partitions=tuple(partition("orders", index, 1 + index % 2) for index in range(6)))
    assert "uneven-leaders" in run_checks(facts)
    assert "uneven-leaders" not in run_checks(with_node(facts, 3, status="drained"))


def test_lag_of_group_without_members_is_only_a_note() -> None:
    facts = cluster(groups=(GroupFacts("old", "Empty", 10_000), GroupFacts("near", "Stable", 10_000 - 1)))
    assert run_checks(facts)["lagging-group"].severity is Severity.NOTE


def test_short_rebalance_is_not_reported() -> None:
    assert run_checks(cluster(groups=(GroupFacts("g", "PreparingRebalance", 0, True, 1.0),))) == {}


def test_hanging_transaction_finding_suggests_abort_command() -> None:
    do = run_checks(UNHEALTHY["hanging-transaction"][0])["hanging-transaction"].do
    assert do == "chronik transactions abort --topic a-b --partition 3 --start-offset 42"


def test_transaction_within_its_timeout_is_not_reported() -> None:
    facts = cluster(transactions=(TransactionFacts("nightly", "Ongoing", 1800, 3600.0, False, ("orders-3",)),))
    assert run_checks(facts) == {}


def test_facts_that_could_not_be_collected_are_noted() -> None:
    findings = run_all_checks(
        LocalFacts(), cluster(unseen=(UncollectedFact("sizes", "CLUSTER_AUTHORIZATION_FAILED"),)), 0.0
    )
    assert [(each.check, each.severity, each.why) for each in findings] == [
        ("not-seen", Severity.NOTE, "CLUSTER_AUTHORIZATION_FAILED")
    ]
