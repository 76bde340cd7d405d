"""The cost of a larger cluster by nodes and partitions: start, idle CPU, memory, metadata, failover, adding a node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench.cluster.availability import create_topic_until_success
from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.idle import SETTLED_SECONDS, measure_idle_cluster
from bench.cluster.nodes import (
    PARTITIONS_PER_TOPIC,
    add_user_node,
    connect,
    connect_client,
    create_cluster,
    is_fully_in_sync,
    start_nodes,
)
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.bench.statistics import MEGABYTE, Latency, read_cpu_seconds, read_resident_bytes
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.connection import BrokerConnection
from chronik.client.nodes import AlterNodesAction, AlterNodesChange, alter_nodes
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing.cluster import Cluster, ClusterNode

REPLICATION_FACTOR: Final = 3
ADDED_NODES: Final = 2
READS: Final = 300
READS_OF_ALL: Final = 5
CHANGES: Final = 100
WAIT_SECONDS_MAX: Final = 240.0
JOIN_PERIOD_SECONDS: Final = 3.0
"""The period after admitting a node in which the controller's additional CPU is attributed to it."""

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0


def measure_growth(plan: ClusterBenchmarkPlan) -> list[Figure]:
    return [figure for size in plan.sizes for count in plan.partitions for figure in _measure_one(plan, size, count)]


def _measure_one(plan: ClusterBenchmarkPlan, size: int, count: int) -> list[Figure]:
    where = f"{size} nodes, {count:,} partitions"
    with create_cluster(plan, size) as nodes:
        started = time.perf_counter()
        start_nodes(nodes)
        nodes.wait_until_ready()
        up_seconds = time.perf_counter() - started
        started = time.perf_counter()
        topics = _create(nodes, count)
        created_seconds = time.perf_counter() - started
        return [
            Figure(f"{where}: start of an empty cluster, s", [up_seconds]),
            Figure(f"{where}: partitions created until in sync, s", [created_seconds]),
            *_idle(nodes, plan, where),
            *_latencies(nodes, topics, where),
            *_add_nodes(nodes, plan, where),
            *_failover(nodes, topics[0], where),
            _start_again(nodes, topics, where),
        ]


def _create(nodes: Cluster, count: int) -> list[str]:
    sizes = [min(PARTITIONS_PER_TOPIC, count - first) for first in range(0, count, PARTITIONS_PER_TOPIC)]
    topics = [generate_name("growth") for _ in sizes]
    with connect_client(nodes) as client:
        create_topics(
            client, [NewTopic(name, size, REPLICATION_FACTOR) for name, size in zip(topics, sizes, strict=True)]
        )
    _wait_until_in_sync(nodes, topics)
    nodes.wait_until_agreed()
    return topics


def _wait_until_in_sync(nodes: Cluster, topics: list[str]) -> None:
    """Wait until all replicas are in sync. Queries one node topic by topic, to keep the load small."""
    remaining = list(topics)
    with Client(nodes.live_nodes[0].bootstrap) as client:

        def missing() -> str | None:
            while remaining:
                (topic,) = client.metadata([remaining[-1]]).topics
                if topic.error_code or not topic.partitions or not all(map(is_fully_in_sync, topic.partitions)):
                    return f"{len(remaining)} topics are not in sync"
                remaining.pop()
            return None

        nodes.wait_until(missing, "all replicas in sync", WAIT_SECONDS_MAX)


def _idle(nodes: Cluster, plan: ClusterBenchmarkPlan, where: str) -> Iterator[Figure]:
    time.sleep(SETTLED_SECONDS)
    controller = nodes.live_nodes.index(nodes.leader())
    percents, _ = measure_idle_cluster(nodes, plan.idle_seconds)
    resident = [read_resident_bytes(node.pid) / MEGABYTE for node in nodes.live_nodes]
    yield Figure(f"{where}: idle CPU of the controller, % of a core", [percents.pop(controller)])
    yield Figure(f"{where}: idle CPU of another node, % of a core", percents)
    yield Figure(f"{where}: memory of a node, MB", resident)


# Reads and writes


def _latencies(nodes: Cluster, topics: list[str], where: str) -> Iterator[Figure]:
    """Measure sequential requests to a node that does not lead the metadata log."""
    controller = nodes.leader()
    connection = connect(next(node for node in nodes.live_nodes if node is not controller))
    try:
        reads = Latency.from_seconds([_read(connection, [topics[number % len(topics)]]) for number in range(READS)])
        all_topics = Latency.from_seconds([_read(connection, None) for _ in range(READS_OF_ALL)])
        cpu_before = read_cpu_seconds(controller.pid)
        writes = Latency.from_seconds([_change(connection, topics[0], number) for number in range(CHANGES)])
        cpu_before = read_cpu_seconds(controller.pid) - cpu_before
    finally:
        connection.close()
    yield Figure(f"{where}: metadata of a topic of {PARTITIONS_PER_TOPIC}, p50, ms", [reads.p50_ms])
    yield Figure(f"{where}: metadata of a topic of {PARTITIONS_PER_TOPIC}, p99, ms", [reads.p99_ms])
    yield Figure(f"{where}: metadata of all topics, p50, ms", [all_topics.p50_ms])
    yield Figure(f"{where}: change of a config, p50, ms", [writes.p50_ms])
    yield Figure(f"{where}: change of a config, p99, ms", [writes.p99_ms])
    yield Figure(f"{where}: change of a config, CPU of the controller, ms", [1000 * cpu_before / CHANGES])


def _read(connection: BrokerConnection, names: list[str] | None) -> float:
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    started = time.perf_counter()
    connection.request(request, MetadataResponse)
    return time.perf_counter() - started


def _change(connection: BrokerConnection, topic: str, number: int) -> float:
    config = IncrementalAlterableConfig(name="retention.ms", config_operation=_SET, value=str(1_000_000 + number))
    resource = IncrementalAlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[config])
    started = time.perf_counter()
    response = connection.request(IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)
    seconds = time.perf_counter() - started
    if response.responses[0].error_code:
        raise BenchmarkError(f"config change failed: {ErrorCode(response.responses[0].error_code).name}")
    return seconds


# Adding a node


def _add_nodes(nodes: Cluster, plan: ClusterBenchmarkPlan, where: str) -> Iterator[Figure]:
    """Measure the controller's additional CPU for a new node, and the time until the node is ready."""
    controller = nodes.leader()
    pid = controller.pid
    costs, joins = [], []
    for node_id in range(len(nodes.nodes) + 1, len(nodes.nodes) + 1 + ADDED_NODES):
        new_node = add_user_node(nodes, node_id)
        address = nodes.raft_address(node_id)
        time.sleep(SETTLED_SECONDS)
        idle = _cpu_seconds_during(pid, plan.idle_seconds) / plan.idle_seconds
        cpu_before, started = read_cpu_seconds(pid), time.perf_counter()
        with Client(controller.bootstrap) as client:
            alter_nodes(client, [AlterNodesChange(AlterNodesAction.ADD, node_id, address.host, address.port)])
        new_node.start()
        nodes.wait_until(new_node.not_ready_reason, f"node {node_id} ready", WAIT_SECONDS_MAX)
        joins.append(time.perf_counter() - started)
        time.sleep(max(0.0, JOIN_PERIOD_SECONDS - joins[-1]))
        elapsed = time.perf_counter() - started
        costs.append(1000 * (read_cpu_seconds(pid) - cpu_before - idle * elapsed))
    yield Figure(f"{where}: CPU of the controller to add a node, ms", costs)
    yield Figure(f"{where}: add a node, until it is ready, s", joins)


def _cpu_seconds_during(pid: int, seconds: float) -> float:
    cpu_before = read_cpu_seconds(pid)
    time.sleep(seconds)
    return read_cpu_seconds(pid) - cpu_before


# Failover, and the start


def _failover(nodes: Cluster, topic: str, where: str) -> Iterator[Figure]:
    """Kill -9 the controller, which also leads partitions. Measure until metadata and partitions are available."""
    controller = nodes.leader()
    survivor = next(node for node in nodes.live_nodes if node is not controller)
    writer, reader = connect(survivor), connect(survivor)
    with ThreadPoolExecutor(2) as threads:
        started = time.perf_counter()
        controller.kill()
        written = threads.submit(_timed, started, lambda: create_topic_until_success(writer))
        new_leaders = threads.submit(_timed, started, lambda: _wait_until_led(nodes, reader, topic, controller))
        yield Figure(f"{where}: kill -9 of the controller, until metadata is written, s", [written.result()])
        yield Figure(f"{where}: kill -9 of the controller, until others lead its partitions, s", [new_leaders.result()])
    writer.close()
    reader.close()


def _timed(started: float, action: object) -> float:
    assert callable(action)
    action()
    return time.perf_counter() - started


def _wait_until_led(nodes: Cluster, reader: BrokerConnection, topic: str, killed: ClusterNode) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)

    def missing() -> str | None:
        (topic_metadata,) = reader.request(request, MetadataResponse).topics
        leaders = {partition.leader_id for partition in topic_metadata.partitions}
        return None if leaders and not leaders & {-1, killed.node_id} else f"leaders: {sorted(leaders)}"

    nodes.wait_until(missing, "all partitions led by others", WAIT_SECONDS_MAX)


def _start_again(nodes: Cluster, topics: list[str], where: str) -> Figure:
    """Restart all nodes at the same time from their disks."""
    nodes.wait_until_agreed()
    for node in nodes.live_nodes:
        node.kill()
    started = time.perf_counter()
    start_nodes(nodes)
    nodes.wait_until_ready(WAIT_SECONDS_MAX)
    _wait_until_in_sync(nodes, topics)
    return Figure(f"{where}: start of all after kill -9 until all is in sync, s", [time.perf_counter() - started])
