"""Standalone mode: metadata in a local write-ahead log, without peers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.config import NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.histogram import Histogram
from chronik.ids import generate_id
from chronik.metadata.commands.brokers import Endpoint
from chronik.metadata.levels import get_timestamp_if_supported
from chronik.metadata.stores.local_store import LocalStore, can_ack_before_sync, never_ack_early
from chronik.node.data_directory import DataDirectory
from chronik.node.node_mode import BackgroundJob, build_register_broker_command
from chronik.request_reply import Dispatch
from chronik.scheduler import Scheduler
from chronik.transactions.coordinator import TransactionComponents
from chronik.transactions.peer_messages import NoTransactionPeers

if TYPE_CHECKING:
    from chronik.console.rest.node_interface import OtherNodes

logger = logging.getLogger("chronik.node")


class StandaloneMode:
    """The mode of a node without peers, whose metadata is in a local log (see `NodeMode`)."""

    is_fenced: Final = False
    lease_expired_seconds: Final = float("-inf")
    may_be_replaced: Final = False
    is_up_to_date: Final = True
    is_draining: Final = False
    watchdog: Final = None
    transaction_peers: Final = NoTransactionPeers()

    def __init__(
        self, config: NodeConfig, folder: DataDirectory, clock: Clock, on_fatal: Callable[[BaseException], None]
    ) -> None:
        self._config = config
        self._folder = folder
        self._clock = clock
        self.broker_epoch = -1
        self.store: Final = LocalStore(
            folder.files,
            node_id=config.node_id,
            clock=clock,
            on_fatal=on_fatal,
            answers_early=can_ack_before_sync if config.flush == "os" else never_ack_early,
            snapshot_entries=config.metadata_snapshot_entries,
            snapshot_bytes=config.metadata_snapshot_bytes,
        )

    @property
    def controller_id(self) -> int:
        return self._config.node_id

    def is_recently_lost(self, node_id: int) -> bool:
        return False

    def status(self) -> dict[str, Any]:
        return {"role": "alone"}

    @property
    def sync_times(self) -> Histogram:
        return self.store.sync_times

    def raft_metrics(self) -> Mapping[str, int]:
        return {}

    def start_replication(self, replicas: ReplicaManager, configs: ConfigResolver) -> None:
        """Do nothing: there are no other replicas."""

    def serve_transactions(self, parts: TransactionComponents) -> None:
        """Do nothing: no other node sends transaction requests."""

    @property
    def other_nodes(self) -> OtherNodes:
        from chronik.console.rest.node_interface import NoOtherNodes

        return NoOtherNodes()

    def serve_other_nodes(
        self,
        dispatch: Dispatch,
        scheduler: Scheduler,
        status: Callable[[], dict[str, Any]],
        receive_health: Callable[[bytes], Awaitable[bytes]],
        answer_history_query: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        """Do nothing: there are no other nodes."""

    async def report_health(self, node_id: int, report: bytes, timeout_s: float) -> bytes:
        raise LookupError(f"node {node_id} does not exist: this node is standalone")

    async def bind(self) -> None:
        """Do nothing: there is no peer port."""

    async def join(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Check that the metadata belongs to this data directory, and register the broker.

        Raises:
            ConfigError: Data directory and metadata do not belong together.
        """
        self._folder.check_cluster(self.store.image.cluster_id)
        known = self.store.image.brokers.get(self._config.node_id)
        if known is not None:
            self._folder.check_directory_id(known.directory_id)
        command = build_register_broker_command(
            self._config, endpoints, self._folder.directory_id, generate_id(), is_durable=False
        )
        time_ms = get_timestamp_if_supported(self.store.image.features, self._clock.now_ms())
        result = await self.store.propose(replace(command, time_ms=time_ms))
        self.broker_epoch = result.value
        logger.info("registered broker %d: epoch=%d index=%d", self._config.node_id, result.value, result.index)

    async def drain(self) -> None:
        """Do nothing: no other node could take over leadership."""

    async def report_offline(self) -> None:
        """Do nothing: there is no other node to notify."""

    def background_jobs(self, when_up_to_date: Callable[[], None]) -> list[BackgroundJob]:
        return []
