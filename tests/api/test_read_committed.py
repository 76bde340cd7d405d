"""Isolation level read_committed: Fetch and ListOffsets stop at the last stable offset, and aborts are returned."""

from __future__ import annotations

import asyncio

import pytest

from chronik.protocol.batch import iter_batches
from chronik.protocol.message_set import iter_message_set
from chronik.protocol.messages.fetch import FetchResponse, PartitionData
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.api import request_builders
from tests.api.leader_node import TIMEOUT_SECONDS, Leader, partition_response, run_scenario
from tests.replication.rig import TOPIC_ID

UNCOMMITTED, COMMITTED = 0, 1
LATEST, MAX_TIMESTAMP = -1, -3


async def fetched(leader: Leader, isolation_level: int, offset: int = 0, version: int = 12) -> PartitionData:
    topic: str | bytes = TOPIC_ID if version >= 13 else "topic"
    request = request_builders.fetch_request((topic, 0, offset))
    request.isolation_level = isolation_level
    return (await leader.send_request(request, version, FetchResponse)).responses[0].partitions[0]


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    found = data.aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


def offsets(data: PartitionData) -> list[int]:
    return [header.base_offset for _, header in iter_batches(request_builders.records_of(data))]


async def history(leader: Leader) -> None:
    """Append offsets 0 to 9; the transaction of producer 9 stays open from offset 7 on."""
    leader.rig.append(b"plain")  # 0
    leader.produce(2, b"aborted")  # 1
    leader.produce(1, b"aborted later")  # 2
    leader.produce(3, b"committed")  # 3
    leader.end_transaction(2, commit=False)  # 4
    leader.end_transaction(3, commit=True)  # 5
    leader.end_transaction(1, commit=False)  # 6
    leader.produce(9, b"open")  # 7
    leader.produce(2, b"committed later")  # 8
    leader.end_transaction(2, commit=True)  # 9
    await leader.commit_all()


# Fetch


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_stops_at_last_stable_offset_with_aborted_transactions(version: int) -> None:
    async def scenario(leader: Leader) -> None:
        await history(leader)
        data = await fetched(leader, COMMITTED, version=version)
        assert (data.high_watermark, data.last_stable_offset) == (10, 7)
        assert offsets(data) == [0, 1, 2, 3, 4, 5, 6]
        assert aborted(data) == [(2, 1), (1, 2)]
        data = await fetched(leader, UNCOMMITTED, version=version)
        assert (data.high_watermark, data.last_stable_offset) == (10, 7)
        assert offsets(data) == list(range(10))
        assert aborted(data) is None

    run_scenario(scenario)


def test_fetch_returns_only_overlapping_aborted_transactions() -> None:
    async def scenario(leader: Leader) -> None:
        await history(leader)
        assert aborted(await fetched(leader, COMMITTED, 5)) == [(1, 2)]
        assert aborted(await fetched(leader, COMMITTED, 7)) == []
        leader.end_transaction(9, commit=True)
        await leader.commit_all()
        data = await fetched(leader, COMMITTED, 7)
        assert (offsets(data), aborted(data), data.last_stable_offset) == ([7, 8, 9, 10], [], 11)

    run_scenario(scenario)


def test_fetch_above_last_stable_offset_returns_no_records() -> None:
    async def scenario(leader: Leader) -> None:
        await history(leader)
        for offset in (8, 10):
            data = await fetched(leader, COMMITTED, offset)
            assert (data.error_code, request_builders.records_of(data)) == (0, b"")

    run_scenario(scenario)


@pytest.mark.parametrize("version", range(4))
def test_old_versions_read_all_records_without_markers(version: int) -> None:
    async def scenario(leader: Leader) -> None:
        await history(leader)
        data = await fetched(leader, UNCOMMITTED, version=version)
        found = [message.offset for message in iter_message_set(request_builders.records_of(data))]
        assert found == [0, 1, 2, 3, 7, 8]
        data = await fetched(leader, UNCOMMITTED, 4, version=version)
        assert next(message.offset for message in iter_message_set(request_builders.records_of(data))) == 7

    run_scenario(scenario)


# Waiting


def test_read_committed_fetch_completes_on_transaction_marker() -> None:
    async def scenario(leader: Leader) -> None:
        leader.produce(1, b"first")
        await leader.commit_all()
        pending = leader.fetch(min_bytes=200, isolation_level=COMMITTED)
        for number in range(3):
            leader.produce(1, b"%d" % number)
            await leader.commit_all()
            await asyncio.sleep(0.01)
            assert not pending.is_ready
        began = leader.rig.loop.time()
        leader.end_transaction(1, commit=True)  # a marker of 78 bytes, fewer than min_bytes
        await leader.commit_all()
        data = await partition_response(pending)
        assert leader.rig.loop.time() - began < 0.1
        assert request_builders.values(data) == [b"first", b"0", b"1", b"2"]

    run_scenario(scenario)


def test_uncommitted_marker_does_not_complete_fetch() -> None:
    async def scenario(leader: Leader) -> None:
        leader.produce(1, b"value")
        await leader.commit_all()
        began = leader.rig.loop.time()
        pending = leader.fetch(isolation_level=COMMITTED)
        leader.end_transaction(1, commit=True)
        await leader.rig.replica().syncer.wait_until_synced()
        assert request_builders.values(await partition_response(pending)) == []
        assert leader.rig.loop.time() - began >= TIMEOUT_SECONDS

    run_scenario(scenario)


def test_too_few_bytes_before_open_transaction_keep_fetch_waiting() -> None:
    """The read is not truncated: the other records are not readable for this consumer yet."""

    async def scenario(leader: Leader) -> None:
        leader.rig.append(b"plain")
        leader.produce(1, b"open")
        await leader.commit_all()
        began = leader.rig.loop.time()
        pending = leader.fetch(min_bytes=1000, isolation_level=COMMITTED)
        assert request_builders.values(await partition_response(pending)) == [b"plain"]
        assert leader.rig.loop.time() - began >= TIMEOUT_SECONDS

    run_scenario(scenario)


def test_read_committed_fetch_without_transactions_waits_for_min_bytes() -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"one", b"two")
        began = leader.rig.loop.time()
        pending = leader.fetch(min_bytes=100, isolation_level=COMMITTED)  # a batch of one such record has 71 bytes
        leader.commit(1)
        await asyncio.sleep(0.1)
        assert not pending.is_ready
        leader.commit(2)
        assert request_builders.values(await partition_response(pending)) == [b"one", b"two"]
        assert leader.rig.loop.time() - began < TIMEOUT_SECONDS

    run_scenario(scenario)


def test_fetch_session_returns_partition_after_transaction_end() -> None:
    async def scenario(leader: Leader) -> None:
        await history(leader)

        async def ask(session: tuple[int, int], *wanted: tuple[str, int, int]) -> FetchResponse:
            request = request_builders.fetch_request(*wanted, session=session)
            request.isolation_level = COMMITTED
            return await leader.send_request(request, 12, FetchResponse)

        begun = await ask((0, 0), ("topic", 0, 7))
        assert begun.responses[0].partitions[0].last_stable_offset == 7
        assert (await ask((begun.session_id, 1))).responses == []
        leader.end_transaction(9, commit=False)
        await leader.commit_all()
        data = (await ask((begun.session_id, 2))).responses[0].partitions[0]
        assert (offsets(data), aborted(data), data.last_stable_offset) == ([7, 8, 9, 10], [(9, 7)], 11)

    run_scenario(scenario)


# ListOffsets


async def list_offset(leader: Leader, timestamp: int, isolation_level: int, version: int = 7) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name="topic", partitions=[wanted])]
    )
    return (await leader.send_request(request, version, ListOffsetsResponse)).topics[0].partitions[0].offset


@pytest.mark.parametrize("version", range(2, 12))
def test_latest_offset_is_last_stable_offset(version: int) -> None:
    async def scenario(leader: Leader) -> None:
        await history(leader)
        assert await list_offset(leader, LATEST, COMMITTED, version) == 7
        assert await list_offset(leader, LATEST, UNCOMMITTED, version) == 10

    run_scenario(scenario)


def test_timestamp_lookup_stops_at_last_stable_offset() -> None:
    async def scenario(leader: Leader) -> None:
        leader.produce(1, b"old", timestamp=1000)
        leader.end_transaction(1, commit=True, now_ms=1001)
        leader.produce(1, b"new", timestamp=2000)
        await leader.commit_all()
        assert await list_offset(leader, 1000, COMMITTED) == 0
        assert [await list_offset(leader, 1500, level) for level in (UNCOMMITTED, COMMITTED)] == [2, -1]
        assert [await list_offset(leader, MAX_TIMESTAMP, level) for level in (UNCOMMITTED, COMMITTED)] == [2, -1]
        leader.end_transaction(1, commit=False, now_ms=2001)
        await leader.commit_all()
        assert await list_offset(leader, 1500, COMMITTED) == 2

    run_scenario(scenario)
