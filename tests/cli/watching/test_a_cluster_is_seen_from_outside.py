"""One look at a real node: what Kafka's API and the node's pages tell, put together, and what could not be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.cli.watching.asking import Lag, lag_of
from chronik.cli.watching.exposition import first_of, sums
from chronik.cli.watching.pages import HttpPort
from chronik.cli.watching.watcher import Watcher
from chronik.client.access.settings import Access
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.config import Address

from .one_node import Running, node_here

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with node_here(tmp_path_factory.mktemp("node")) as running:
        with Cluster(running.bootstrap) as cluster:
            create_topics(cluster, [NewTopic("orders", 2)])
            Producer(cluster).send("orders", [OutgoingRecord(b"tea", partition=0)] * 3)
            commit_offsets(cluster, "shop", {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 0})
        yield running


def watcher(bootstrap: str, *http: str) -> Watcher:
    ports = [HttpPort(Address.parse(each)) for each in http]
    return Watcher(Access(bootstrap), ports, timeout_s=5.0, is_thorough=True)


def test_a_look_sees_nodes_partitions_and_groups(running: Running) -> None:
    with watcher(running.bootstrap, running.http) as looks:
        facts = looks.look()
    [node] = facts.nodes
    assert (node.id, node.kafka, node.http, node.status) == (1, running.bootstrap, running.http, "online")
    assert node.state_hash
    assert node.version
    assert node.levels
    assert node.requests
    assert node.log_bytes
    assert node.disk_free_bytes
    assert node.clock_ahead_ms is not None
    assert abs(node.clock_ahead_ms) <= node.clock_doubt_ms + 1
    orders = [(each.index, each.leader, each.replicas, each.end) for each in facts.partitions if each.topic == "orders"]
    assert orders == [(0, 1, (1,), 3), (1, 1, (1,), 0)]
    assert [(group.name, group.state, group.lag) for group in facts.groups] == [("shop", "Empty", 2)]
    assert facts.unseen == ()


def test_without_pages_the_rest_is_seen_and_that_is_told(running: Running) -> None:
    with watcher(running.bootstrap) as looks:
        facts = looks.look()
    assert facts.nodes[0].state_hash is None
    assert facts.nodes[0].log_bytes
    assert [each.what for each in facts.unseen] == ["the nodes' pages"]


def test_a_page_that_does_not_answer_is_told_of(running: Running) -> None:
    with watcher(running.bootstrap, running.http, NOBODY) as looks:
        facts = looks.look()
    assert facts.nodes[0].state_hash
    [unseen] = facts.unseen
    assert unseen.what == f"the pages at {NOBODY}"
    assert "Connection refused" in unseen.why


def test_what_is_no_node_is_not_taken_for_one(running: Running) -> None:
    with watcher(running.bootstrap, running.bootstrap) as looks:
        [unseen] = looks.look().unseen
    assert unseen.what == f"the pages at {running.bootstrap}"


def test_a_node_whose_brokers_port_is_silent_is_seen_by_its_page(running: Running) -> None:
    with watcher(NOBODY, running.http) as looks:
        facts = looks.look()
    assert [node.id for node in facts.nodes] == [1]
    assert [each.what for each in facts.unseen] == ["brokers"]
    assert facts.partitions == ()


def test_nobody_at_all_is_an_error() -> None:
    with watcher(NOBODY) as looks, pytest.raises(ClientError, match="no broker at"):
        looks.look()


def test_who_may_not_look_is_told_so(tmp_path: Path) -> None:
    """With an authorizer, and no ACL: everything but what is open to all is refused, and told as not seen."""
    guarded = {"authorizer.class.name": "standard"}
    with node_here(tmp_path, broker=guarded) as running, watcher(running.bootstrap) as looks:
        facts = looks.look()
    assert len(facts.nodes) == 1
    assert any("authori" in each.why.lower() for each in facts.unseen), facts.unseen


# Parts


def test_lag_is_counted_where_ends_are_known() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert lag_of({first: 3, second: 5}, {first: 10, second: 5}) == Lag(7, True)
    assert lag_of({first: 3, second: 5}, {first: 10}) == Lag(7, False)
    assert lag_of({first: 12}, {first: 10}) == Lag(0, True)
    assert lag_of({first: 3}, {}) == Lag(None, False)
    assert lag_of({}, {}) == Lag(0, True)


def test_samples_of_a_family_are_added_up() -> None:
    text = (
        "# HELP chronik_requests_total Requests.\n# TYPE chronik_requests_total counter\n"
        'chronik_requests_total{api="Fetch"} 3\nchronik_requests_total{api="odd } 9"} 4\n'
        "chronik_connections 2\nchronik_x NaN\nnot a sample\nchronik_y zero\n"
    )
    found = sums(text)
    assert found["chronik_requests_total"] == 7
    assert first_of(found, "chronik_nothing", "chronik_connections") == 2
    assert first_of(found, "chronik_nothing", "chronik_y") is None
