"""`chronik topics reassign`, `reassignments` and `elect-leaders`."""

from __future__ import annotations

import pytest

from chronik.testing import Broker
from chronik.testing.plugin import ClusterFactory
from tests.cluster.partitions import PartitionView, create_topic, wait_until_seen

from .command_line import run_chronik


@pytest.mark.xdist_group("cluster")
def test_partition_is_reassigned_listed_and_cancelled(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(min_insync_replicas=1)
    create_topic(cluster[1], "orders", [1], [1])
    node = cluster[1].bootstrap
    moved = run_chronik("topics", "reassign", "orders", "0:2,1", bootstrap=node)
    assert moved.lines == ["orders-0: reassignment started"]
    wait_until_seen(cluster, "orders", PartitionView(1, [2, 1], [1, 2]), PartitionView(1, [1], [1]))
    elected = run_chronik("topics", "elect-leaders", "--topic", "orders", bootstrap=node)
    assert elected.lines == ["orders-0: leader elected", "orders-1: no election needed"]
    assert run_chronik("topics", "elect-leaders", "--unclean", bootstrap=node).lines == [
        "no partition needs a leader election"
    ]
    cluster[3].kill()
    cluster.wait_until_listed([1, 2])
    run_chronik("topics", "reassign", "orders", "1:3", bootstrap=node)
    (heading, line) = run_chronik("topics", "reassignments", bootstrap=node).lines
    assert heading.split() == ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"]
    assert line.split() == ["orders", "1", "3,", "1", "3", "1"]
    expected = {"topic": "orders", "partition": 1, "replicas": [3, 1], "adding": [3], "removing": [1]}
    assert run_chronik("topics", "reassignments", "--json", bootstrap=node).json == [expected]
    cancelled = run_chronik("topics", "reassign", "orders", "--cancel", "1", bootstrap=node)
    assert cancelled.lines == ["orders-1: reassignment cancelled"]
    assert run_chronik("topics", "reassignments", "--json", bootstrap=node).json == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("reassign", "TOPIC", "0:7"), "TOPIC-0: partition 0 names unknown broker 7"),
        (("reassign", "TOPIC", "0"), "expected PARTITION:BROKER"),
        (("reassign", "TOPIC", "--cancel", "0"), "no reassignment of the partition is under way"),
        (("reassign", "TOPIC", "--cancel", "x"), "expected a partition index"),
        (("elect-leaders", "--partition", "0"), "--partition requires --topic"),
        (("elect-leaders", "--topic", "TOPIC", "--partition", "9"), "has no partition 9"),
    ],
)
def test_rejected_partition_action_prints_one_line_error(
    chronik_broker: Broker, chronik_topic: str, arguments: tuple[str, ...], expected: str
) -> None:
    words = [chronik_topic if word == "TOPIC" else word for word in arguments]
    outcome = run_chronik("topics", *words, bootstrap=chronik_broker.bootstrap)
    assert outcome.code == 1
    assert expected.replace("TOPIC", chronik_topic) in outcome.err
    assert len(outcome.err.splitlines()) == 1
