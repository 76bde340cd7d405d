"""Operator commands that add, remove and drain nodes while clients write and read without errors."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.client.cluster_views import view_partitions
from chronik.client.nodes import describe_nodes, view_of
from chronik.client.quorum import nodes_by_quorum
from chronik.client.throttle import RATES, REPLICAS
from chronik.protocol.messages.describe_nodes import DescribedNode
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.cli.running import COMMAND, Outcome, chronik, environment
from tests.cluster import replicated

pytestmark = pytest.mark.xdist_group("cluster")

WAIT_SECONDS = "55"


def operate(cluster: Cluster, *words: str) -> Outcome:
    """Run the command against any node but the first, with --yes."""
    done = chronik("cluster", *words, "--yes", "--wait", WAIT_SECONDS, bootstrap=others(cluster))
    assert done.code == 0, done.err
    return done


def others(cluster: Cluster) -> str:
    return ",".join(node.bootstrap for node in cluster.live if node.node_id != 1)


def nodes(cluster: Cluster) -> dict[int, DescribedNode]:
    with cluster.live[-1].cluster() as client:
        return {node.node_id: node for node in describe_nodes(client).nodes}


def holders(cluster: Cluster, topic: str | None = None) -> set[int]:
    with cluster.live[-1].cluster() as client:
        views = view_partitions(client)
    return {replica for each in views if topic in (None, each.topic) for replica in each.replicas + each.leaving}


def led_by(cluster: Cluster, node_id: int) -> list[str]:
    with cluster.live[-1].cluster() as client:
        return [str(each) for each in view_partitions(client) if each.leader == node_id and each.topic != "__meta"]


def join(cluster: Cluster, node_id: int) -> ClusterNode:
    """Start a node that the cluster does not know, and add it."""
    node = cluster.add_node(node_id)
    node.start()
    operate(cluster, "add-node", str(node_id), "--raft", str(cluster.raft_address(node_id)))
    return node


def test_node_can_be_added_and_removed_under_load(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    places = replicated.make_topic(cluster, "growing", 4)
    load = replicated.ConfluentLoad(cluster.bootstrap, "growing", 4, rate=100.0)
    reader = replicated.ConfluentFollower(cluster.bootstrap, "growing", "readers")
    with replicated.running(reader):
        with replicated.running(load):
            load.wait_until_it_goes_on()
            join(cluster, 4)
            assert (nodes(cluster)[4].is_member, nodes(cluster)[4].is_voter) == (True, False)
            assert 4 not in holders(cluster)

            operate(cluster, "rebalance")
            assert 4 in holders(cluster, "growing")
            assert operate(cluster, "rebalance").lines == ["the cluster is balanced: no partitions need to move"]
            load.wait_until_it_goes_on()

            said = operate(cluster, "remove-node", "1")
            assert said.lines[0].strip().startswith("1. drain node 1")
            assert said.lines[-1] == "node 1: removed from the cluster"
            assert {node_id for node_id, node in nodes(cluster).items() if node.is_voter} == {2, 3, 4}
            assert holders(cluster) == {2, 3, 4}
            cluster[1].stop()
            load.wait_until_it_goes_on()
        ends = replicated.ends_of(others(cluster), places)
        reader.wait_until_it_has_read({place.partition: end for place, end in ends.items()})
    assert not load.problems
    assert not reader.problems
    replicated.check_records(others(cluster), places, [load])
    replicated.check_follower(others(cluster), places, reader)


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    with Cluster(4) as cluster:
        replicated.make_topic(cluster, "kept", 8, min_insync_replicas="2")
        yield cluster


def test_drained_node_leads_nothing_until_undrained(four: Cluster) -> None:
    operate(four, "rebalance")
    assert led_by(four, 1)
    assert operate(four, "drain", "1").lines[-1] == "node 1: drained"
    assert led_by(four, 1) == []
    assert nodes(four)[1].status == "maintenance"
    assert operate(four, "drain", "1").lines == ["node 1 is already drained"]
    status = chronik("cluster", "status", "--json", bootstrap=four[2].bootstrap).json
    assert [node["status"] for node in status["nodes"]] == ["drained", "online", "online", "online"]

    before = holders(four, "late")
    replicated.make_topic(four, "late", 6)
    assert before == set()
    assert holders(four, "late") == {2, 3, 4}

    operate(four, "undrain", "1")
    assert nodes(four)[1].status == "online"
    chronik("topics", "elect-leaders", bootstrap=four[2].bootstrap)
    four.wait_until(lambda: None if led_by(four, 1) else "node 1 leads nothing", "node 1 to lead again")


def test_safe_to_stop_fails_while_replica_is_offline(four: Cluster) -> None:
    assert chronik("cluster", "ok-to-stop", "1", bootstrap=others(four)).lines == [
        "node 1 can be stopped: all partitions and the metadata quorum stay available"
    ]
    four[3].kill()
    four.wait_until_listed([1, 2, 4])
    rejected = chronik("cluster", "ok-to-stop", "1", bootstrap=others(four))
    assert (rejected.code, rejected.err) == (1, "")
    assert rejected.out.startswith("no: only 1 of 3 voters would be left, which is no majority")
    assert "fewer in-sync replicas than min.insync.replicas" in rejected.out
    message = chronik("cluster", "ok-to-stop", "4", "--json", bootstrap=four[1].bootstrap)
    assert message.code == 1
    assert '"too few in sync"' in message.out
    four[3].start()
    assert chronik("cluster", "ok-to-stop", "1", "--wait", WAIT_SECONDS, bootstrap=others(four)).code == 0


def test_kafka_admin_requests_show_whether_node_can_stop(four: Cluster) -> None:
    """During an upgrade, not every node supports Chronik's own request."""
    with four[2].cluster() as client:
        ours = [view_of(node) for node in describe_nodes(client).nodes]
        assert nodes_by_quorum(client) == ours


def test_harmful_command_is_rejected_before_any_change(four: Cluster) -> None:
    before = nodes(four)
    for words, message in {
        ("demote", "1"): "without the vote of node 1 there would be two voters, which tolerate no failure",
        ("remove-node", "9"): "node 9 is not in this cluster; its nodes are 1, 2, 3, 4",
        ("add-node", "5"): "the peer address of node 5 is unknown: use --raft HOST:PORT or --dir DIR",
        ("replace-node", "1", "1"): "node 1 cannot replace itself",
    }.items():
        rejected = chronik("cluster", *words, "--yes", bootstrap=others(four))
        assert rejected.code == 1
        assert rejected.err.startswith(f"chronik: {message}")
    assert nodes(four) == before


def test_plan_is_printed_and_requires_confirmation(four: Cluster) -> None:
    before = nodes(four)
    declined = chronik("cluster", "drain", "1", bootstrap=others(four), stdin="n\n")
    assert declined.lines[-1] == "Continue? [y/N] No changes were made."
    silent = chronik("cluster", "drain", "1", bootstrap=others(four))
    assert (silent.code, "--yes" in silent.err) == (1, True)
    plan: Any = chronik("cluster", "remove-node", "1", "--dry-run", "--json", bootstrap=others(four)).json
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
    (place,) = replicated.make_topic(cluster, "heavy", 1, copies=1)
    home = replicated.leader_of(cluster, place).node_id
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
    again = chronik("cluster", "remove-node", str(home), "--yes", "--wait", WAIT_SECONDS, bootstrap=cluster.bootstrap)
    assert again.lines[-1] == f"node {home}: removed from the cluster"
    assert "replication throttle removed" in again.lines
    cluster[home].stop()
    assert not throttles(cluster)
    assert len(list(cluster.live[0].records("heavy"))) == 4 * RECORDS_PER_MEGABYTE


RECORDS_PER_MEGABYTE = 10


def write(cluster: Cluster, place: Place, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(megabytes * RECORDS_PER_MEGABYTE):
        producer.produce(place.topic, b"%d" % (number % 10) * (2**20 // RECORDS_PER_MEGABYTE))
        producer.poll(0)
    assert producer.flush(60) == 0


def throttles(cluster: Cluster) -> dict[str, str | None]:
    described: Any = chronik("topics", "describe", "heavy", "--json", bootstrap=cluster.live[0].bootstrap).json
    return {name: value for name, value in described[0]["configs"].items() if name in (*REPLICAS, *RATES)}
