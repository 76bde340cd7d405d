"""A leader with real replicas on a simulated disk, and fake followers that the test controls."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

from chronik.broker.isr_state import Follower
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.broker.requests.produced_records import validate_produced_records
from chronik.configs.resolver import ConfigResolver
from chronik.files import FileCache
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.records import Partition
from chronik.protocol.records import Record, encode_batch
from chronik.replication.fetch_server import FollowerFetchServer
from chronik.replication.messages import (
    NO_SESSION,
    FollowerFetchRequest,
    FollowerFetchResponse,
    FollowerPosition,
    PartitionId,
)
from chronik.replication.throttle import ReplicationThrottle
from tests.replication.host import TwinDisk, VirtualFlusher
from tests.replication.metadata_log import SimulatedMetadataLog, VirtualStore
from tests.replication.virtual_loop import ProcessRun, SlowDisk, VirtualClock, VirtualLoop

TOPIC_ID = b"t" * 16
LEADER, FOLLOWER, OTHER = 1, 2, 3


class Rig:
    """Node 1 leads all partitions of the topic; nodes 2 and 3 follow. All are in the ISR."""

    def __init__(self, *, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.consensus = SimulatedMetadataLog(self.loop, random.Random(1))
        self.consensus.heal()
        for node in (LEADER, FOLLOWER, OTHER):
            self.consensus.command(RegisterBroker(node, "host", 9092, None, bytes([node]) * 16, bytes([node]) * 16))
        assignment = PartitionAssignment((LEADER, FOLLOWER, OTHER), (LEADER, FOLLOWER, OTHER), LEADER)
        self.consensus.command(CreateTopic(TOPIC_ID, "topic", (assignment,) * partitions, configs or {}, 0))
        self.fatal: list[BaseException] = []
        self.progress: list[tuple[Replica, Follower]] = []

    def run(self, story: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
        async def start_and_notify() -> None:
            self._start()
            await story(self)

        self.loop.run(start_and_notify(), [])
        for failure in (*self.loop.failures, *self.fatal):
            raise failure

    def _start(self) -> None:
        self.store = VirtualStore(LEADER, b"l" * 16, self.consensus, ProcessRun(), lambda: False)
        self.configs = ConfigResolver(self.store, LEADER, {"leader.replication.throttled.rate": "100"})
        files = TwinDisk()
        self.replicas = ReplicaManager(
            LEADER,
            self.store,
            self.configs,
            FileCache(files),
            SyncedOffsets(files, "synced-offsets"),
            self.clock,
            VirtualFlusher(SlowDisk(lambda: 0.001), self.loop),
            flush_each_append=True,
            on_fatal=self.fatal.append,
        )
        throttle = ReplicationThrottle("leader", LEADER, self.store, self.configs, self.clock)
        self.server = FollowerFetchServer(
            self.store, self.replicas, self.clock, lambda *progress: self.progress.append(progress), throttle
        )
        self.store.begin(len(self.consensus.log))
        self.store.subscribe(self.replicas.apply_delta)
        self.replicas.start()

    def command(self, command: Command) -> None:
        """Commit a command and apply it on the leader."""
        assert not self.consensus.command(command).code
        self.store._apply(1)

    def partition(self, index: int = 0) -> Partition:
        return self.store.image.topics["topic"].partitions[index]

    def replica(self, index: int = 0) -> Replica:
        return self.replicas.get_leader_by_id(TOPIC_ID, index)

    def epoch_of(self, node: int) -> int:
        return self.store.image.brokers[node].epoch

    def append(self, value: bytes = b"value", index: int = 0) -> int:
        """Append a batch with one record and return its offset."""
        replica = self.replica(index)
        batch = bytearray(encode_batch([Record(0, 0, None, value)]))
        return replica.append(validate_produced_records(memoryview(batch), replica.produce_rules, 13, 0)).base_offset

    def at(
        self, offset: int, index: int = 0, *, last_epoch: int = -1, leader_epoch: int | None = None
    ) -> FollowerPosition:
        """Return a follower's position in a partition."""
        epoch = self.partition(index).leader_epoch if leader_epoch is None else leader_epoch
        return FollowerPosition(TOPIC_ID, index, epoch, offset, last_epoch, 0)


class FakeFollower:
    """A fake follower that sends fetches in the order of its session."""

    def __init__(self, rig: Rig, node: int = FOLLOWER) -> None:
        self._rig = rig
        self._node = node
        self.session_id = NO_SESSION
        self.turn = 0

    async def fetch(
        self,
        *positions: FollowerPosition,
        wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        forgotten: tuple[PartitionId, ...] = (),
        broker_epoch: int | None = None,
    ) -> FollowerFetchResponse:
        epoch = self._rig.epoch_of(self._node) if broker_epoch is None else broker_epoch
        request = FollowerFetchRequest(epoch, self.session_id, self.turn, positions, forgotten, wait_ms, max_bytes)
        answer = await self._rig.server.fetch(self._node, request)
        self.turn = 0 if answer.session_id == NO_SESSION else 1 if not self.session_id else self.turn + 1
        self.session_id = answer.session_id
        return answer
