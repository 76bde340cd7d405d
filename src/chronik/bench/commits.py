"""`chronik bench commits`: offset commits of many groups, each on its own connection to its coordinator."""

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

from chronik.bench.arguments import connect, parse_positive_int
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.bench.pipelined import (
    RESPONSE_SECONDS_MAX,
    PipelinedConnection,
    open_pipelined,
    open_pipelined_connections,
    run_with_uvloop,
)
from chronik.bench.request_template import PLACEHOLDER, RequestTemplate, TemplateConnection
from chronik.bench.statistics import MILLION, Latency, read_cpu_seconds
from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.connection import BrokerConnection
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

COORDINATOR_MOVED_ERRORS: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Error codes after which the benchmark client looks up the group coordinator again."""

MOVE_SECONDS_MAX: Final = 10.0
LOOKUP_INTERVAL_SECONDS: Final = 0.02
"""Interval in seconds between two lookups of a group coordinator."""

SEND_INTERVAL_SECONDS: Final = 0.001
"""Interval in seconds at which the constant-rate sender wakes up. Event-loop timers have no higher resolution."""


@dataclass(frozen=True, slots=True)
class CommitsLoad:
    """Parameters of an offset commit benchmark: groups, offsets per request, duration and rate."""

    groups: int = GROUPS_DEFAULT
    offsets: int = OFFSETS_DEFAULT
    """Number of offsets in each OffsetCommit request."""
    seconds: float = SECONDS_DEFAULT
    rate: int | None = None
    """Target rate in requests per second over all groups; None to send each request after a response."""
    broker_pids: Sequence[int] = ()
    """Process ids of brokers on this machine whose CPU time is measured."""


@dataclass(frozen=True, slots=True)
class CommitsResult:
    """Results of an offset commit benchmark: throughput, CPU time and latency."""

    groups: int
    requests: int
    seconds: float
    requests_per_second: float
    offsets_per_second: float
    client_us_per_request: float
    """CPU time of this process per request, in microseconds."""
    brokers_us_per_request: float | None
    """CPU time of the brokers with known process ids per request, in microseconds."""
    latency: Latency


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--groups", type=parse_positive_int, default=GROUPS_DEFAULT, metavar="N", help="groups (default: %(default)s)"
    )
    parser.add_argument(
        "--offsets",
        type=parse_positive_int,
        default=OFFSETS_DEFAULT,
        metavar="N",
        help="offsets per request (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=parse_positive_int,
        default=SECONDS_DEFAULT,
        metavar="N",
        help="duration (default: %(default)s)",
    )
    parser.add_argument(
        "--rate",
        type=parse_positive_int,
        metavar="N",
        help="requests per second (default: each request after the response to the previous one)",
    )
    help_on_pids = "local process id of a broker, to report its CPU; repeat for several brokers"
    parser.add_argument("--pid", type=parse_positive_int, action="append", default=[], metavar="PID", help=help_on_pids)


def run(arguments: argparse.Namespace) -> list[CommitsResult]:
    load = CommitsLoad(arguments.groups, arguments.offsets, arguments.seconds, arguments.rate, arguments.pid)
    with connect(arguments) as cluster:
        return [measure(cluster, load)]


def measure(cluster: ClusterClient, load: CommitsLoad) -> CommitsResult:
    """Run the offset commit benchmark, delete its topic and groups, and return the result.

    Raises BenchmarkError.
    """
    topic = generate_name("commits")
    groups = [f"{topic}-{number}" for number in range(load.groups)]
    create_topics(cluster, [NewTopic(topic, load.offsets)])
    try:
        for group in groups:
            cluster.retry(partial(_find_coordinator, cluster, group, topic))
        spent, latencies = run_with_uvloop(_run_offset_commits(cluster, load, topic, groups))
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
        latency=Latency.from_seconds(latencies),
    )


def _find_coordinator(cluster: ClusterClient, group: str, topic: str) -> None:
    """Check that the group's coordinator is available and knows the topic.

    Raises KafkaError or ClientError otherwise.
    """
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    for topic_metadata in cluster.coordinator(group).request(request, MetadataResponse).topics:
        raise_for_code(topic_metadata.error_code, f"topic {topic}")


class ElapsedTimes(NamedTuple):
    """The elapsed time of a benchmark, and the CPU time of client and brokers, in seconds."""

    seconds: float
    client_seconds: float
    """CPU time of this process in seconds."""
    brokers_seconds: float

    @classmethod
    def now(cls, load: CommitsLoad) -> ElapsedTimes:
        return cls(time.perf_counter(), time.process_time(), sum(map(read_cpu_seconds, load.broker_pids)))

    def since(self, before: ElapsedTimes) -> ElapsedTimes:
        return ElapsedTimes(*map(sub, self, before))


async def _run_offset_commits(
    cluster: ClusterClient, load: CommitsLoad, topic: str, groups: list[str]
) -> tuple[ElapsedTimes, list[float]]:
    """Run the offset commits of a benchmark, and return the elapsed times and each commit's latency."""
    connections = [cluster.coordinator(group) for group in groups]
    async with asyncio.timeout(WARM_UP_SECONDS + load.seconds + RESPONSE_SECONDS_MAX), AsyncExitStack() as stack:
        finders = await stack.enter_async_context(open_pipelined_connections(connections))
        crowd = GroupLoad()
        for group, finder, connection in zip(groups, finders, connections, strict=True):
            request = build_commit_request(
                topic, group, load.offsets, connection.negotiated_version(OffsetCommitRequest)
            )
            crowd.committers.append(
                GroupCommitter(group, request, finder, crowd, partial(_open_matching_connection, connection))
            )
            stack.callback(crowd.committers[-1].close)
            await crowd.committers[-1].connect(connection.address)
        await crowd.run_closed_loop(WARM_UP_SECONDS)  # runs every code path and creates every group
        before = ElapsedTimes.now(load)
        if load.rate is None:
            latencies = await crowd.run_closed_loop(load.seconds)
        else:
            latencies = await crowd.run_at_constant_rate(load.rate, load.seconds)
        return ElapsedTimes.now(load).since(before), latencies


def build_commit_request(topic: str, group: str, partitions: int, version: int) -> RequestTemplate:
    """Build a request template that commits offsets of all partitions for a group without members."""
    request_partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=PLACEHOLDER, committed_metadata="")
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=request_partitions)]
    )
    response_partitions = [OffsetCommitResponsePartition(partition_index=index) for index in range(partitions)]
    expected_response = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=topic, partitions=response_partitions)]
    )
    return RequestTemplate(request, version, expected_response)


class GroupLoad:
    """A benchmark load of consumer groups that commit offsets concurrently.

    The first failure stops the run.
    """

    def __init__(self) -> None:
        self.committers: list[GroupCommitter] = []
        self._latencies: list[float] = []
        self._in_flight = 0
        self._end = 0.0
        self._is_all_sent = False
        self._done: asyncio.Future[None]

    async def run_closed_loop(self, seconds: float) -> list[float]:
        """Commit offsets in a closed loop, each group after its previous response, and return the latencies.

        They are in seconds.
        """
        self._prepare_run(time.perf_counter() + seconds)
        for committer in self.committers:
            self._start_offset_commit(committer)
        return await self._wait_for_responses()

    async def run_at_constant_rate(self, per_second: float, seconds: float) -> list[float]:
        """Commit offsets at a constant rate (open loop), one group after another, and return the latencies.

        They are in seconds.

        The event loop's timers send a commit up to a millisecond late. This delay is not part of the latency.
        """
        self._prepare_run(0.0)
        started, sent, count = time.perf_counter(), 0, int(per_second * seconds)
        while sent < count and not self._done.done():
            due = min(count, int((time.perf_counter() - started) * per_second) + 1)
            for number in range(sent, due):
                self._start_offset_commit(self.committers[number % len(self.committers)])
            sent = due
            await asyncio.sleep(SEND_INTERVAL_SECONDS)
        return await self._wait_for_responses()

    def _prepare_run(self, end: float) -> None:
        self._end, self._latencies, self._is_all_sent = end, [], False
        self._done = asyncio.get_running_loop().create_future()

    def _start_offset_commit(self, committer: GroupCommitter) -> None:
        self._in_flight += 1
        committer.commit()

    async def _wait_for_responses(self) -> list[float]:
        self._is_all_sent = True
        if self._in_flight:
            await self._done
        return self._latencies

    def on_success(self, committer: GroupCommitter, sent: float) -> None:
        now = time.perf_counter()
        self._latencies.append(now - sent)
        self._in_flight -= 1
        if now < self._end:
            self._start_offset_commit(committer)
        elif not self._in_flight and self._is_all_sent and not self._done.done():
            self._done.set_result(None)

    def on_failure(self, error: BenchmarkError) -> None:
        if not self._done.done():
            self._done.set_exception(error)


async def _open_matching_connection(connection: BrokerConnection, address: Address) -> PipelinedConnection:
    """Open a connection to an address with the security settings of an existing connection.

    The API versions are also copied.
    """
    return await open_pipelined(address, connection.security, connection.negotiated_version)


class GroupCommitter:
    """A client that commits offsets for one group, and reconnects when the group's coordinator moves."""

    def __init__(
        self,
        group: str,
        request: RequestTemplate,
        finder: PipelinedConnection,
        crowd: GroupLoad,
        open_connection: Callable[[Address], Awaitable[PipelinedConnection]],
    ) -> None:
        """Store the settings; `finder` is the connection for coordinator lookups."""
        self._open_connection = open_connection
        self._group = group
        self._request = request
        self._finder = finder
        self._crowd = crowd
        self._pipes: list[TemplateConnection] = []
        """The committer's connections in order of use, of which only the last is active.

        Previous ones may still receive responses.
        """
        self._address: Address
        self._lookups: set[asyncio.Task[None]] = set()
        self._committed = 0

    async def connect(self, address: Address) -> None:
        answered = partial(self._crowd.on_success, self)
        pipe = TemplateConnection(self._request, answered, self._on_error_response, self._crowd.on_failure)
        (await self._open_connection(address)).replace_protocol(pipe)
        self._pipes.append(pipe)
        self._address = address

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def commit(self) -> None:
        self._committed += 1
        self._pipes[-1].send(self._committed)

    def _on_error_response(self, number: int, sent: float, response: Response) -> None:
        assert isinstance(response, OffsetCommitResponse)
        codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
        errors = {ErrorCode(code) for code in codes if code}
        if not errors or not errors <= COORDINATOR_MOVED_ERRORS or time.perf_counter() > sent + MOVE_SECONDS_MAX:
            error_names = ", ".join(sorted(error.name for error in errors)) or "too few offsets"
            raise BenchmarkError(f"offset commit of group {self._group} failed: {error_names}")
        lookup = asyncio.get_running_loop().create_task(self._retry_on_new_coordinator(number, sent))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._lookups.discard)

    async def _retry_on_new_coordinator(self, number: int, sent: float) -> None:
        await asyncio.sleep(LOOKUP_INTERVAL_SECONDS)
        try:
            found = await self._finder.send(FindCoordinatorRequest(key=self._group))
            assert isinstance(found, FindCoordinatorResponse)
            address = Address(found.host, found.port)
            if not found.error_code and address != self._address:
                await self.connect(address)
        except BenchmarkError as error:
            self._crowd.on_failure(error)
        except (OSError, ClientError) as error:
            self._crowd.on_failure(BenchmarkError(f"coordinator of group {self._group} is unreachable: {error}"))
        else:
            self._pipes[-1].send(number, sent)


def _delete_groups(cluster: ClusterClient, groups: list[str]) -> None:
    cluster.invalidate_metadata()
    remaining = set(groups)
    cluster.retry(partial(_delete_remaining_groups, cluster, remaining))


def _delete_remaining_groups(cluster: ClusterClient, remaining: set[str]) -> None:
    """Delete the groups in `remaining` and remove each deleted group from the set. Raises KafkaError or ClientError."""
    by_coordinator: dict[int, list[str]] = {}
    for group in remaining:
        by_coordinator.setdefault(id(cluster.coordinator(group)), []).append(group)
    for names in by_coordinator.values():
        request = DeleteGroupsRequest(groups_names=names)
        for result in cluster.coordinator(names[0]).request(request, DeleteGroupsResponse).results:
            if result.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise_for_code(result.error_code, f"group {result.group_id}")
            remaining.discard(result.group_id)
