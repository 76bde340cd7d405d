"""The replication components of a node: fetch server, fetchers, ISR maintenance and offset checkpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.partitions import OffsetCheckpoint, UpdatePartitionOffset
from chronik.metadata.stores.store import MetadataStore
from chronik.peers.calls import PeerCalls
from chronik.protocol.errors import KafkaError
from chronik.replication.fetch_server import FollowerFetchServer
from chronik.replication.fetcher import ReplicaFetchers
from chronik.replication.isr_manager import IsrManager
from chronik.replication.messages import FETCH, WAKE
from chronik.replication.throttle import ReplicationThrottle

logger = logging.getLogger("chronik.replication")

CHECKPOINT_SECONDS: Final = 30.0

CHECKPOINTS_PER_COMMAND_MAX: Final = 1000
"""Maximum number of partitions per checkpoint command, which every node applies in one event-loop iteration."""


class OffsetCheckpoints:
    """A job that checkpoints the high watermarks and log start offsets of this node's partitions in the metadata.

    The last checkpoint is a lower bound of both offsets for a new leader, or for a node without any of the partition's
    records.
    """

    def __init__(
        self, store: MetadataStore, replicas: ReplicaManager, interval_seconds: float = CHECKPOINT_SECONDS
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            checkpoints: list[OffsetCheckpoint] = []
            for batch in self._replicas.iter_chunks():
                checkpoints += [
                    checkpoint for replica in batch if (checkpoint := self._checkpoint(replica)) is not None
                ]
                await asyncio.sleep(0)
            for first in range(0, len(checkpoints), CHECKPOINTS_PER_COMMAND_MAX):
                try:
                    command = UpdatePartitionOffset(tuple(checkpoints[first : first + CHECKPOINTS_PER_COMMAND_MAX]))
                    await self._store.propose(command)
                except KafkaError as error:
                    logger.info("offset checkpoint failed: %s; retrying at the next interval", error)

    def _checkpoint(self, replica: Replica) -> OffsetCheckpoint | None:
        log = replica.log_if_open
        topic = self._store.image.all_topics_by_id.get(replica.topic_id)
        if log is None or topic is None or not replica.is_leader or log.has_lost_all_records:
            return None
        stored = topic.partitions[replica.index]
        start = min(log.log_start_offset, replica.high_watermark)
        if (stored.high_watermark, stored.log_start_offset) == (replica.high_watermark, start):
            return None
        return OffsetCheckpoint(replica.topic_id, replica.index, replica.leader_epoch, replica.high_watermark, start)


class Replication:
    """The replication components of a node. Create it before the transport starts and `replicas` gets a delta."""

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        replicas: ReplicaManager,
        configs: ConfigResolver,
        calls: PeerCalls,
        clock: Clock,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._isr_manager = IsrManager(node_id, store, replicas, configs, clock, broker_epoch)
        leader_throttle = ReplicationThrottle("leader", node_id, store, configs, clock)
        server = FollowerFetchServer(store, replicas, clock, self._isr_manager.on_follower_progress, leader_throttle)
        FETCH.serve(calls, server.fetch)
        WAKE.serve(calls, server.wake)
        follower_throttle = ReplicationThrottle("follower", node_id, store, configs, clock)
        self._following = ReplicaFetchers(node_id, replicas, calls, clock, broker_epoch, follower_throttle)
        self._checkpoints = OffsetCheckpoints(store, replicas)

    def jobs(self) -> list[Callable[[], Awaitable[None]]]:
        return [self._following.run, self._isr_manager.run, self._checkpoints.run]
