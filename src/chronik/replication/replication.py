"""The replication components of a node: fetch server, fetchers, ISR maintenance and offset checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.stores.store import MetadataStore
from chronik.peers.calls import PeerCalls
from chronik.replication.checkpoints import OffsetCheckpoints
from chronik.replication.fetch_server import FollowerFetchServer
from chronik.replication.fetcher import ReplicaFetchers
from chronik.replication.isr_manager import IsrManager
from chronik.replication.messages import FETCH, WAKE
from chronik.replication.throttle import ReplicationThrottle


class Replication:
    """Replication on one node. Create it before the transport starts and before `replicas` gets its first delta."""

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
