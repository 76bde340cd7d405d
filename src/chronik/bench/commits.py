"""`chronik bench commits`: many groups commit offsets, each over a connection of its own to its own coordinator."""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import AsyncExitStack
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
from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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

COORDINATOR_MOVES: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors at which every client looks for the coordinator again."""

MOVE_SECONDS_MAX: Final = 10.0
LOOK_SECONDS: Final = 0.02
"""The time between two looks for it."""


@dataclass(frozen=True, slots=True)
class CommitsLoad:
    groups: int = GROUPS_DEFAULT
    offsets: int = OFFSETS_DEFAULT
    """Offsets in one request."""
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
    """Deletes the topic and the groups at the end. Raises BenchFailed."""
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
    """Finds one that has heard of the topic, which another node may have created. Raises KafkaError or ClientError."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    for known in cluster.coordinator(group).request(request, MetadataResponse).topics:
        raise_for(known.error_code, f"topic {topic}")


async def _commit(cluster: Cluster, load: CommitsLoad, topic: str, groups: list[str]) -> tuple[float, list[float]]:
    async with open_pipes([cluster.coordinator(group) for group in groups]) as pipes, AsyncExitStack() as others:
        asks = [_Committer(pipe, topic, group, load.offsets, others) for group, pipe in zip(groups, pipes, strict=True)]
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

    def __init__(self, pipe: Pipe, topic: str, group: str, partitions: int, others: AsyncExitStack) -> None:
        """`others` closes the connections to coordinators that the group has moved to."""
        self._pipe = pipe
        self._others = others
        self._looking = asyncio.Lock()
        self._topic = topic
        self._group = group
        self._partitions = partitions
        self._committed = 0

    async def __call__(self, number: int) -> None:
        """Raises BenchFailed."""
        self._committed += 1
        request, until = self._request(self._committed), time.perf_counter() + MOVE_SECONDS_MAX
        while True:
            pipe = self._pipe
            response = await pipe.send(request)
            assert isinstance(response, OffsetCommitResponse)
            codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
            errors = {ErrorCode(code) for code in codes if code}
            if not errors and len(codes) == self._partitions:
                return
            if not errors or not errors <= COORDINATOR_MOVES or time.perf_counter() > until:
                told = ", ".join(sorted(error.name for error in errors)) or "too few offsets"
                raise BenchFailed(f"a commit of group {self._group} was answered with {told}")
            await asyncio.sleep(LOOK_SECONDS)
            await self._look_again(pipe)

    async def _look_again(self, pipe: Pipe) -> None:
        """Looks again, unless another commit over the same `pipe` has found the coordinator meanwhile."""
        async with self._looking:
            found = await pipe.send(FindCoordinatorRequest(key=self._group))
            assert isinstance(found, FindCoordinatorResponse)
            if self._pipe is pipe and not found.error_code:
                self._pipe = await pipe.another(Address(found.host, found.port))
                self._others.callback(self._pipe.close)

    def _request(self, offset: int) -> OffsetCommitRequest:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in range(self._partitions)
        ]
        return OffsetCommitRequest(
            group_id=self._group, topics=[OffsetCommitRequestTopic(name=self._topic, partitions=partitions)]
        )


def _delete_groups(cluster: Cluster, groups: list[str]) -> None:
    cluster.forget()
    left = set(groups)
    cluster.retrying(partial(_delete_those_left, cluster, left))


def _delete_those_left(cluster: Cluster, left: set[str]) -> None:
    """Raises KafkaError or ClientError."""
    by_coordinator: dict[int, list[str]] = {}
    for group in left:
        by_coordinator.setdefault(id(cluster.coordinator(group)), []).append(group)
    for names in by_coordinator.values():
        request = DeleteGroupsRequest(groups_names=names)
        for result in cluster.coordinator(names[0]).request(request, DeleteGroupsResponse).results:
            if result.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise_for(result.error_code, f"group {result.group_id}")
            left.discard(result.group_id)
