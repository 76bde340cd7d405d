"""The shutdown of the replica fetchers while partition leaders change, as when all nodes stop together."""

from __future__ import annotations

import asyncio

import pytest

from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.peers.calls import PeerCalls
from chronik.replication.fetcher import ReplicaFetchers
from chronik.replication.throttle import ReplicationThrottle
from tests.replication.rig import FOLLOWER, LEADER, OTHER, TOPIC_ID, Rig


@pytest.mark.parametrize("iterations", range(5))
def test_leader_changes_during_shutdown_are_handled(iterations: int) -> None:
    async def scenario(rig: Rig) -> None:
        throttle = ReplicationThrottle("follower", LEADER, rig.store, rig.configs, rig.clock)
        calls = PeerCalls(lambda peer, frame: True)  # fetches never receive a response
        following = ReplicaFetchers(LEADER, rig.replicas, calls, rig.clock, lambda: rig.epoch_of(LEADER), throttle)
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        rig.command(SetPartitionLeader(TOPIC_ID, 1, OTHER))
        running = asyncio.ensure_future(following.run())
        await asyncio.sleep(0.1)
        running.cancel()
        for _ in range(iterations):
            await asyncio.sleep(0)
        rig.command(SetPartitionLeader(TOPIC_ID, 0, OTHER))
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()

    Rig(partitions=2).run(scenario)
