"""OffsetFetch on any node: it answers if a majority confirms its image, and otherwise makes every client retry.

With `require_stable`, offsets that an open transaction may replace are unstable on every node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from chronik.api import offset_fetch
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.api.shared.read_consistency import FENCED_ERRORS
from chronik.groups.offsets import OFFSETS_PER_STEP, UNSTABLE_OFFSET, read_committed_offsets
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.commands.transactions import NO_RECORD_INDEX, AddToTransaction, EndTransaction, InitTransaction
from chronik.metadata.commands.transactions import StageOffsets as Stage
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, decode_response, encode_request, encode_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from chronik.request_reply import ConnectedClient, UnsentByteCounter
from chronik.scheduler import Scheduler
from tests.groups.coordinator_helpers import commit_offsets, run_scenario
from tests.groups.shared_image import CoordinatingNode, SharedImage, running_nodes

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
COMMITTED = 5
PEER = ConnectedClient("127.0.0.1", 0, 1)
VERSIONS = range(9)  # versions that name topics
ID, KNOWN_ID = b"i" * 16, b"k" * 16
TOPIC = SimpleNamespace(name="new")
FETCH_KEY = next(api.key for api in APIS.values() if api.name == "OffsetFetch")

UNSTABLE_CODE = ErrorCode.UNSTABLE_OFFSET_COMMIT
STAGED = 9
STABLE_VERSIONS = (7, 8, 9)
T = TypeVar("T")


class Barrier:
    """A substitute for a store's read barrier that counts calls and may fail."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.passed = 0

    async def __call__(self, seconds: float) -> None:
        self.passed += 1
        if self.failure is not None:
            raise self.failure


def services_of(node: CoordinatingNode, barrier: Barrier) -> Services:
    image = node.store.image
    store = SimpleNamespace(read_barrier=barrier, image=image, is_shared=True)
    config = SimpleNamespace(read_quorum=False)
    parts = SimpleNamespace(
        authorizer=None,
        groups=node.groups,
        store=store,
        image=image,
        config=config,
        is_fenced=lambda: node.is_fenced,
        outbox=UnsentByteCounter(),
        scheduler=Scheduler(),
    )
    return cast(Services, parts)


def request_of(version: int, *groups: str, partitions: tuple[int, ...] = (0, 1)) -> OffsetFetchRequest:
    if version >= offset_fetch.FIRST_VERSION_WITH_MANY_GROUPS:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics) for group in groups])
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))
    return OffsetFetchRequest(group_id=groups[0], topics=[topic])


async def ask(services: Services, version: int, *groups: str) -> OffsetFetchResponse:
    fatal: list[BaseException] = []
    router = Router(services, on_fatal=fatal.append)
    frame = encode_request(RequestHeader(FETCH_KEY, version, 7, "raw"), request_of(version, *groups))
    answer = await router.dispatch(bytearray(frame[4:]), PEER).wait_for_frame()
    assert answer is not None
    _, response = decode_response(FETCH_KEY, version, memoryview(b"".join(answer))[4:])
    assert isinstance(response, OffsetFetchResponse)
    assert fatal == []
    return response


def committed_partitions(response: OffsetFetchResponse) -> list[tuple[int, int, int]]:
    """Return partition, offset and error code of all partitions of all groups."""
    topics: list[Any] = [*response.topics, *(topic for group in response.groups for topic in group.topics)]
    return [
        (each.partition_index, each.committed_offset, each.error_code) for topic in topics for each in topic.partitions
    ]


def errors(response: OffsetFetchResponse) -> set[int]:
    return {response.error_code, *(group.error_code for group in response.groups)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("node_id", "is_fenced"), [(2, False), (2, True), (1, True)])
def test_offset_fetch_is_answered_by_any_confirmed_node(version: int, node_id: int, is_fenced: bool) -> None:
    async def scenario() -> None:
        async with running_nodes(SharedImage()) as node:
            await commit_offsets(node[1].groups, "g")
            node[node_id].is_fenced = is_fenced
            barrier = Barrier()
            response = await ask(services_of(node[node_id], barrier), version, "g")
            assert errors(response) == {ErrorCode.NONE}
            assert committed_partitions(response) == [(0, COMMITTED, 0), (1, -1, 0)]
            assert barrier.passed == 1

    run_scenario(scenario)


def test_coordinator_confirms_its_image_before_offset_fetch() -> None:
    """Another node may have replaced it and acknowledged commits that it does not know."""

    async def scenario() -> None:
        async with running_nodes(SharedImage()) as node:
            await commit_offsets(node[1].groups, "g")
            barrier = Barrier()
            assert committed_partitions(await ask(services_of(node[1], barrier), 8, "g"))[0] == (0, COMMITTED, 0)
            assert barrier.passed == 1

    run_scenario(scenario)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("node_id", "is_fenced"), [(1, False), (1, True), (2, False)])
def test_unconfirmed_offset_fetch_returns_load_in_progress(version: int, node_id: int, is_fenced: bool) -> None:
    async def scenario() -> None:
        async with running_nodes(SharedImage()) as node:
            await commit_offsets(node[1].groups, "g")
            node[node_id].is_fenced = is_fenced
            unconfirmed = Barrier(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            response = await ask(services_of(node[node_id], unconfirmed), version, "g")
            if version < offset_fetch.FIRST_VERSION_WITH_MANY_GROUPS:
                assert committed_partitions(response) == [(0, -1, LOADING), (1, -1, LOADING)]
            else:
                assert [group.error_code for group in response.groups] == [LOADING]

    run_scenario(scenario)


def test_offset_fetch_of_many_groups_confirms_once() -> None:
    async def scenario() -> None:
        async with running_nodes(SharedImage()) as node:
            await commit_offsets(node[1].groups, "g")
            barrier = Barrier(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            response = await ask(services_of(node[2], barrier), 8, "g", "h", "i")
            assert [group.error_code for group in response.groups] == [LOADING] * 3
            assert barrier.passed == 1

    run_scenario(scenario)


def test_fenced_node_does_not_reject_offset_fetch() -> None:
    by_name = {api.name: FENCED_ERRORS.get(api.key) for api in APIS.values()}
    assert by_name["OffsetFetch"] is None
    assert by_name["JoinGroup"] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert by_name["ListOffsets"] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_topic_created_during_offset_fetch_returns_unknown_topic_id() -> None:
    """Its committed offsets were not looked up."""
    known: dict[bytes, Any] = {}
    image = SimpleNamespace(topics={}, topics_by_id=known, offsets=lambda group: known.setdefault(ID, TOPIC) and {})
    topics = [OffsetFetchRequestTopic(topic_id=each, partition_indexes=[0]) for each in (KNOWN_ID, ID)]
    known[KNOWN_ID] = SimpleNamespace(name="known")
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    parts = cast(Services, SimpleNamespace(authorizer=None, image=image))

    async def handle() -> OffsetFetchResponse | None:
        return await offset_fetch.handle(parts, request, cast(Any, SimpleNamespace(version=10)))

    answer = asyncio.run(handle())
    assert ID in known
    assert answer is not None
    frame = b"".join(encode_response(1, 10, answer))
    (group,) = cast(OffsetFetchResponse, decode_response(FETCH_KEY, 10, memoryview(frame)[4:])[1]).groups
    codes = [partition.error_code for topic in group.topics for partition in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


def begin(shared: SharedImage, *partitions: int) -> None:
    """Open a transaction that is about to commit offsets of the group `g`."""
    shared.apply(InitTransaction("x", NO_RECORD_INDEX, 7, 0, 60_000, 0))
    shared.apply(AddToTransaction("x", seen(shared), (), ("g",), 0))
    offsets = tuple(OffsetToCommit("t", index, STAGED, -1, "") for index in partitions)
    began_index = shared.image.transactions["x"].began_index
    shared.apply(Stage("g", "x", began_index, offsets, 0, shared.epoch))


def seen(shared: SharedImage) -> int:
    return shared.image.transactions["x"].index


def end(shared: SharedImage, *, commit: bool) -> None:
    shared.apply(EndTransaction("x", seen(shared), commit, 0, 0))


async def fetched(services: Services, request: OffsetFetchRequest, version: int) -> list[tuple[int, int, int]]:
    answer = await offset_fetch.handle(services, request, cast(Any, type("Context", (), {"version": version})))
    assert answer is not None
    frame = b"".join(encode_response(1, version, answer))
    _, response = decode_response(FETCH_KEY, version, memoryview(frame)[4:])
    assert isinstance(response, OffsetFetchResponse)
    return committed_partitions(response)


@pytest.mark.parametrize("version", STABLE_VERSIONS)
@pytest.mark.parametrize("node_id", [1, 2])
@pytest.mark.parametrize("commit", [False, True])
def test_staged_offsets_are_unstable_until_transaction_ends(version: int, node_id: int, commit: bool) -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            await commit_offsets(node[1].groups, "g")
            services = services_of(node[node_id], Barrier())
            stable = request_of(version, "g", partitions=(0, 1))
            stable.require_stable = True
            begin(shared, 0, 1)
            assert await fetched(services, stable, version) == [(0, -1, UNSTABLE_CODE), (1, -1, UNSTABLE_CODE)]
            assert await fetched(services, request_of(version, "g"), version) == [(0, COMMITTED, 0), (1, -1, 0)]
            end(shared, commit=commit)
            ended = [(0, STAGED, 0), (1, STAGED, 0)] if commit else [(0, COMMITTED, 0), (1, -1, 0)]
            assert await fetched(services, stable, version) == ended

    run_scenario(scenario)


def test_offsets_outside_the_transaction_are_stable() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            await commit_offsets(node[1].groups, "g")
            begin(shared, 1)
            request = request_of(8, "g", "h", partitions=(0, 1))
            request.require_stable = True
            assert await fetched(services_of(node[2], Barrier()), request, 8) == [
                (0, COMMITTED, 0),
                (1, -1, UNSTABLE_CODE),
                (0, -1, 0),
                (1, -1, 0),
            ]

    run_scenario(scenario)


def test_fetch_of_all_offsets_includes_unstable_ones() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            await commit_offsets(node[1].groups, "g")
            begin(shared, 0, 1)
            everything = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=True
            )
            assert await fetched(services_of(node[1], Barrier()), everything, 8) == [(0, -1, UNSTABLE_CODE)]

    run_scenario(scenario)


def test_offset_unstable_when_read_stays_unstable_in_response() -> None:
    """The transaction ends while the response is built in several event-loop iterations."""
    shared = SharedImage()
    begin(shared, 0)
    steps = read_committed_offsets(
        shared.image, "g", [("t", index) for index in range(2 * OFFSETS_PER_STEP)], require_stable=True
    )
    next(steps)
    end(shared, commit=True)
    found = _run_to_end(steps)
    assert found["t", 0] is UNSTABLE_OFFSET
    again = _run_to_end(read_committed_offsets(shared.image, "g", [("t", 0)], require_stable=True))["t", 0]
    assert again is not None
    assert again.offset == STAGED


def test_fetch_of_all_offsets_reads_partitions_incrementally() -> None:
    """Hundreds of requests may wait after their first steps, and a group may have a million offsets."""
    read: list[int] = []

    def partitions() -> Iterator[tuple[str, int]]:
        for index in range(10 * OFFSETS_PER_STEP):
            read.append(index)
            yield "t", index

    image = SimpleNamespace(frozen_offsets=lambda group: partitions(), offsets=lambda group: {})
    steps = read_committed_offsets(cast(Any, image), "g", None)
    next(steps)
    assert len(read) == OFFSETS_PER_STEP
    assert len(_run_to_end(steps)) == 10 * OFFSETS_PER_STEP


def _run_to_end(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)
