"""Facts of a real node, collected over Kafka's protocol and HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.cli.monitoring.broker_requests import ConsumerLag, compute_lag
from chronik.cli.monitoring.cluster_monitor import ClusterMonitor
from chronik.cli.monitoring.node_pages import HttpEndpoint, find_first_metric, sum_metrics
from chronik.client.access.settings import BootstrapAccess
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.config import Address

from .in_process_node import InProcessNode, run_node_in_process

UNUSED_ADDRESS = "127.0.0.1:1"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessNode]:
    with run_node_in_process(tmp_path_factory.mktemp("node")) as running:
        with ClusterClient(running.bootstrap) as cluster:
            create_topics(cluster, [NewTopic("orders", 2)])
            Producer(cluster).send("orders", [OutgoingRecord(b"tea", partition=0)] * 3)
            commit_offsets(cluster, "shop", {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 0})
        yield running


def open_monitor(bootstrap: str, *http: str) -> ClusterMonitor:
    ports = [HttpEndpoint(Address.parse(each)) for each in http]
    return ClusterMonitor(BootstrapAccess(bootstrap), ports, timeout_s=5.0, find_hanging_transactions=True)


def test_facts_contain_nodes_partitions_and_groups(running: InProcessNode) -> None:
    with open_monitor(running.bootstrap, running.http) as monitor:
        facts = monitor.collect()
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


def test_missing_http_address_is_recorded_and_other_facts_collected(running: InProcessNode) -> None:
    with open_monitor(running.bootstrap) as monitor:
        facts = monitor.collect()
    assert facts.nodes[0].state_hash is None
    assert facts.nodes[0].log_bytes
    assert [each.what for each in facts.unseen] == ["/status and /metrics of the nodes"]


def test_unreachable_http_port_is_recorded(running: InProcessNode) -> None:
    with open_monitor(running.bootstrap, running.http, UNUSED_ADDRESS) as monitor:
        facts = monitor.collect()
    assert facts.nodes[0].state_hash
    [failure] = facts.unseen
    assert failure.what == f"/status and /metrics of {UNUSED_ADDRESS}"
    assert "Connection refused" in failure.why


def test_http_port_of_other_service_is_rejected(running: InProcessNode) -> None:
    with open_monitor(running.bootstrap, running.bootstrap) as monitor:
        [failure] = monitor.collect().unseen
    assert failure.what == f"/status and /metrics of {running.bootstrap}"


def test_node_with_unreachable_kafka_port_is_found_over_http(running: InProcessNode) -> None:
    with open_monitor(UNUSED_ADDRESS, running.http) as monitor:
        facts = monitor.collect()
    assert [node.id for node in facts.nodes] == [1]
    assert [each.what for each in facts.unseen] == ["brokers"]
    assert facts.partitions == ()


def test_unreachable_cluster_raises_client_error() -> None:
    with open_monitor(UNUSED_ADDRESS) as monitor, pytest.raises(ClientError, match="no broker at"):
        monitor.collect()


def test_missing_permissions_are_recorded_as_failures(tmp_path: Path) -> None:
    """With an authorizer and without ACLs, most requests are rejected and recorded as failures."""
    configs = {"authorizer.class.name": "standard"}
    with run_node_in_process(tmp_path, broker=configs) as running, open_monitor(running.bootstrap) as monitor:
        facts = monitor.collect()
    assert len(facts.nodes) == 1
    assert any("authori" in each.why.lower() for each in facts.unseen), facts.unseen


# Helpers


def test_lag_is_computed_for_known_end_offsets() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert compute_lag({first: 3, second: 5}, {first: 10, second: 5}) == ConsumerLag(7, True)
    assert compute_lag({first: 3, second: 5}, {first: 10}) == ConsumerLag(7, False)
    assert compute_lag({first: 12}, {first: 10}) == ConsumerLag(0, True)
    assert compute_lag({first: 3}, {}) == ConsumerLag(None, False)
    assert compute_lag({}, {}) == ConsumerLag(0, True)


def test_metric_samples_are_summed_over_labels() -> None:
    text = (
        "# HELP chronik_requests_total Requests.\n# TYPE chronik_requests_total counter\n"
        'chronik_requests_total{api="Fetch"} 3\nchronik_requests_total{api="odd } 9"} 4\n'
        "chronik_connections 2\nchronik_x NaN\nnot a sample\nchronik_y zero\n"
    )
    found = sum_metrics(text)
    assert found["chronik_requests_total"] == 7
    assert find_first_metric(found, "chronik_nothing", "chronik_connections") == 2
    assert find_first_metric(found, "chronik_nothing", "chronik_y") is None
