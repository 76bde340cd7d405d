"""The fetch server of a leader: sessions, waits, response sizes and throttling."""

from __future__ import annotations

import asyncio

import pytest

from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.peers.calls import CallRejected
from chronik.protocol.batch import iter_batches
from chronik.protocol.errors import ErrorCode
from chronik.replication.messages import NO_SESSION, PartitionChunk, WakeRequest
from tests.replication.rig import FOLLOWER, OTHER, TOPIC_ID, FakeFollower, Rig


def offsets(portion: PartitionChunk) -> list[int]:
    return [header.base_offset for _, header in iter_batches(portion.records)]


def test_fetch_returns_records_since_previous_fetch() -> None:
    async def scenario(rig: Rig) -> None:
        rig.append()
        rig.append()
        follower = FakeFollower(rig)
        first = await follower.fetch(rig.at(0))
        assert offsets(first.chunks[0]) == [0, 1]
        rig.append()
        second = await follower.fetch(rig.at(2, last_epoch=0))
        assert offsets(second.chunks[0]) == [2]

    Rig().run(scenario)


def test_fetch_returns_changes_of_unlisted_session_partitions() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0), rig.at(0, 1))
        rig.append(index=1)
        answer = await follower.fetch()
        assert [(portion.partition, offsets(portion)) for portion in answer.chunks] == [(1, [0])]
        assert not [portion for portion in (await follower.fetch()).chunks if portion.records]

    Rig(partitions=2).run(scenario)


def test_fetch_waits_for_records_up_to_max_wait() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0))
        rig.loop.call_later(0.2, rig.append)
        answer = await follower.fetch(wait_ms=500)
        assert rig.loop.time() == pytest.approx(0.2)
        assert offsets(answer.chunks[0]) == [0]
        began = rig.loop.time()
        await follower.fetch(rig.at(1, last_epoch=0), wait_ms=500)
        assert rig.loop.time() == pytest.approx(began + 0.5)

    Rig().run(scenario)


def test_wake_completes_pending_fetch() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0))
        waiting = asyncio.ensure_future(follower.fetch(wait_ms=500))
        await asyncio.sleep(0.1)
        await rig.server.wake(FOLLOWER, WakeRequest(follower.session_id))
        answer = await waiting
        assert rig.loop.time() == pytest.approx(0.1)
        assert not [portion for portion in answer.chunks if portion.records]

    Rig().run(scenario)


def test_unexpected_fetch_number_ends_session() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0))
        follower.turn += 1
        assert (await follower.fetch()).session_id == NO_SESSION
        assert (await follower.fetch(rig.at(0))).session_id != NO_SESSION

    Rig().run(scenario)


def test_new_session_ends_previous_session_and_pending_fetch() -> None:
    async def scenario(rig: Rig) -> None:
        earlier = FakeFollower(rig)
        await earlier.fetch(rig.at(0))
        waiting = asyncio.ensure_future(earlier.fetch(wait_ms=500))
        await asyncio.sleep(0.1)
        await FakeFollower(rig).fetch(rig.at(0))
        assert (await waiting).session_id == NO_SESSION
        assert rig.loop.time() < 0.5

    Rig().run(scenario)


def test_sessions_of_followers_are_independent() -> None:
    async def scenario(rig: Rig) -> None:
        first, second = FakeFollower(rig, FOLLOWER), FakeFollower(rig, OTHER)
        await first.fetch(rig.at(0))
        await second.fetch(rig.at(0))
        rig.append()
        assert offsets((await first.fetch()).chunks[0]) == [0]
        assert offsets((await second.fetch()).chunks[0]) == [0]

    Rig().run(scenario)


def test_outdated_or_unregistered_broker_epoch_is_rejected() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        earlier = rig.epoch_of(FOLLOWER)
        rig.command(RegisterBroker(FOLLOWER, "host", 9092, None, b"n" * 16, bytes([FOLLOWER]) * 16))
        with pytest.raises(CallRejected, match="newer epoch"):
            await follower.fetch(rig.at(0), broker_epoch=earlier)
        with pytest.raises(CallRejected, match="not registered"):
            await follower.fetch(rig.at(0), broker_epoch=-1)
        assert (await follower.fetch(rig.at(0))).session_id != NO_SESSION

    Rig().run(scenario)


def test_session_is_bound_to_broker_epoch() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0))
        rig.command(RegisterBroker(FOLLOWER, "host", 9092, None, b"n" * 16, bytes([FOLLOWER]) * 16))
        assert (await follower.fetch()).session_id == NO_SESSION

    Rig().run(scenario)


def test_wrong_leader_epoch_returns_error_and_no_progress() -> None:
    async def scenario(rig: Rig) -> None:
        rig.append()
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        rig.command(SetPartitionLeader(TOPIC_ID, 0, 1))
        leading = rig.replica().isr_state
        assert leading is not None
        follower = FakeFollower(rig)
        behind = await follower.fetch(rig.at(1, last_epoch=0, leader_epoch=0))
        ahead = await follower.fetch(rig.at(1, last_epoch=0, leader_epoch=9))
        assert behind.chunks[0].error == ErrorCode.FENCED_LEADER_EPOCH
        assert ahead.chunks[0].error == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert leading.followers[FOLLOWER].offset == -1
        await follower.fetch(rig.at(1, last_epoch=0))
        assert leading.followers[FOLLOWER].offset == 1

    Rig().run(scenario)


def test_diverging_log_returns_divergence_and_no_progress() -> None:
    async def scenario(rig: Rig) -> None:
        rig.append()
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        rig.command(SetPartitionLeader(TOPIC_ID, 0, 1))  # epoch 2 starts at offset 1
        rig.append()
        follower = FakeFollower(rig)
        answer = await follower.fetch(rig.at(2, last_epoch=1))
        portion = answer.chunks[0]
        assert (portion.diverging_epoch, portion.diverging_end) == (0, 1)
        assert not portion.records
        assert rig.progress == []
        assert offsets((await follower.fetch(rig.at(1, last_epoch=0))).chunks[0]) == [1]
        assert len(rig.progress) == 1

    Rig().run(scenario)


def test_unknown_offset_returns_offset_out_of_range() -> None:
    async def scenario(rig: Rig) -> None:
        rig.append()
        rig.append()
        await rig.replica().syncer.wait_until_synced()
        rig.replica().log.delete_records_before(1)
        answer = await FakeFollower(rig).fetch(rig.at(0))
        portion = answer.chunks[0]
        assert portion.error == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (portion.log_start_offset, portion.log_end_offset) == (1, 2)

    Rig().run(scenario)


def test_non_replica_fetch_returns_error() -> None:
    async def scenario(rig: Rig) -> None:
        rig.append()
        rig.command(RegisterBroker(4, "host", 9092, None, b"4" * 16, b"4" * 16))
        answer = await FakeFollower(rig, 4).fetch(rig.at(0))
        assert answer.chunks[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not answer.chunks[0].records

    Rig().run(scenario)


def test_end_of_leadership_completes_pending_fetch() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0))
        rig.loop.call_later(0.1, rig.command, UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
        answer = await follower.fetch(wait_ms=500)
        assert rig.loop.time() == pytest.approx(0.1)
        assert answer.chunks[0].error == ErrorCode.NOT_LEADER_OR_FOLLOWER

    Rig().run(scenario)


def test_oversized_first_batch_is_returned() -> None:
    async def scenario(rig: Rig) -> None:
        rig.append(b"x" * 20_000)
        rig.append()
        answer = await FakeFollower(rig).fetch(rig.at(0), max_bytes=1000)
        assert offsets(answer.chunks[0]) == [0]

    Rig().run(scenario)


def test_response_size_is_limited_and_rest_follows() -> None:
    async def scenario(rig: Rig) -> None:
        for index in (0, 1, 2):
            rig.append(b"x" * 20_000, index)
        follower = FakeFollower(rig)
        positions = [rig.at(0, index) for index in (0, 1, 2)]
        first = await follower.fetch(*positions, max_bytes=25_000)
        second = await follower.fetch(max_bytes=25_000)
        third = await follower.fetch(max_bytes=25_000)
        for index, answer in enumerate((first, second, third)):
            assert [portion.partition for portion in answer.chunks if portion.records] == [index]

    Rig(partitions=3).run(scenario)


def test_recent_records_are_served_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_on_read(*_: object, **__: object) -> memoryview:
        raise AssertionError("the disk was read")

    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0))
        for size in (100, 200, 100_000, 300):
            rig.append(b"x" * size)
        with monkeypatch.context() as patch:
            patch.setattr("chronik.log.partition_log.PartitionLog.read", fail_on_read)
            answer = await follower.fetch()
        assert [offsets(portion) for portion in answer.chunks] == [[0, 1], [2], [3]]
        on_disk = rig.replica().log.read(0, 1 << 20, 4)
        assert b"".join(portion.records for portion in answer.chunks) == on_disk

    Rig().run(scenario)


def test_committed_records_are_read_from_disk() -> None:
    async def scenario(rig: Rig) -> None:
        followers = FakeFollower(rig, FOLLOWER), FakeFollower(rig, OTHER)
        for follower in followers:
            await follower.fetch(rig.at(0))
        rig.append(b"x" * 100_000)
        replica = rig.replica()
        await replica.syncer.wait_until_synced()
        assert replica._recent.read(0, 1 << 20)
        for follower in followers:
            await follower.fetch(rig.at(1, last_epoch=0))
        assert replica.high_watermark == 1
        assert not replica._recent.read(0, 1 << 20)
        assert offsets((await FakeFollower(rig).fetch(rig.at(0))).chunks[0]) == [0]

    Rig().run(scenario)


def test_uncommitted_records_are_dropped_from_memory_on_new_epoch() -> None:
    async def scenario(rig: Rig) -> None:
        await FakeFollower(rig).fetch(rig.at(0))
        rig.append(b"x" * 100_000)
        replica = rig.replica()
        assert replica._recent.read(0, 1 << 20)
        rig.command(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
        assert not replica.is_leader
        assert not replica._recent.read(0, 1 << 20)

    Rig().run(scenario)


def test_forgotten_partition_is_not_returned() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0), rig.at(0, 1))
        await follower.fetch(forgotten=((TOPIC_ID, 1),))
        rig.append(index=1)
        rig.append(index=0)
        answer = await follower.fetch()
        assert [portion.partition for portion in answer.chunks] == [0]
        assert not rig.replica(1).follower_listeners

    Rig(partitions=2).run(scenario)


def test_only_out_of_sync_followers_are_throttled() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        assert rig.partition().isr == (1, OTHER)
        for _ in range(2):
            rig.append(b"x" * 932)  # 1,000 bytes on disk: ten seconds at 100 bytes per second
        slow, quick = FakeFollower(rig, FOLLOWER), FakeFollower(rig, OTHER)
        assert offsets((await slow.fetch(rig.at(0), max_bytes=1000)).chunks[0]) == [0]
        began = rig.loop.time()
        answer = await slow.fetch(rig.at(1, last_epoch=0))
        while not any(portion.records for portion in answer.chunks):
            assert rig.loop.time() < began + 20
            answer = await slow.fetch(wait_ms=500)
        assert rig.loop.time() > began + 9
        assert offsets((await quick.fetch(rig.at(0))).chunks[0]) == [0, 1]

    Rig(configs={"leader.replication.throttled.replicas": "*"}).run(scenario)


def test_high_watermark_is_minimum_durable_offset_of_isr() -> None:
    async def scenario(rig: Rig) -> None:
        rig.append()
        rig.append()
        replica = rig.replica()
        await replica.syncer.wait_until_synced()
        first, second = FakeFollower(rig, FOLLOWER), FakeFollower(rig, OTHER)
        await first.fetch(rig.at(2, last_epoch=0))
        assert replica.high_watermark == 0
        await second.fetch(rig.at(1, last_epoch=0))
        assert replica.high_watermark == 1
        rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        assert replica.high_watermark == 2

    Rig().run(scenario)


class SlowOpenClock:
    """The clock of a node on which opening a log takes longer than an event-loop iteration may."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._opened_seconds = 0.0

    def monotonic(self) -> float:
        self._opened_seconds += 1.0
        return self._rig.clock.monotonic() + self._opened_seconds

    def now_ms(self) -> int:
        return self._rig.clock.now_ms()


def test_wake_during_log_opening_is_not_lost() -> None:
    async def scenario(rig: Rig) -> None:
        rig.server._clock = SlowOpenClock(rig)
        follower = FakeFollower(rig)
        fetching = asyncio.ensure_future(follower.fetch(rig.at(0), wait_ms=500))
        await asyncio.sleep(0)
        await rig.server.wake(FOLLOWER, WakeRequest(NO_SESSION))
        await fetching
        assert rig.loop.time() == 0.0

    Rig().run(scenario)


def test_wake_for_previous_fetch_does_not_complete_next_fetch() -> None:
    async def scenario(rig: Rig) -> None:
        follower = FakeFollower(rig)
        await follower.fetch(rig.at(0))
        await rig.server.wake(FOLLOWER, WakeRequest(follower.session_id))
        await follower.fetch(wait_ms=500)
        assert rig.loop.time() == pytest.approx(0.5)

    Rig().run(scenario)


def test_session_ending_during_log_opening_is_cleaned_up() -> None:
    async def scenario(rig: Rig) -> None:
        rig.server._clock = SlowOpenClock(rig)
        earlier = asyncio.ensure_future(FakeFollower(rig).fetch(rig.at(0), wait_ms=500))
        await asyncio.sleep(0)
        await FakeFollower(rig).fetch(rig.at(0))
        assert (await earlier).session_id == NO_SESSION
        assert rig.loop.time() == 0.0
        assert len(rig.replica().follower_listeners) == 1

    Rig().run(scenario)
