"""When all nodes stop at once, partitions change their leaders while a node ceases to follow."""

from __future__ import annotations

import asyncio

import pytest

from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.peers.calls import PeerCalls
from chronik.replication.following import Following
from chronik.replication.throttle import ReplicationThrottle

from .rig import FOLLOWER, LEADER, OTHER, TOPIC_ID, Rig


@pytest.mark.parametrize("turns", range(5))
def test_leaders_may_change_in_every_turn_of_the_end(turns: int) -> None:
    async def story(rig: Rig) -> None:
        throttle = ReplicationThrottle("follower", LEADER, rig.store, rig.configs, rig.clock)
        calls = PeerCalls(lambda peer, frame: True)  # every fetch waits for an answer that never comes
        following = Following(LEADER, rig.replicas, calls, rig.clock, lambda: rig.epoch_of(LEADER), throttle)
        rig.command(SetPartitionLeader(TOPIC_ID, 0, FOLLOWER))
        rig.command(SetPartitionLeader(TOPIC_ID, 1, OTHER))
        running = asyncio.ensure_future(following.run())
        await asyncio.sleep(0.1)
        running.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        rig.command(SetPartitionLeader(TOPIC_ID, 0, OTHER))
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()

    Rig(partitions=2).run(story)
