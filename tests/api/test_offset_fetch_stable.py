"""OffsetFetch with `require_stable`: offsets that an open transaction may replace are unstable on every node."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from chronik.api import offset_fetch
from chronik.api.shared.context import Services
from chronik.groups.offsets import OFFSETS_PER_STEP, UNSTABLE_OFFSET, read_committed_offsets
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.commands.transactions import NO_RECORD_INDEX, AddToTransaction, EndTransaction, InitTransaction
from chronik.metadata.commands.transactions import StageOffsets as Stage
from chronik.protocol.codec import decode_response, encode_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tests.api.test_offset_fetch import (
    COMMITTED,
    FETCH_KEY,
    Barrier,
    committed_partitions,
    request_of,
    services_of,
)
from tests.groups.coordinator_helpers import commit_offsets, run_scenario
from tests.groups.shared_image import SharedImage, running_nodes

UNSTABLE_CODE = ErrorCode.UNSTABLE_OFFSET_COMMIT
STAGED = 9
VERSIONS = (7, 8, 9)
T = TypeVar("T")


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


@pytest.mark.parametrize("version", VERSIONS)
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
