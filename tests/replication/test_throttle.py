"""A changed replication throttle takes effect while a partition waits for minutes at 100 bytes per second."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerConfig, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import UpdateTopicConfig
from chronik.peers.calls import CallKind
from chronik.protocol.records import Record, encode_batch
from chronik.replication.fetcher import ReplicaFetchers
from chronik.replication.messages import FetchCall, FollowerFetchRequest, FollowerFetchResponse, PartitionChunk
from chronik.replication.throttle import RECHECK_SECONDS, ReplicationThrottle
from tests.replication.rig import FOLLOWER, LEADER, TOPIC_ID, FakeFollower, Rig

RATE, REPLICAS = "{}.replication.throttled.rate", "{}.replication.throttled.replicas"
BATCH = b"x" * 60_000  # ten minutes at the throttled rate
SOON_SECONDS = 2 * RECHECK_SECONDS


def throttle_removals(side: str) -> dict[str, Command]:
    return {
        "replicas": UpdateTopicConfig(TOPIC_ID, {REPLICAS.format(side): ""}),
        "rate": UpdateBrokerConfig(LEADER, {RATE.format(side): str(10**9)}),
    }


@pytest.mark.parametrize("lifted", throttle_removals("leader"))
def test_leader_resumes_when_throttle_is_removed(lifted: str) -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        for _ in range(2):
            rig.append(BATCH)
        follower = FakeFollower(rig)
        assert (await follower.fetch(rig.at(0), max_bytes=1000)).chunks[0].records
        answer = await follower.fetch(rig.at(1, last_epoch=0), wait_ms=60_000)
        assert not any(portion.records for portion in answer.chunks), "the partition is throttled"
        rig.command(throttle_removals("leader")[lifted])
        until = rig.loop.time() + SOON_SECONDS
        while not any(portion.records for portion in answer.chunks):
            assert rig.loop.time() < until
            answer = await follower.fetch(wait_ms=500)

    Rig(configs={REPLICAS.format("leader"): "*"}).run(scenario)


class FakeLeader(FetchCall):
    """A fetch call to a fake leader that has a batch for every position."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(CallKind.FETCH, FollowerFetchRequest, FollowerFetchResponse)
        self._rig = rig
        self.asked_at: list[float] = []

    async def call(self, calls: Any, peer: int, request: FollowerFetchRequest, timeout: float) -> FollowerFetchResponse:
        portions = []
        for each in request.positions:
            self.asked_at.append(self._rig.loop.time())
            batch = encode_batch([Record(0, 0, None, BATCH)], base_offset=each.offset, leader_epoch=each.leader_epoch)
            portions.append(PartitionChunk(TOPIC_ID, 0, 0, 0, each.offset + 1, memoryview(batch)))
        await asyncio.sleep(0 if portions else request.max_wait_ms / 1000)
        return FollowerFetchResponse(1, tuple(portions))


@pytest.mark.parametrize("lifted", throttle_removals("follower"))
def test_follower_resumes_when_throttle_is_removed(lifted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        rig.configs = ConfigResolver(rig.store, LEADER, {RATE.format("follower"): "100"})
        throttle = ReplicationThrottle("follower", LEADER, rig.store, rig.configs, rig.clock)
        follows = ReplicaFetchers(LEADER, rig.replicas, None, rig.clock, lambda: 1, throttle)  # type: ignore[arg-type]
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        rig.command(UpdateBrokerStatus(LEADER, BrokerStatus.OFFLINE))
        rig.command(UpdateBrokerStatus(LEADER, BrokerStatus.ONLINE))
        assert LEADER not in rig.partition().isr
        leader = FakeLeader(rig)
        monkeypatch.setattr("chronik.replication.fetcher.FETCH", leader)
        running = asyncio.ensure_future(follows.run())
        await asyncio.sleep(10 * RECHECK_SECONDS)
        assert len(leader.asked_at) == 1, "the partition is throttled"
        rig.command(throttle_removals("follower")[lifted])
        await asyncio.sleep(SOON_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(leader.asked_at) > 1

    Rig(configs={REPLICAS.format("follower"): "*"}).run(scenario)


def test_lower_rate_applies_to_bytes_already_copied() -> None:
    async def scenario(rig: Rig) -> None:
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        throttle = ReplicationThrottle("leader", LEADER, rig.store, rig.configs, rig.clock)
        throttle.record_copied_bytes(rig.replica(), FOLLOWER, 50)
        assert throttle.delay(rig.replica(), FOLLOWER) == pytest.approx(0.5)
        rig.command(UpdateBrokerConfig(LEADER, {RATE.format("leader"): "50"}))
        assert throttle.delay(rig.replica(), FOLLOWER) == pytest.approx(1.0)
        rig.command(UpdateBrokerConfig(LEADER, {RATE.format("leader"): "500"}))
        assert throttle.delay(rig.replica(), FOLLOWER) == pytest.approx(0.1)

    Rig(configs={REPLICAS.format("leader"): "*"}).run(scenario)
