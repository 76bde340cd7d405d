"""What this disk has lost is seen to bit by bit, and leaders, replicas and topics change in between."""

from __future__ import annotations

import asyncio

import pytest

from chronik.broker.flusher import Flushable
from chronik.broker.replica import Replica
from chronik.metadata.commands.partitions import (
    PartitionKey,
    Reassignment,
    ReassignPartitions,
    ReportLostRecords,
    SetPartitionLeader,
)
from chronik.metadata.commands.topics import DeleteTopic
from chronik.peers.calls import PeerCalls
from chronik.replication.following import LEAVING_SECONDS, Following
from chronik.replication.isr_keeper import IsrKeeper
from chronik.replication.throttle import ReplicationThrottle

from .rig import FOLLOWER, LEADER, OTHER, TOPIC_ID, Rig

LOST_END = 5
"""So many records were synced once."""


async def lose_some(rig: Rig, index: int) -> Replica:
    rig.append(index=index)
    replica = rig.replica(index)
    await replica.syncs.all_synced()
    replica.log.missing_from = replica.log.log_end_offset
    replica.log.missing_end = LOST_END
    return replica


def lose_all(rig: Rig, index: int) -> None:
    rig.replicas._synced_offsets.record(TOPIC_ID, index, LOST_END)


@pytest.mark.parametrize("change", [SetPartitionLeader(TOPIC_ID, 1, OTHER), DeleteTopic(TOPIC_ID)])
def test_a_partition_may_get_another_leader_while_the_log_of_one_before_it_waits_for_its_disk(
    change: SetPartitionLeader | DeleteTopic,
) -> None:
    async def story(rig: Rig) -> None:
        first = await lose_some(rig, 0)
        lose_all(rig, 1)
        throttle = ReplicationThrottle("follower", LEADER, rig.store, rig.configs, rig.clock)
        calls = PeerCalls(lambda peer, frame: True)  # every fetch waits for an answer that never comes
        following = Following(LEADER, rig.replicas, calls, rig.clock, lambda: rig.epoch_of(LEADER), throttle)
        for index in range(2):
            rig.command(SetPartitionLeader(TOPIC_ID, index, FOLLOWER))
        rig.command(ReportLostRecords(LEADER, rig.epoch_of(LEADER), (PartitionKey(TOPIC_ID, 0),)))
        waited: list[Flushable] = []

        async def settled(log: Flushable) -> None:
            if not waited:
                waited.append(log)
                rig.command(change)

        rig.replicas._flusher.settled = settled  # type: ignore[method-assign]
        running = asyncio.ensure_future(following.run())
        await asyncio.sleep(3 * LEAVING_SECONDS)
        assert waited == [first.syncs]
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    Rig(partitions=2).run(story)


def test_a_lost_partition_may_have_moved_away_before_its_replica_here_has_heard_of_it() -> None:
    async def story(rig: Rig) -> None:
        keeper = IsrKeeper(LEADER, rig.store, rig.replicas, rig.configs, rig.clock, lambda: rig.epoch_of(LEADER))
        lose_all(rig, 0)
        replica = rig.replicas.led(TOPIC_ID, 0)
        assert replica is not None
        replica.open()
        assert replica.log.is_lost
        rig.store._subscribers.clear()  # as if it were one of thousands, whose turn comes later
        rig.command(ReassignPartitions((Reassignment(TOPIC_ID, 0, (FOLLOWER, OTHER)),)))
        assert rig.partition().replicas == (FOLLOWER, OTHER)
        await keeper._mend([replica])
        replica.was_out_of_isr = True  # elected all the same, by the word of an operator
        await keeper._mend([replica])
        assert replica.log.is_lost

    Rig().run(story)


def test_the_log_says_how_the_last_one_leads_again_once_its_files_are_back(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: Rig) -> None:
        lose_all(rig, 0)
        rig.command(ReassignPartitions((Reassignment(TOPIC_ID, 0, (OTHER, LEADER, FOLLOWER)),)))
        replica = next(iter(rig.replicas))
        replica.open()
        assert "`chronik topics reassign topic 0:1,3,2`" in caplog.text
        assert "`chronik topics elect-leaders --topic topic --partition 0 --unclean`" in caplog.text

    Rig().run(story)
