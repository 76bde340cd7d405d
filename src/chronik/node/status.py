"""What a node tells about itself over HTTP."""

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
"""Partitions that are named in the status: a disk that has lost more has lost everything."""


class NodeStatus:
    """See `StatusSource`."""

    def __init__(
        self,
        standing: Standing,
        services: Services,
        router: Router,
        listener: Listener,
        sync_times: SyncTimes,
        changes: PartitionChanges,
        began: float,
    ) -> None:
        self._config = services.config
        self._standing = standing
        self._services = services
        self._router = router
        self._listener = listener
        self._sync_times = sync_times
        self._changes = changes
        self._watchdog = standing.watchdog or LoopWatchdog()
        self._began = began
        self._began_seconds = services.clock.now_ms() / 1000 - (services.clock.monotonic() - began)
        self._metrics: Metrics | None = None

    def start(self) -> None:
        """Begins to look at the loop, unless that is looked at anyway."""
        if self._standing.watchdog is None:
            self._watchdog.start()

    def stop(self) -> None:
        if self._standing.watchdog is None:
            self._watchdog.stop()

    def status(self) -> dict[str, Any]:
        damages = self._services.replicas.damages()
        return {
            "node_id": self._config.node_id,
            "version": chronik.__version__,
            "levels": (levels.LOWEST, levels.HIGHEST),
            "pid": os.getpid(),
            "time_ms": self._services.clock.now_ms(),
            "uptime_s": round(self._services.clock.monotonic() - self._began, 1),
            "broker_epoch": self._standing.broker_epoch,
            "fenced": self._standing.is_fenced,
            "leader": self._standing.controller_id,
            "syncs": self._sync_times.view(),
            **self._standing.status(),
            "damaged": [f"{replica}: {damage}" for replica, damage in islice(damages, DAMAGES_SHOWN_MAX)],
            **image_view(self._standing.store.image),
        }

    def group(self, group_id: str) -> dict[str, Any] | None:
        return group_view(self._standing.store.image, group_id)

    def ready(self) -> str | None:
        if self._standing.is_draining:
            return "draining"
        return "this broker is fenced: it is not part of a majority" if self._standing.is_fenced else None

    def metrics(self) -> Iterable[Metric | None]:
        return self._all_metrics().all()

    def survey(self) -> Steps[Survey]:
        """Looks at all partitions and offsets: yields whenever it is time for others, and returns what it saw."""
        return self._all_metrics().survey()

    def vitals(self) -> Vitals:
        from chronik.console.metrics.vital_signs import vitals_of

        return vitals_of(self._router.meters, self._listener.connection_count)

    def _all_metrics(self) -> Metrics:
        """Makes them when they are first asked for: many nodes are never scraped, and need not load them."""
        if self._metrics is None:
            from chronik.console.metrics.made import Metrics
            from chronik.console.metrics.plain import Metered

            standing = self._standing
            self._metrics = Metrics(
                Metered(
                    self._services,
                    self._router,
                    self._listener,
                    self._changes,
                    self._sync_times,
                    lambda: standing.sync_times,
                    self._watchdog,
                    standing.raft_meters,
                    self._began_seconds,
                )
            )
        return self._metrics
