"""Status and metrics of a node, as served over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import chronik
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.broker.flusher import SyncMetrics
from chronik.broker.partition_counters import PartitionChangeCounters
from chronik.console.image_views import describe_group, describe_image
from chronik.console.status_source import Metric, NodeStats
from chronik.metadata import levels
from chronik.node.node_mode import NodeMode
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.server.listener import ClientListeners

if TYPE_CHECKING:
    from chronik.console.metrics.collector import MetricsCollector
    from chronik.console.metrics.partition_stats import CollectionSteps, PartitionStats
    from chronik.health.reports import HealthReport

REPORTED_DAMAGES_MAX: Final = 100
"""The maximum number of damaged partitions listed in the node's status."""


class NodeStatusSource:
    """The source of a node's status, readiness and statistics (see `StatusSource`)."""

    def __init__(
        self,
        node_mode: NodeMode,
        services: Services,
        router: Router,
        listener: ClientListeners,
        sync_times: SyncMetrics,
        changes: PartitionChangeCounters,
        began: float,
    ) -> None:
        self._config = services.config
        self._node_mode = node_mode
        self._services = services
        self._router = router
        self._listener = listener
        self._sync_times = sync_times
        self._changes = changes
        self.watchdog = node_mode.watchdog or EventLoopWatchdog()
        self._started_at = began
        self._started_at_seconds = services.clock.now_ms() / 1000 - (services.clock.monotonic() - began)
        self._metrics: MetricsCollector | None = None

    def start(self) -> None:
        """Start the event-loop watchdog unless the node's mode already runs one."""
        if self._node_mode.watchdog is None:
            self.watchdog.start()

    def stop(self) -> None:
        """Stop the event-loop watchdog that `start` has started."""
        if self._node_mode.watchdog is None:
            self.watchdog.stop()

    def status(self) -> dict[str, Any]:
        """Return the node's status as a JSON-compatible dict."""
        damages = self._services.replicas.iter_damaged_replicas()
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
            "syncs": self._sync_times.to_json(),
            **self._node_mode.status(),
            "damaged": [f"{replica}: {damage}" for replica, damage in islice(damages, REPORTED_DAMAGES_MAX)],
            **describe_image(self._node_mode.store.image),
        }

    def group(self, group_id: str) -> dict[str, Any] | None:
        """Return the status of a consumer group as a JSON-compatible dict, or None if the group does not exist."""
        return describe_group(self._node_mode.store.image, group_id)

    def unready_reason(self) -> str | None:
        """Return the reason why the node is not ready for clients, or None if it is ready."""
        if self._node_mode.is_draining:
            return "draining"
        return "this broker is fenced: it has no connection to a majority" if self._node_mode.is_fenced else None

    async def health(self) -> HealthReport | None:
        """Return the problems of the cluster, as of about now."""
        return None if self._services.find_health is None else await self._services.find_health()

    def metrics(self) -> Iterable[Metric | None]:
        """Return the node's metrics, as exported to Prometheus."""
        return self._get_metrics_collector().collect()

    def collect_partition_stats(self) -> CollectionSteps[PartitionStats]:
        """Return statistics over all partitions and committed offsets, computed in steps."""
        return self._get_metrics_collector().partition_stats()

    def node_stats(self) -> NodeStats:
        """Return the node's key statistics."""
        from chronik.console.metrics.counters import collect_node_stats

        return collect_node_stats(self._router.meters, self._listener.connection_count)

    def _get_metrics_collector(self) -> MetricsCollector:
        """Return the metrics source, which is imported on first use because many nodes are never scraped."""
        if self._metrics is None:
            from chronik.console.metrics.collector import MetricsCollector
            from chronik.console.metrics.counters import MetricSources

            node_mode = self._node_mode
            self._metrics = MetricsCollector(
                MetricSources(
                    self._services,
                    self._router,
                    self._listener,
                    self._changes,
                    self._sync_times,
                    lambda: node_mode.sync_times,
                    self.watchdog,
                    node_mode.raft_metrics,
                    self._started_at_seconds,
                )
            )
        return self._metrics
