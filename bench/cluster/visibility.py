"""The time until every node lists a new topic, created explicitly or automatically, through each node in rotation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import open_connections, running_cluster
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.bench.pipelined import PipelinedConnection, open_pipelined_connections, run_with_uvloop
from chronik.bench.statistics import Latency
from chronik.client.connection import BrokerConnection
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.protocol.schema import Request, Response

TOPICS: Final = 300
"""Created in each round, a third of them through each node."""

LISTED_MS_MAX: Final = 1000.0
"""The specification's limit."""

POLL_SECONDS: Final = 0.001
LISTED_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True)
class VisibilityDelays:
    """Seconds until a node listed a topic, one value per topic and node."""

    after_request: list[float] = field(default_factory=list)
    after_response: list[float] = field(default_factory=list)
    """0 for a node that listed the topic before the response to the creating request arrived."""


def measure_visibility(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure explicitly created and auto-created topics on one cluster."""
    with running_cluster(plan) as cluster, open_connections(cluster.live_nodes) as opened:
        created = [measure_delays(opened, TOPICS, build_create_request) for _ in range(plan.rounds)]
        produced = [measure_delays(opened, TOPICS, build_auto_create_request) for _ in range(plan.rounds)]
    return [
        *_figures("created topic listed by every node", [Latency.from_seconds(each.after_request) for each in created]),
        Figure(
            "created topic listed by every node, after the response to CreateTopics, max, ms",
            [Latency.from_seconds(each.after_response).max_ms for each in created],
            below=LISTED_MS_MAX,
        ),
        *_figures(
            "auto-created topic listed by every node", [Latency.from_seconds(each.after_request) for each in produced]
        ),
    ]


def build_create_request(topic: str) -> Request:
    """Return a request that creates the topic explicitly."""
    return CreateTopicsRequest(topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=-1)])


def build_auto_create_request(topic: str) -> Request:
    """Return the request by which a producer's first record creates the topic."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)


def measure_delays(
    opened: Sequence[BrokerConnection], topics: int, request_for: Callable[[str], Request]
) -> VisibilityDelays:
    """Create topics one after another, each through the next node, while every node is polled for it.

    Raises:
        BenchFailed: a node rejected the request, or did not list a topic within LISTED_SECONDS_MAX.
    """
    return run_with_uvloop(_measure(opened, topics, request_for))


async def _measure(
    opened: Sequence[BrokerConnection], topics: int, request_for: Callable[[str], Request]
) -> VisibilityDelays:
    prefix = generate_name("visible")
    delays = VisibilityDelays()
    async with open_pipelined_connections(opened) as creating, open_pipelined_connections(opened) as polling:
        for number in range(topics):
            topic = f"{prefix}-{number}"
            start = time.perf_counter()
            response = creating[number % len(creating)].send(request_for(topic))
            polls = [asyncio.create_task(_wait_until_listed(pipe, topic)) for pipe in polling]
            _check(await response)
            responded = time.perf_counter()
            for listed in await asyncio.gather(*polls):
                delays.after_request.append(listed - start)
                delays.after_response.append(max(0.0, listed - responded))
    return delays


async def _wait_until_listed(pipe: PipelinedConnection, topic: str) -> float:
    """Return the time at which this node's response names a leader for every partition of the topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    deadline = time.perf_counter() + LISTED_SECONDS_MAX
    while time.perf_counter() < deadline:
        response = await pipe.send(request)
        now = time.perf_counter()
        assert isinstance(response, MetadataResponse)
        (topic_metadata,) = response.topics
        if topic_metadata.error_code == ErrorCode.NONE and all(
            each.leader_id >= 0 for each in topic_metadata.partitions
        ):
            return now
        await asyncio.sleep(POLL_SECONDS)
    raise BenchmarkError(f"a node did not list topic {topic} within {LISTED_SECONDS_MAX:g} s")


def _check(response: Response) -> None:
    """Raise BenchFailed if CreateTopics failed; Metadata reports a topic under creation as an error."""
    if isinstance(response, CreateTopicsResponse):
        for topic in response.topics:
            if topic.error_code:
                raise BenchmarkError(f"topic {topic.name} was not created: {ErrorCode(topic.error_code).name}")


def _figures(what: str, rounds: list[Latency]) -> list[Figure]:
    return [
        Figure(f"{what}, p50, ms", [each.p50_ms for each in rounds]),
        Figure(f"{what}, p99, ms", [each.p99_ms for each in rounds]),
        Figure(f"{what}, max, ms", [each.max_ms for each in rounds], below=LISTED_MS_MAX),
    ]
