"""`chronik bench commits`: many groups commit offsets, each over a connection of its own to its own coordinator."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from operator import sub
from typing import Final, NamedTuple

from chronik.bench.arguments import cluster_of, positive
from chronik.bench.clients import unique_name
from chronik.bench.cluster_pipes import ANSWER_SECONDS_MAX, Pipe, open_pipe, open_pipes, run_on_best_loop
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import MILLION, Latency, cpu_seconds
from chronik.bench.numbered import NUMBER, NumberedPipe, NumberedRequest
from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import Cluster, raise_for
from chronik.client.connection import Connection
from chronik.client.errors import ClientError
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
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from chronik.protocol.schema import Response

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

SEND_SECONDS: Final = 0.001
"""How often commits are sent at a steady rate, all that are due together: a loop's timers are no finer."""


@dataclass(frozen=True, slots=True)
class CommitsLoad:
    groups: int = GROUPS_DEFAULT
    offsets: int = OFFSETS_DEFAULT
    """Offsets in one request."""
    seconds: float = SECONDS_DEFAULT
    rate: int | None = None
    """Requests per second of all groups together; None: each group's next as soon as its last is answered."""
    broker_pids: Sequence[int] = ()
    """Of brokers on this machine."""


@dataclass(frozen=True, slots=True)
class CommitsResult:
    groups: int
    requests: int
    seconds: float
    requests_per_second: float
    offsets_per_second: float
    client_us_per_request: float
    """Processor time of this process."""
    brokers_us_per_request: float | None
    """Processor time of the brokers whose pids are known."""
    latency: Latency


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--groups", type=positive, default=GROUPS_DEFAULT, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--offsets", type=positive, default=OFFSETS_DEFAULT, metavar="N", help="per request (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=positive, default=SECONDS_DEFAULT, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--rate", type=positive, metavar="N", help="requests per second (default: as fast as answered)")
    help_on_pids = "of a broker that runs here: shows its CPU, too; of several brokers each"
    parser.add_argument("--pid", type=positive, action="append", default=[], metavar="PID", help=help_on_pids)


def run(arguments: argparse.Namespace) -> list[CommitsResult]:
    load = CommitsLoad(arguments.groups, arguments.offsets, arguments.seconds, arguments.rate, arguments.pid)
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
        spent, latencies = run_on_best_loop(_commit(cluster, load, topic, groups))
    finally:
        _delete_groups(cluster, groups)
        delete_topics(cluster, [topic])
    requests = len(latencies)
    return CommitsResult(
        groups=load.groups,
        requests=requests,
        seconds=spent.seconds,
        requests_per_second=requests / spent.seconds,
        offsets_per_second=requests * load.offsets / spent.seconds,
        client_us_per_request=spent.client_seconds * MILLION / requests,
        brokers_us_per_request=spent.brokers_seconds * MILLION / requests if load.broker_pids else None,
        latency=Latency.of(latencies),
    )


def _find_coordinator(cluster: Cluster, group: str, topic: str) -> None:
    """Finds one that has heard of the topic, which another node may have created. Raises KafkaError or ClientError."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    for known in cluster.coordinator(group).request(request, MetadataResponse).topics:
        raise_for(known.error_code, f"topic {topic}")


class Spent(NamedTuple):
    seconds: float
    client_seconds: float
    """Of the processor."""
    brokers_seconds: float

    @classmethod
    def until_now(cls, load: CommitsLoad) -> Spent:
        return cls(time.perf_counter(), time.process_time(), sum(map(cpu_seconds, load.broker_pids)))

    def since(self, before: Spent) -> Spent:
        return Spent(*map(sub, self, before))


async def _commit(cluster: Cluster, load: CommitsLoad, topic: str, groups: list[str]) -> tuple[Spent, list[float]]:
    """Returns what it took, and the seconds of each commit."""
    connections = [cluster.coordinator(group) for group in groups]
    async with asyncio.timeout(WARM_UP_SECONDS + load.seconds + ANSWER_SECONDS_MAX), AsyncExitStack() as open_ones:
        finders = await open_ones.enter_async_context(open_pipes(connections))
        crowd = Crowd()
        for group, finder, connection in zip(groups, finders, connections, strict=True):
            request = commit_request(topic, group, load.offsets, connection.version_of(OffsetCommitRequest))
            crowd.committers.append(Committer(group, request, finder, crowd, partial(_open_beside, connection)))
            open_ones.callback(crowd.committers[-1].close)
            await crowd.committers[-1].connect(connection.address)
        await crowd.as_fast_as_answered(WARM_UP_SECONDS)  # every code path has run, and every group is there
        before = Spent.until_now(load)
        if load.rate is None:
            latencies = await crowd.as_fast_as_answered(load.seconds)
        else:
            latencies = await crowd.at_a_steady_rate(load.rate, load.seconds)
        return Spent.until_now(load).since(before), latencies


def commit_request(topic: str, group: str, partitions: int, version: int) -> NumberedRequest:
    """Commits for all partitions at once, each time a later offset, for a group without members."""
    parts = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=NUMBER, committed_metadata="")
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)])
    good = [OffsetCommitResponsePartition(partition_index=index) for index in range(partitions)]
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=topic, partitions=good)])
    return NumberedRequest(request, version, answer)


class Crowd:
    """Groups that commit at the same time. The first failure of any of them ends it all."""

    def __init__(self) -> None:
        self.committers: list[Committer] = []
        self._latencies: list[float] = []
        self._under_way = 0
        self._end = 0.0
        self._is_all_sent = False
        self._done: asyncio.Future[None]

    async def as_fast_as_answered(self, seconds: float) -> list[float]:
        """Each commits again when it is answered; returns the seconds that each commit took."""
        self._begin(time.perf_counter() + seconds)
        for committer in self.committers:
            self._commit(committer)
        return await self._when_answered()

    async def at_a_steady_rate(self, per_second: float, seconds: float) -> list[float]:
        """They commit in turn, each when it is due, whatever is unanswered; a millisecond late by the loop's timers,
        which is not the broker's doing and not counted."""
        self._begin(0.0)
        began, sent, count = time.perf_counter(), 0, int(per_second * seconds)
        while sent < count and not self._done.done():
            due = min(count, int((time.perf_counter() - began) * per_second) + 1)
            for number in range(sent, due):
                self._commit(self.committers[number % len(self.committers)])
            sent = due
            await asyncio.sleep(SEND_SECONDS)
        return await self._when_answered()

    def _begin(self, end: float) -> None:
        self._end, self._latencies, self._is_all_sent = end, [], False
        self._done = asyncio.get_running_loop().create_future()

    def _commit(self, committer: Committer) -> None:
        self._under_way += 1
        committer.commit()

    async def _when_answered(self) -> list[float]:
        self._is_all_sent = True
        if self._under_way:
            await self._done
        return self._latencies

    def answered(self, committer: Committer, sent: float) -> None:
        now = time.perf_counter()
        self._latencies.append(now - sent)
        self._under_way -= 1
        if now < self._end:
            self._commit(committer)
        elif not self._under_way and self._is_all_sent and not self._done.done():
            self._done.set_result(None)

    def failed(self, error: BenchFailed) -> None:
        if not self._done.done():
            self._done.set_exception(error)


async def _open_beside(connection: Connection, address: Address) -> Pipe:
    """Open a connection to an address with the security and versions of another connection."""
    return await open_pipe(address, connection.security, connection.version_of)


class Committer:
    """One group, which looks for its coordinator again when that has moved."""

    def __init__(
        self,
        group: str,
        request: NumberedRequest,
        finder: Pipe,
        crowd: Crowd,
        open_connection: Callable[[Address], Awaitable[Pipe]],
    ) -> None:
        """`finder` is asked where the coordinator is."""
        self._open_connection = open_connection
        self._group = group
        self._request = request
        self._finder = finder
        self._crowd = crowd
        self._pipes: list[NumberedPipe] = []
        """The last is in use. Others are to coordinators of before, which may have answers to give yet."""
        self._address: Address
        self._looking: set[asyncio.Task[None]] = set()
        self._committed = 0

    async def connect(self, address: Address) -> None:
        answered = partial(self._crowd.answered, self)
        pipe = NumberedPipe(self._request, answered, self._refused, self._crowd.failed)
        (await self._open_connection(address)).replace_with(pipe)
        self._pipes.append(pipe)
        self._address = address

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def commit(self) -> None:
        self._committed += 1
        self._pipes[-1].send(self._committed)

    def _refused(self, number: int, sent: float, response: Response) -> None:
        assert isinstance(response, OffsetCommitResponse)
        codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
        errors = {ErrorCode(code) for code in codes if code}
        if not errors or not errors <= COORDINATOR_MOVES or time.perf_counter() > sent + MOVE_SECONDS_MAX:
            told = ", ".join(sorted(error.name for error in errors)) or "too few offsets"
            raise BenchFailed(f"a commit of group {self._group} was answered with {told}")
        looking = asyncio.get_running_loop().create_task(self._commit_elsewhere(number, sent))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)

    async def _commit_elsewhere(self, number: int, sent: float) -> None:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            found = await self._finder.send(FindCoordinatorRequest(key=self._group))
            assert isinstance(found, FindCoordinatorResponse)
            address = Address(found.host, found.port)
            if not found.error_code and address != self._address:
                await self.connect(address)
        except BenchFailed as error:
            self._crowd.failed(error)
        except (OSError, ClientError) as error:
            self._crowd.failed(BenchFailed(f"the coordinator of group {self._group} is out of reach: {error}"))
        else:
            self._pipes[-1].send(number, sent)


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
