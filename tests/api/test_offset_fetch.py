"""OffsetFetch on any node: it answers if a majority confirms its image, and otherwise makes every client retry."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.api import offset_fetch
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.api.shared.read_consistency import FENCED_ERRORS
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
