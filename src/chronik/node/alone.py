"""Standalone mode: metadata in a local write-ahead log, without peers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.config import NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.exchange import Dispatch
from chronik.ids import new_id
from chronik.metadata.commands.brokers import Endpoint
from chronik.metadata.levels import time_if_kept
from chronik.metadata.stores.early_answers import early_with_os, never_early
from chronik.metadata.stores.local_store import LocalStore
from chronik.meters import Histogram
from chronik.node.data_folder import DataFolder
from chronik.node.standing import Job, registered_as
from chronik.scheduler import Scheduler
from chronik.transactions.messages import Nowhere
from chronik.transactions.parts import TransactionParts

if TYPE_CHECKING:
    from chronik.console.rest.node_side import OtherNodes

logger = logging.getLogger("chronik.node")


class Alone:
    """The mode of a node without peers; peer-related operations do nothing."""

    is_fenced: Final = False
    may_be_replaced: Final = False
    is_up_to_date: Final = True
    is_draining: Final = False
    watchdog: Final = None
    elsewhere: Final = Nowhere()

    def __init__(
        self, config: NodeConfig, folder: DataFolder, clock: Clock, on_fatal: Callable[[BaseException], None]
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
            answers_early=early_with_os if config.flush == "os" else never_early,
            snapshot_entries=config.metadata_snapshot_entries,
            snapshot_bytes=config.metadata_snapshot_bytes,
        )

    @property
    def controller_id(self) -> int:
        return self._config.node_id

    def is_gone(self, node_id: int) -> bool:
        return False

    def status(self) -> dict[str, Any]:
        return {"role": "alone"}

    @property
    def sync_times(self) -> Histogram:
        return self.store.sync_times

    def raft_meters(self) -> Mapping[str, int]:
        return {}

    def keep_in_sync(self, replicas: Replicas, configs: ConfigResolver) -> None:
        """Do nothing: there are no other replicas."""

    def serve_transactions(self, parts: TransactionParts) -> None:
        """Do nothing: no other node sends transaction requests."""

    @property
    def others(self) -> OtherNodes:
        from chronik.console.rest.node_side import Nobody

        return Nobody()

    def serve_others(self, dispatch: Dispatch, scheduler: Scheduler, status: Callable[[], dict[str, Any]]) -> None:
        """Do nothing: there are no other nodes."""

    async def bind(self) -> None:
        """Do nothing: there is no peer port."""

    async def join(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Register the broker.

        Raises:
            ConfigError: Data directory and metadata do not belong together.
        """
        self._folder.belongs_to(self.store.image.cluster_id)
        known = self.store.image.brokers.get(self._config.node_id)
        if known is not None:
            self._folder.is_directory(known.directory_id)
        command = registered_as(self._config, endpoints, self._folder.directory_id, new_id(), is_durable=False)
        time_ms = time_if_kept(self.store.image.features, self._clock.now_ms())
        result = await self.store.propose(replace(command, time_ms=time_ms))
        self.broker_epoch = result.value
        logger.info("registered broker %d: epoch=%d index=%d", self._config.node_id, result.value, result.index)

    async def drain(self) -> None:
        """Do nothing: no other node could take over leadership."""

    async def leave(self) -> None:
        """Do nothing: there is no other node to notify."""

    def jobs(self, when_up_to_date: Callable[[], None]) -> list[Job]:
        return []
