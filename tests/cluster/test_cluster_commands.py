"""Operator commands that add, remove and drain nodes while clients write and read without errors."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.client.cluster_view import describe_partitions
from chronik.client.nodes import describe_nodes, describe_nodes_from_quorum, to_planned_node
from chronik.client.partitions import THROTTLED_RATE_KEYS, THROTTLED_REPLICAS_KEYS
from chronik.protocol.messages.describe_nodes import DescribedNode
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.cli.command_line import COMMAND, CommandResult, environment, run_chronik
from tests.cluster import replication_helpers

pytestmark = pytest.mark.xdist_group("cluster")

WAIT_SECONDS = "55"


def operate(cluster: Cluster, *words: str) -> CommandResult:
    """Run the command against any node but the first, with --yes."""
    done = run_chronik("cluster", *words, "--yes", "--wait", WAIT_SECONDS, bootstrap=others(cluster))
    assert done.code == 0, done.err
    return done


def others(cluster: Cluster) -> str:
    return ",".join(node.bootstrap for node in cluster.live_nodes if node.node_id != 1)


def nodes(cluster: Cluster) -> dict[int, DescribedNode]:
    with cluster.live_nodes[-1].cluster() as client:
        return {node.node_id: node for node in describe_nodes(client).nodes}


def holders(cluster: Cluster, topic: str | None = None) -> set[int]:
    with cluster.live_nodes[-1].cluster() as client:
        views = describe_partitions(client)
    return {replica for each in views if topic in (None, each.topic) for replica in each.replicas + each.leaving}


def led_by(cluster: Cluster, node_id: int) -> list[str]:
    with cluster.live_nodes[-1].cluster() as client:
        return [str(each) for each in describe_partitions(client) if each.leader == node_id and each.topic != "__meta"]


def join(cluster: Cluster, node_id: int) -> ClusterNode:
    """Start a node that the cluster does not know, and add it."""
    node = cluster.add_node(node_id)
    node.start()
    operate(cluster, "add-node", str(node_id), "--raft", str(cluster.raft_address(node_id)))
    return node


def test_node_can_be_added_and_removed_under_load(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    places = replication_helpers.create_topic(cluster, "growing", 4)
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "growing", 4, rate=100.0)
    reader = replication_helpers.ConfluentConsumerLoad(cluster.bootstrap, "growing", "readers")
    with replication_helpers.running_clients(reader):
        with replication_helpers.running_clients(load):
            load.wait_until_progress()
            join(cluster, 4)
            assert (nodes(cluster)[4].is_member, nodes(cluster)[4].is_voter) == (True, False)
            assert 4 not in holders(cluster)

            operate(cluster, "rebalance")
            assert 4 in holders(cluster, "growing")
            assert operate(cluster, "rebalance").lines == ["the cluster is balanced: no partitions need to move"]
            load.wait_until_progress()

            said = operate(cluster, "remove-node", "1")
            assert said.lines[0].strip().startswith("1. drain node 1")
            assert said.lines[-1] == "node 1: removed from the cluster"
            assert {node_id for node_id, node in nodes(cluster).items() if node.is_voter} == {2, 3, 4}
            assert holders(cluster) == {2, 3, 4}
            cluster[1].stop()
            load.wait_until_progress()
        ends = replication_helpers.end_offsets(others(cluster), places)
        reader.wait_until_read({place.partition: end for place, end in ends.items()})
    assert not load.problems
    assert not reader.problems
    replication_helpers.check_records(others(cluster), places, [load])
    replication_helpers.check_consumer(others(cluster), places, reader)


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    with Cluster(4) as cluster:
        replication_helpers.create_topic(cluster, "kept", 8, min_insync_replicas="2")
        yield cluster


def test_drained_node_leads_nothing_until_undrained(four: Cluster) -> None:
    operate(four, "rebalance")
    assert led_by(four, 1)
    assert operate(four, "drain", "1").lines[-1] == "node 1: drained"
    assert led_by(four, 1) == []
    assert nodes(four)[1].status == "maintenance"
    assert operate(four, "drain", "1").lines == ["node 1 is already drained"]
    status = run_chronik("cluster", "status", "--json", bootstrap=four[2].bootstrap).json
    assert [node["status"] for node in status["nodes"]] == ["drained", "online", "online", "online"]

    before = holders(four, "late")
    replication_helpers.create_topic(four, "late", 6)
    assert before == set()
    assert holders(four, "late") == {2, 3, 4}

    operate(four, "undrain", "1")
    assert nodes(four)[1].status == "online"
    run_chronik("topics", "elect-leaders", bootstrap=four[2].bootstrap)
    four.wait_until(lambda: None if led_by(four, 1) else "node 1 leads nothing", "node 1 to lead again")


def test_safe_to_stop_fails_while_replica_is_offline(four: Cluster) -> None:
    assert run_chronik("cluster", "ok-to-stop", "1", bootstrap=others(four)).lines == [
        "node 1 can be stopped: all partitions and the metadata quorum stay available"
    ]
    four[3].kill()
    four.wait_until_listed([1, 2, 4])
    rejected = run_chronik("cluster", "ok-to-stop", "1", bootstrap=others(four))
    assert (rejected.code, rejected.err) == (1, "")
    assert rejected.out.startswith("no: only 1 of 3 voters would be left, which is no majority")
    assert "fewer in-sync replicas than min.insync.replicas" in rejected.out
    message = run_chronik("cluster", "ok-to-stop", "4", "--json", bootstrap=four[1].bootstrap)
    assert message.code == 1
    assert '"too few in sync"' in message.out
    four[3].start()
    assert run_chronik("cluster", "ok-to-stop", "1", "--wait", WAIT_SECONDS, bootstrap=others(four)).code == 0


def test_kafka_admin_requests_show_whether_node_can_stop(four: Cluster) -> None:
    """During an upgrade, not every node supports Chronik's own request."""
    with four[2].cluster() as client:
        ours = [to_planned_node(node) for node in describe_nodes(client).nodes]
        assert describe_nodes_from_quorum(client) == ours


def test_harmful_command_is_rejected_before_any_change(four: Cluster) -> None:
    before = nodes(four)
    for words, message in {
        ("demote", "1"): "without the vote of node 1 there would be two voters, which tolerate no failure",
        ("remove-node", "9"): "node 9 is not in this cluster; its nodes are 1, 2, 3, 4",
        ("add-node", "5"): "the peer address of node 5 is unknown: use --raft HOST:PORT or --dir DIR",
        ("replace-node", "1", "1"): "node 1 cannot replace itself",
    }.items():
        rejected = run_chronik("cluster", *words, "--yes", bootstrap=others(four))
        assert rejected.code == 1
        assert rejected.err.startswith(f"chronik: {message}")
    assert nodes(four) == before


def test_plan_is_printed_and_requires_confirmation(four: Cluster) -> None:
    before = nodes(four)
    declined = run_chronik("cluster", "drain", "1", bootstrap=others(four), stdin="n\n")
    assert declined.lines[-1] == "Continue? [y/N] No changes were made."
    silent = run_chronik("cluster", "drain", "1", bootstrap=others(four))
    assert (silent.code, "--yes" in silent.err) == (1, True)
    plan: Any = run_chronik("cluster", "remove-node", "1", "--dry-run", "--json", bootstrap=others(four)).json
    assert (plan["drains"], plan["promotes"], plan["removes"]) == (1, [4], 1)
    assert all(1 in move["replicas"] and 1 not in move["new_replicas"] for move in plan["moves"])
    assert nodes(four) == before


def test_voters_can_be_promoted_and_demoted(four: Cluster) -> None:
    assert operate(four, "promote", "4").lines[-1] == "node 4: promoted to voter"
    assert nodes(four)[4].is_voter
    assert operate(four, "demote", "4").lines[-1] == "node 4: demoted to observer"
    assert not nodes(four)[4].is_voter


def test_interrupted_removal_is_completed_by_next_run(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(nodes=4)
    (place,) = replication_helpers.create_topic(cluster, "heavy", 1, copies=1)
    home = replication_helpers.leader_of(cluster, place).node_id
    write(cluster, place, megabytes=4)
    # At this rate, the removal would take half a minute.
    command = ("cluster", "remove-node", str(home), "--yes", "--throttle", "128k")
    with subprocess.Popen([*COMMAND, *command], env=environment(cluster.bootstrap), stdout=subprocess.PIPE) as stopped:
        assert stopped.stdout is not None
        said = list(takewhile(lambda line: line != b"1 partition being reassigned\n", stopped.stdout))
        assert any(b"run it again to finish" in line for line in said)
        assert stopped.poll() is None
        stopped.kill()
    assert nodes(cluster)[home].draining
    again = run_chronik(
        "cluster", "remove-node", str(home), "--yes", "--wait", WAIT_SECONDS, bootstrap=cluster.bootstrap
    )
    assert again.lines[-1] == f"node {home}: removed from the cluster"
    assert "replication throttle removed" in again.lines
    cluster[home].stop()
    assert not throttles(cluster)
    assert len(list(cluster.live_nodes[0].records("heavy"))) == 4 * RECORDS_PER_MEGABYTE


RECORDS_PER_MEGABYTE = 10


def write(cluster: Cluster, place: Place, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(megabytes * RECORDS_PER_MEGABYTE):
        producer.produce(place.topic, b"%d" % (number % 10) * (2**20 // RECORDS_PER_MEGABYTE))
        producer.poll(0)
    assert producer.flush(60) == 0


def throttles(cluster: Cluster) -> dict[str, str | None]:
    described: Any = run_chronik(
        "topics", "describe", "heavy", "--json", bootstrap=cluster.live_nodes[0].bootstrap
    ).json
    return {
        name: value
        for name, value in described[0]["configs"].items()
        if name in (*THROTTLED_REPLICAS_KEYS, *THROTTLED_RATE_KEYS)
    }
