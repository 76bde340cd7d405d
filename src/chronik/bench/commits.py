"""`chronik bench commits`: many groups commit offsets, each over a connection of its own to its own coordinator."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from chronik.bench.arguments import cluster_of, positive
from chronik.bench.clients import unique_name
from chronik.bench.cluster_pipes import Ask, Pipe, as_fast_as_answered, at_a_steady_rate, open_pipes, run_on_best_loop
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import Latency
from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import Cluster, raise_for
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

GROUPS_DEFAULT: Final = 50
OFFSETS_DEFAULT: Final = 10
SECONDS_DEFAULT: Final = 10
WARM_UP_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class CommitsLoad:
    groups: int = GROUPS_DEFAULT
    offsets: int = OFFSETS_DEFAULT
    """In one request."""
    seconds: float = SECONDS_DEFAULT
    rate: int | None = None
    """Requests per second of all groups together; None: each group's next as soon as its last is answered."""


@dataclass(frozen=True, slots=True)
class CommitsResult:
    groups: int
    requests: int
    seconds: float
    requests_per_second: float
    offsets_per_second: float
    latency: Latency


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--groups", type=positive, default=GROUPS_DEFAULT, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--offsets", type=positive, default=OFFSETS_DEFAULT, metavar="N", help="per request (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=positive, default=SECONDS_DEFAULT, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--rate", type=positive, metavar="N", help="requests per second (default: as fast as answered)")


def run(arguments: argparse.Namespace) -> list[CommitsResult]:
    load = CommitsLoad(arguments.groups, arguments.offsets, arguments.seconds, arguments.rate)
    with cluster_of(arguments) as cluster:
        return [measure(cluster, load)]


def measure(cluster: Cluster, load: CommitsLoad) -> CommitsResult:
    """The topic and the groups go away again. Raises BenchFailed."""
    topic = unique_name("commits")
    groups = [f"{topic}-{number}" for number in range(load.groups)]
    create_topics(cluster, [NewTopic(topic, load.offsets)])
    try:
        for group in groups:
            cluster.retrying(partial(_find_coordinator, cluster, group, topic))
        seconds, latencies = run_on_best_loop(_commit(cluster, load, topic, groups))
    finally:
        _delete_groups(cluster, groups)
        delete_topics(cluster, [topic])
    requests = len(latencies)
    return CommitsResult(
        groups=load.groups,
        requests=requests,
        seconds=seconds,
        requests_per_second=requests / seconds,
        offsets_per_second=requests * load.offsets / seconds,
        latency=Latency.of(latencies),
    )


def _find_coordinator(cluster: Cluster, group: str, topic: str) -> None:
    """One that has heard of the topic, which another node may have created. Raises KafkaError or ClientError."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    for known in cluster.coordinator(group).request(request, MetadataResponse).topics:
        raise_for(known.error_code, f"topic {topic}")


async def _commit(cluster: Cluster, load: CommitsLoad, topic: str, groups: list[str]) -> tuple[float, list[float]]:
    async with open_pipes([cluster.coordinator(group) for group in groups]) as pipes:
        asks = [_Committer(pipe, topic, group, load.offsets) for group, pipe in zip(groups, pipes, strict=True)]
        await as_fast_as_answered(asks, WARM_UP_SECONDS)  # every code path has run, and every group is there
        began = time.perf_counter()
        if load.rate is None:
            latencies = await as_fast_as_answered(asks, load.seconds)
        else:
            latencies = await at_a_steady_rate(_in_turn(asks), load.rate, load.seconds)
        return time.perf_counter() - began, latencies


def _in_turn(asks: list[_Committer]) -> Ask:
    async def ask(number: int) -> None:
        await asks[number % len(asks)](number)

    return ask


class _Committer:
    """One group without members, which commits for all partitions at once, each time a later offset."""

    def __init__(self, pipe: Pipe, topic: str, group: str, partitions: int) -> None:
        self._pipe = pipe
        self._topic = topic
        self._group = group
        self._partitions = partitions
        self._committed = 0

    async def __call__(self, number: int) -> None:
        self._committed += 1
        response = await self._pipe.send(self._request(self._committed))
        assert isinstance(response, OffsetCommitResponse)
        errors = [partition.error_code for topic in response.topics for partition in topic.partitions]
        if len(errors) != self._partitions or any(errors):
            told = ", ".join(sorted({ErrorCode(code).name for code in errors if code})) or "too few offsets"
            raise BenchFailed(f"a commit of group {self._group} was answered with {told}")

    def _request(self, offset: int) -> OffsetCommitRequest:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in range(self._partitions)
        ]
        return OffsetCommitRequest(
            group_id=self._group, topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)]
        )


def _delete_groups(cluster: Cluster, groups: list[str]) -> None:
    by_coordinator: dict[int, list[str]] = {}
    for group in groups:
        by_coordinator.setdefault(id(cluster.coordinator(group)), []).append(group)
    for names in by_coordinator.values():
        cluster.coordinator(names[0]).request(DeleteGroupsRequest(groups_names=names), DeleteGroupsResponse)
