"""Status and metrics of a node, as served over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import chronik
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.broker.partition_changes import PartitionChanges
from chronik.broker.sync_times import SyncTimes
from chronik.console.source import Metric
from chronik.console.views import group_view, image_view
from chronik.console.vitals import Vitals
from chronik.metadata import levels
from chronik.node.standing import Standing
from chronik.quorum.watchdog import LoopWatchdog
from chronik.server.listener import Listener

if TYPE_CHECKING:
    from chronik.console.metrics.made import Metrics
    from chronik.console.metrics.survey import Steps, Survey

DAMAGES_SHOWN_MAX: Final = 100
"""Damaged partitions that the status names."""


class NodeStatus:
    """The status of a node (see `StatusSource`)."""

    def __init__(
        self,
        node_mode: Standing,
        services: Services,
        router: Router,
        listener: Listener,
        sync_times: SyncTimes,
        changes: PartitionChanges,
        began: float,
    ) -> None:
        self._config = services.config
        self._node_mode = node_mode
        self._services = services
        self._router = router
        self._listener = listener
        self._sync_times = sync_times
        self._changes = changes
        self._watchdog = node_mode.watchdog or LoopWatchdog()
        self._started_at = began
        self._started_at_seconds = services.clock.now_ms() / 1000 - (services.clock.monotonic() - began)
        self._metrics: Metrics | None = None

    def start(self) -> None:
        """Start the event-loop watchdog, unless the mode has one that runs already."""
        if self._node_mode.watchdog is None:
            self._watchdog.start()

    def stop(self) -> None:
        """Stop the event-loop watchdog, if `start` has started it."""
        if self._node_mode.watchdog is None:
            self._watchdog.stop()

    def status(self) -> dict[str, Any]:
        """Return the status as a JSON-compatible dict."""
        damages = self._services.replicas.damages()
        return {
            "node_id": self._config.node_id,
            "version": chronik.__version__,
            "levels": (levels.LOWEST, levels.HIGHEST),
            "pid": os.getpid(),
            "time_ms": self._services.clock.now_ms(),
            "uptime_s": round(self._services.clock.monotonic() - self._started_at, 1),
            "broker_epoch": self._node_mode.broker_epoch,
            "fenced": self._node_mode.is_fenced,
            "leader": self._node_mode.controller_id,
            "syncs": self._sync_times.view(),
            **self._node_mode.status(),
            "damaged": [f"{replica}: {damage}" for replica, damage in islice(damages, DAMAGES_SHOWN_MAX)],
            **image_view(self._node_mode.store.image),
        }

    def group(self, group_id: str) -> dict[str, Any] | None:
        """Return a consumer group as a JSON-compatible dict, or None if it does not exist."""
        return group_view(self._node_mode.store.image, group_id)

    def ready(self) -> str | None:
        """Return why the node is not ready for clients, or None if it is."""
        if self._node_mode.is_draining:
            return "draining"
        return "this broker is fenced: it has no connection to a majority" if self._node_mode.is_fenced else None

    def metrics(self) -> Iterable[Metric | None]:
        """Return the metrics."""
        return self._all_metrics().all()

    def survey(self) -> Steps[Survey]:
        """Examine all partitions and offsets in steps, and return the totals."""
        return self._all_metrics().survey()

    def vitals(self) -> Vitals:
        """Return the most important numbers of the node."""
        from chronik.console.metrics.vital_signs import vitals_of

        return vitals_of(self._router.meters, self._listener.connection_count)

    def _all_metrics(self) -> Metrics:
        """Return the metrics source, imported on first use because many nodes are never scraped."""
        if self._metrics is None:
            from chronik.console.metrics.made import Metrics
            from chronik.console.metrics.plain import Metered

            node_mode = self._node_mode
            self._metrics = Metrics(
                Metered(
                    self._services,
                    self._router,
                    self._listener,
                    self._changes,
                    self._sync_times,
                    lambda: node_mode.sync_times,
                    self._watchdog,
                    node_mode.raft_meters,
                    self._started_at_seconds,
                )
            )
        return self._metrics
