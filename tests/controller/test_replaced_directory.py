"""A node with a wiped data directory neither votes nor leads under its old identity, returns as a learner and becomes a
voter again. Empty disks cannot bootstrap a second cluster.
"""

from __future__ import annotations

import shutil

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.testing import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cli.command_line import run_chronik
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

NOBODY = -1
STARTS_PRE_VOTE = "-> pre-candidate"
"""Part of the log line of a node that starts a pre-vote."""
WAITS_FOR_ADMISSION = "waiting for admission"
ELECTIONS_SEEN = 5
"""Number of failed elections after which a test concludes that a node cannot be elected."""


def create_topic(cluster: Cluster, node: ClusterNode, name: str) -> None:
    """Create a topic with retries, because a node that has just started may not know a leader."""

    def missing() -> str | None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        with RawClient(node.bootstrap) as client:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            code = ErrorCode(client.request(request, 7, CreateTopicsResponse).topics[0].error_code)
        return None if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) else f"{name}: {code.name}"

    cluster.wait_until(missing, f"topic {name} created through node {node.node_id}")


def topics(node: ClusterNode) -> set[str]:
    return {topic["name"] for topic in run_chronik("metadata", "--json", bootstrap=node.bootstrap).json["topics"]}


def wipe(node: ClusterNode) -> None:
    shutil.rmtree(node.data_dir)


def wait_for_campaigns(cluster: Cluster, node: ClusterNode, times: int, since: int = 0) -> None:
    def missing() -> str | None:
        count = node.log[since:].count(STARTS_PRE_VOTE)
        return None if count >= times else f"it campaigned {count} times"

    cluster.wait_until(missing, f"node {node.node_id} campaigning {times} times")


def wait_for_log_line(cluster: Cluster, node: ClusterNode, words: str) -> None:
    cluster.wait_until(lambda: None if words in node.log else "not logged", f"node {node.node_id} logging {words!r}")


def member_state(node: ClusterNode, of: ClusterNode) -> tuple[bool, str]:
    """Return whether a node is a voter, and its directory, according to another node's membership."""
    (member,) = [member for member in node.status()["members"] if member["id"] == of.node_id]
    return member["voter"], member["directory_id"]


def wait_until_voter_on_new_directory(cluster: Cluster, node: ClusterNode, old_directory: str) -> None:
    def missing() -> str | None:
        seats = {member_state(each, node) for each in cluster.live_nodes}
        votes = len(seats) == 1 and all(is_voter and directory != old_directory for is_voter, directory in seats)
        return None if votes else f"memberships: {seats}"

    cluster.wait_until(missing, f"node {node.node_id} is a voter again for every node")


def test_wiped_node_returns_as_learner_and_becomes_voter(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    leader = cluster.leader()
    behind, wiped = [node for node in cluster.live_nodes if node is not leader]
    create_topic(cluster, leader, "known-to-all")
    cluster.wait_until_agreed()
    _, old_directory = member_state(leader, wiped)

    # One node misses an entry that the other two commit. Then those stop, and one of them loses its disk: with its
    # vote, the lagging node could become the leader, and the acknowledged entry would be lost.
    behind.kill()
    create_topic(cluster, leader, "missed-by-one")
    leader.kill()
    wiped.kill()
    wipe(wiped)
    before, since = len(behind.log), len(wiped.log)
    behind.start()
    wiped.start()
    wait_for_log_line(cluster, wiped, WAITS_FOR_ADMISSION)
    wait_for_campaigns(cluster, behind, ELECTIONS_SEEN, since=before)
    for node in (behind, wiped):
        assert node.status()["leader"] == NOBODY
    assert wiped.status()["term"] == 0
    assert "missed-by-one" not in topics(behind)

    leader.start()
    wait_until_voter_on_new_directory(cluster, wiped, old_directory)
    cluster.wait_until_ready()
    cluster.wait_until_agreed()
    leader_log = "".join(node.log for node in (leader, behind))
    assert f"node {wiped.node_id}: returned with another data directory; added again as a learner" in leader_log
    assert f"node {wiped.node_id}: caught up; promoted to voter" in leader_log
    assert "registered broker" in wiped.log[since:]
    described = [run_chronik("metadata", "--json", bootstrap=node.bootstrap).json for node in cluster.live_nodes]
    assert described[0]["topics"] == described[1]["topics"] == described[2]["topics"]
    assert {"known-to-all", "missed-by-one"} <= topics(wiped)
    assert described[0]["brokers"] == described[1]["brokers"] == described[2]["brokers"]

    # The new disk counts: together with one other node, it is a majority.
    leader.kill()
    create_topic(cluster, wiped, "after-all")
    assert "after-all" in topics(wiped)


def test_empty_disks_do_not_bootstrap_second_cluster(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """Nodes 1 and 2 bootstrap the cluster; node 3 never joins.

    Then node 2 loses its disk, and nodes 2 and 3 start before node 1: two empty disks, which are a majority of the
    configured nodes.
    """
    cluster = chronik_cluster_factory(start=False)
    holder, wiped, newcomer = (cluster[node_id] for node_id in (1, 2, 3))
    holder.start()
    wiped.start()
    cluster.wait_until_ready()
    create_topic(cluster, holder, "held")
    held = holder.status()["commit_index"]
    assert held > 0
    holder.kill()
    wiped.kill()
    wipe(wiped)

    wiped.start()
    newcomer.start()
    wait_for_campaigns(cluster, newcomer, 1)
    holder.start()
    for node in (wiped, newcomer):
        wait_for_log_line(cluster, node, WAITS_FOR_ADMISSION)
    wait_for_campaigns(cluster, newcomer, ELECTIONS_SEEN, since=len(newcomer.log))
    assert [node.status()["leader"] for node in cluster.live_nodes] == [NOBODY] * 3
    assert newcomer.status()["term"] == 0
    assert newcomer.status()["last_index"] == wiped.status()["last_index"] == 0
    assert holder.status()["last_index"] >= held
