"""Reads and writes of the metadata beside each other, at a steady rate, through all nodes in turn."""

from __future__ import annotations

import asyncio
from typing import Final

from bench.cluster.figures import Figure, Plan
from bench.cluster.nodes import connections, running_cluster
from chronik.bench.clients import unique_name
from chronik.bench.cluster_pipes import Ask, Pipe, at_a_steady_rate, open_pipes, run_on_best_loop
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import Latency
from chronik.client.admin import NewTopic, create_topics
from chronik.client.connection import Connection
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PER_SECOND: Final = 200
READ_P99_MS_MAX: Final = 2.0
WRITE_P99_MS_MAX: Final = 20.0
WARM_UP_SECONDS: Final = 1.0

_TOPIC_RESOURCE: Final = 2
_SET: Final = 0


def measure_metadata(plan: Plan) -> list[Figure]:
    """Writes are changes of a topic's config, which cost what the log costs; new topics, which cost their folders on
    three nodes too, are told beside them."""
    topics = [f"{unique_name('metadata')}-{number}" for number in range(plan.topics)]
    changes, creations = [], []
    with running_cluster(plan) as cluster:
        node = cluster.live[0]
        with node.cluster() as client:
            create_topics(client, [NewTopic(topic, 1) for topic in topics])
        cluster.wait_until_agreed()
        with connections(cluster.live) as opened:
            for _ in range(plan.rounds):  # all of them before there are more topics than were asked for
                changes.append(run_on_best_loop(_load(opened, topics, _Changes(topics), plan.seconds)))
            for number in range(plan.rounds):
                creations.append(run_on_best_loop(_load(opened, topics, _Creations(number), plan.seconds)))
    return [
        Figure(
            f"read p99, one topic of {plan.topics:,}, beside {PER_SECOND} writes/s, ms",
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
        Figure("read p99 beside them, ms", [reads.p99_ms for reads, _ in creations]),
    ]


async def _load(
    opened: list[Connection], topics: list[str], write: _Changes | _Creations, seconds: float
) -> tuple[Latency, Latency]:
    """Reads and writes have connections of their own: a broker answers a connection in order, and a read that waits
    behind a write would measure the write."""
    async with open_pipes(opened) as reading, open_pipes(opened) as writing:
        read, changed = _Reads(reading, topics), write.over(writing)
        await asyncio.gather(*(at_a_steady_rate(ask, PER_SECOND, WARM_UP_SECONDS) for ask in (read, changed)))
        reads, writes = await asyncio.gather(
            at_a_steady_rate(read, PER_SECOND, seconds), at_a_steady_rate(changed, PER_SECOND, seconds)
        )
    return Latency.of(reads), Latency.of(writes)


class _Reads:
    def __init__(self, pipes: list[Pipe], topics: list[str]) -> None:
        self._pipes = pipes
        self._topics = topics

    async def __call__(self, number: int) -> None:
        name = self._topics[number % len(self._topics)]
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        response = await self._pipes[number % len(self._pipes)].send(request)
        assert isinstance(response, MetadataResponse)
        if [topic.name for topic in response.topics if not topic.error_code] != [name]:
            raise BenchFailed(f"a node does not know topic {name}, which was created")


class _Changes:
    """Of one config, to another value each time, of one topic after the other."""

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def over(self, pipes: list[Pipe]) -> Ask:
        async def ask(number: int) -> None:
            value = str(1_000_000 + number)
            config = AlterableConfig(name="retention.ms", config_operation=_SET, value=value)
            name = self._topics[number % len(self._topics)]
            resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=[config])
            response = await pipes[number % len(pipes)].send(IncrementalAlterConfigsRequest(resources=[resource]))
            assert isinstance(response, IncrementalAlterConfigsResponse)
            (answer,) = response.responses
            _check(answer.error_code, answer.error_message)

        return ask


class _Creations:
    def __init__(self, round_number: int) -> None:
        self._prefix = f"{unique_name('new')}-{round_number}"
        self._last = 0

    def over(self, pipes: list[Pipe]) -> Ask:
        async def ask(number: int) -> None:
            self._last += 1  # and not `number`, which begins again after the warm-up
            topic = CreatableTopic(name=f"{self._prefix}-{self._last}", num_partitions=1, replication_factor=-1)
            response = await pipes[number % len(pipes)].send(CreateTopicsRequest(topics=[topic]))
            assert isinstance(response, CreateTopicsResponse)
            (answer,) = response.topics
            _check(answer.error_code, answer.error_message)

        return ask


def _check(code: int, message: str | None) -> None:
    if code:
        raise BenchFailed(f"a change of the metadata was refused: {ErrorCode(code).name}: {message}")
