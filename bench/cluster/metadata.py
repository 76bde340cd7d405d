"""Concurrent metadata reads and writes at a constant rate, through all nodes."""

from __future__ import annotations

import asyncio
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import open_connections, running_cluster
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.bench.pipelined import (
    PipelinedConnection,
    SendNumberedRequest,
    open_pipelined_connections,
    run_with_uvloop,
    send_at_constant_rate,
)
from chronik.bench.statistics import Latency
from chronik.client.admin import NewTopic, create_topics
from chronik.client.connection import BrokerConnection
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PER_SECOND: Final = 200
READ_P99_MS_MAX: Final = 2.0
WRITE_P99_MS_MAX: Final = 20.0
WARM_UP_SECONDS: Final = 1.0

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0


def measure_metadata(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure reads during config changes, which cost a log entry, and during topic creations (also directories)."""
    topics = [f"{generate_name('metadata')}-{number}" for number in range(plan.topics)]
    changes, creations = [], []
    with running_cluster(plan) as cluster:
        node = cluster.live_nodes[0]
        with node.cluster() as client:
            create_topics(client, [NewTopic(topic, 1) for topic in topics])
        cluster.wait_until_agreed()
        with open_connections(cluster.live_nodes) as node_connections:
            for _ in range(plan.rounds):  # before the number of topics grows
                changes.append(run_with_uvloop(_load(node_connections, topics, _Changes(topics), plan.seconds)))
            for number in range(plan.rounds):
                creations.append(run_with_uvloop(_load(node_connections, topics, _Creations(number), plan.seconds)))
    return [
        Figure(
            f"read p99, one topic of {plan.topics:,}, during {PER_SECOND} writes/s, ms",
            [reads.p99_ms for reads, _ in changes],
            below=READ_P99_MS_MAX,
        ),
        Figure("read p50, ms", [reads.p50_ms for reads, _ in changes]),
        Figure(
            f"write p99, {PER_SECOND} config changes/s, ms",
            [writes.p99_ms for _, writes in changes],
            below=WRITE_P99_MS_MAX,
        ),
        Figure("write p50, ms", [writes.p50_ms for _, writes in changes]),
        Figure(f"write p99, {PER_SECOND} new topics/s, ms", [writes.p99_ms for _, writes in creations]),
        Figure(f"read p99, during {PER_SECOND} new topics/s, ms", [reads.p99_ms for reads, _ in creations]),
    ]


async def _load(
    node_connections: list[BrokerConnection], topics: list[str], write: _Changes | _Creations, seconds: float
) -> tuple[Latency, Latency]:
    """Run reads and writes concurrently and return their latencies.

    They use separate connections: a broker responds in order, so a read behind a write would measure the write.
    """
    async with (
        open_pipelined_connections(node_connections) as read_pipes,
        open_pipelined_connections(node_connections) as write_pipes,
    ):
        read, send_write = _Reads(read_pipes, topics), write.create_sender(write_pipes)
        await asyncio.gather(*(send_at_constant_rate(ask, PER_SECOND, WARM_UP_SECONDS) for ask in (read, send_write)))
        reads, writes = await asyncio.gather(
            send_at_constant_rate(read, PER_SECOND, seconds), send_at_constant_rate(send_write, PER_SECOND, seconds)
        )
    return Latency.from_seconds(reads), Latency.from_seconds(writes)


class _Reads:
    """Metadata reads of one topic after another."""

    def __init__(self, pipes: list[PipelinedConnection], topics: list[str]) -> None:
        self._pipes = pipes
        self._topics = topics

    async def __call__(self, number: int) -> None:
        name = self._topics[number % len(self._topics)]
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response = await self._pipes[number % len(self._pipes)].send(request)
        assert isinstance(response, MetadataResponse)
        if [topic.name for topic in response.topics if not topic.error_code] != [name]:
            raise BenchmarkError(f"topic {name} was created but is missing in a node's Metadata response")


class _Changes:
    """Config changes of one topic after another, with a different value each time."""

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def create_sender(self, pipes: list[PipelinedConnection]) -> SendNumberedRequest:
        async def ask(number: int) -> None:
            value = str(1_000_000 + number)
            config = IncrementalAlterableConfig(name="retention.ms", config_operation=_SET, value=value)
            name = self._topics[number % len(self._topics)]
            resource = IncrementalAlterConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configs=[config]
            )
            response = await pipes[number % len(pipes)].send(IncrementalAlterConfigsRequest(resources=[resource]))
            assert isinstance(response, IncrementalAlterConfigsResponse)
            (result,) = response.responses
            _check(result.error_code, result.error_message)

        return ask


class _Creations:
    """Topic creations."""

    def __init__(self, round_number: int) -> None:
        self._prefix = f"{generate_name('new')}-{round_number}"
        self._last = 0

    def create_sender(self, pipes: list[PipelinedConnection]) -> SendNumberedRequest:
        async def ask(number: int) -> None:
            self._last += 1  # `number` restarts after the warm-up
            topic = CreatableTopic(name=f"{self._prefix}-{self._last}", num_partitions=1, replication_factor=-1)
            response = await pipes[number % len(pipes)].send(CreateTopicsRequest(topics=[topic]))
            assert isinstance(response, CreateTopicsResponse)
            (result,) = response.topics
            _check(result.error_code, result.error_message)

        return ask


def _check(code: int, message: str | None) -> None:
    if code:
        raise BenchmarkError(f"metadata change rejected: {ErrorCode(code).name}: {message}")
