"""The replica fetchers: lost records and shutdown while leaders, replicas and topics change concurrently."""

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
from chronik.replication.fetcher import ISR_CHECK_SECONDS, ReplicaFetchers
from chronik.replication.isr_manager import IsrManager
from chronik.replication.throttle import ReplicationThrottle
from tests.replication.rig import FOLLOWER, LEADER, OTHER, TOPIC_ID, Rig

LOST_END = 5
"""Number of records that were synced before the loss."""


async def lose_first_records(rig: Rig, index: int) -> Replica:
    rig.append(index=index)
    replica = rig.replica(index)
    await replica.syncer.wait_until_synced()
    replica.log.missing_start_offset = replica.log.log_end_offset
    replica.log.missing_end_offset = LOST_END
    return replica


def lose_log(rig: Rig, index: int) -> None:
    rig.replicas._synced_offsets.record(TOPIC_ID, index, LOST_END)


@pytest.mark.parametrize("change", [SetPartitionLeader(TOPIC_ID, 1, OTHER), DeleteTopic(TOPIC_ID)])
def test_leader_change_during_sync_of_other_partition(
    change: SetPartitionLeader | DeleteTopic,
) -> None:
    async def scenario(rig: Rig) -> None:
        first = await lose_first_records(rig, 0)
        lose_log(rig, 1)
        throttle = ReplicationThrottle("follower", LEADER, rig.store, rig.configs, rig.clock)
        calls = PeerCalls(lambda peer, frame: True)  # fetches never receive a response
        following = ReplicaFetchers(LEADER, rig.replicas, calls, rig.clock, lambda: rig.epoch_of(LEADER), throttle)
        for index in range(2):
            rig.command(SetPartitionLeader(TOPIC_ID, index, FOLLOWER))
        rig.command(ReportLostRecords(LEADER, rig.epoch_of(LEADER), (PartitionKey(TOPIC_ID, 0),)))
        waited: list[Flushable] = []

        async def settled(log: Flushable) -> None:
            if not waited:
                waited.append(log)
                rig.command(change)

        rig.replicas._flusher.wait_until_idle = settled  # type: ignore[method-assign]
        running = asyncio.ensure_future(following.run())
        await asyncio.sleep(3 * ISR_CHECK_SECONDS)
        assert waited == [first.syncer]
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    Rig(partitions=2).run(scenario)


def test_lost_partition_reassigned_before_replica_is_updated() -> None:
    async def scenario(rig: Rig) -> None:
        keeper = IsrManager(LEADER, rig.store, rig.replicas, rig.configs, rig.clock, lambda: rig.epoch_of(LEADER))
        lose_log(rig, 0)
        replica = rig.replicas.find_led_replica(TOPIC_ID, 0)
        assert replica is not None
        replica.open()
        assert replica.log.has_lost_all_records
        rig.store._subscribers.clear()  # the replica does not receive the change yet
        rig.command(ReassignPartitions((Reassignment(TOPIC_ID, 0, (FOLLOWER, OTHER)),)))
        assert rig.partition().replicas == (FOLLOWER, OTHER)
        await keeper._update_isrs([replica])
        replica.has_been_out_of_isr = True  # elected uncleanly by an operator
        await keeper._update_isrs([replica])
        assert replica.log.has_lost_all_records

    Rig().run(scenario)


def test_log_explains_recovery_of_lost_partition(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(rig: Rig) -> None:
        lose_log(rig, 0)
        rig.command(ReassignPartitions((Reassignment(TOPIC_ID, 0, (OTHER, LEADER, FOLLOWER)),)))
        replica = next(iter(rig.replicas))
        replica.open()
        assert "`chronik topics reassign topic 0:1,3,2`" in caplog.text
        assert "`chronik topics elect-leaders --topic topic --partition 0 --unclean`" in caplog.text

    Rig().run(scenario)


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
