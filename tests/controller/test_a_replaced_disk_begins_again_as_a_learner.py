"""A node whose data folder was wiped has forgotten what it promised: it neither votes nor leads under its old identity,
comes back as a learner, and is a voter again when it holds everything. Nor can empty disks found a second cluster."""

from __future__ import annotations

import shutil

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.testing import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cli.running import chronik
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

NOBODY = -1
STANDS = "-> pre-candidate"
"""What a node logs when it would like to be elected."""
WAITS = "waiting to be let in"
ELECTIONS_SEEN = 5
"""So often a node tries to be elected before a test believes that it cannot: longer than any patience."""


def create_topic(cluster: Cluster, node: ClusterNode, name: str) -> None:
    """Until it is answered: a node that has just started may have no leader to ask yet."""

    def missing() -> str | None:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        with RawClient(node.bootstrap) as client:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            code = ErrorCode(client.ask(request, 7, CreateTopicsResponse).topics[0].error_code)
        return None if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) else f"{name}: {code.name}"

    cluster.wait_until(missing, f"topic {name} created through node {node.node_id}")


def topics(node: ClusterNode) -> set[str]:
    return {topic["name"] for topic in chronik("metadata", "--json", bootstrap=node.bootstrap).json["topics"]}


def wipe(node: ClusterNode) -> None:
    shutil.rmtree(node.data_dir)


def wait_until_it_stood(cluster: Cluster, node: ClusterNode, times: int, since: int = 0) -> None:
    def missing() -> str | None:
        count = node.log[since:].count(STANDS)
        return None if count >= times else f"it stood {count} times"

    cluster.wait_until(missing, f"node {node.node_id} standing {times} times")


def wait_until_it_says(cluster: Cluster, node: ClusterNode, words: str) -> None:
    cluster.wait_until(lambda: None if words in node.log else "not said", f"node {node.node_id} saying {words!r}")


def seat(node: ClusterNode, of: ClusterNode) -> tuple[bool, str]:
    """Whether a node votes, and its directory, as another node's membership has it."""
    (member,) = [member for member in node.status()["members"] if member["id"] == of.node_id]
    return member["voter"], member["directory_id"]


def wait_until_it_votes_on_another_disk(cluster: Cluster, node: ClusterNode, old_directory: str) -> None:
    def missing() -> str | None:
        seats = {seat(each, node) for each in cluster.live}
        votes = len(seats) == 1 and all(is_voter and directory != old_directory for is_voter, directory in seats)
        return None if votes else f"its seats: {seats}"

    cluster.wait_until(missing, f"node {node.node_id} votes again, as every node sees it")


def test_a_wiped_node_gives_no_vote_and_comes_back_as_a_learner_and_then_a_voter(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    leader = cluster.leader()
    behind, wiped = [node for node in cluster.live if node is not leader]
    create_topic(cluster, leader, "known-to-all")
    cluster.wait_until_agreed()
    _, old_directory = seat(leader, wiped)

    # One node misses what the two others commit. Then those go down, and one of them loses its disk: only its vote
    # could make the one that is behind a leader, and what was acknowledged would be gone.
    behind.kill()
    create_topic(cluster, leader, "missed-by-one")
    leader.kill()
    wiped.kill()
    wipe(wiped)
    before, since = len(behind.log), len(wiped.log)
    behind.start()
    wiped.start()
    wait_until_it_says(cluster, wiped, WAITS)
    wait_until_it_stood(cluster, behind, ELECTIONS_SEEN, since=before)
    for node in (behind, wiped):
        assert node.status()["leader"] == NOBODY
    assert wiped.status()["term"] == 0
    assert "missed-by-one" not in topics(behind)

    leader.start()
    wait_until_it_votes_on_another_disk(cluster, wiped, old_directory)
    cluster.wait_until_ready()
    cluster.wait_until_agreed()
    said = "".join(node.log for node in (leader, behind))
    assert f"node {wiped.node_id} is back on another disk: it begins again as a learner" in said
    assert f"node {wiped.node_id} has caught up: it votes" in said
    assert "registered broker" in wiped.log[since:]
    described = [chronik("metadata", "--json", bootstrap=node.bootstrap).json for node in cluster.live]
    assert described[0]["topics"] == described[1]["topics"] == described[2]["topics"]
    assert {"known-to-all", "missed-by-one"} <= topics(wiped)
    assert described[0]["brokers"] == described[1]["brokers"] == described[2]["brokers"]

    # Its new disk counts: with one of the others it is a majority.
    leader.kill()
    create_topic(cluster, wiped, "after-all")
    assert "after-all" in topics(wiped)


def test_empty_disks_found_no_second_cluster_beside_one_that_is_slow_to_return(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """Nodes 1 and 2 found the cluster; 3 never took part. Then 2 loses its disk, and 2 and 3 start before 1 does: two
    empty disks, a majority of those configured."""
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
    wait_until_it_stood(cluster, newcomer, 1)
    holder.start()
    for node in (wiped, newcomer):
        wait_until_it_says(cluster, node, WAITS)
    wait_until_it_stood(cluster, newcomer, ELECTIONS_SEEN, since=len(newcomer.log))
    assert [node.status()["leader"] for node in cluster.live] == [NOBODY] * 3
    assert newcomer.status()["term"] == 0
    assert newcomer.status()["last_index"] == wiped.status()["last_index"] == 0
    assert holder.status()["last_index"] >= held
