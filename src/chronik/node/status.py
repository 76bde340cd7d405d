"""What a node tells about itself over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import chronik
from chronik.api.routing.router import Router
from chronik.broker.replica import Replica
from chronik.broker.sync_times import SyncTimes
from chronik.clock import Clock
from chronik.config import NodeConfig
from chronik.console.source import Figures, Metric, Sample
from chronik.console.views import api_metrics, counter, gauge, group_view, image_metrics, image_view
from chronik.metadata import levels
from chronik.node.standing import Standing
from chronik.protocol.apis import APIS

DAMAGES_SHOWN_MAX: Final = 100
"""Partitions that are named in the status: a disk that has lost more has lost everything."""


class NodeStatus:
    """See `StatusSource`."""

    def __init__(
        self,
        config: NodeConfig,
        standing: Standing,
        router: Router,
        connection_count: Callable[[], int],
        clock: Clock,
        sync_times: SyncTimes,
        damages: Callable[[], Iterable[tuple[Replica, str]]],
        began: float,
    ) -> None:
        self._config = config
        self._standing = standing
        self._router = router
        self._connection_count = connection_count
        self._clock = clock
        self._sync_times = sync_times
        self._damages = damages
        self._began = began

    def status(self) -> dict[str, Any]:
        return {
            "node_id": self._config.node_id,
            "version": chronik.__version__,
            "levels": (levels.LOWEST, levels.HIGHEST),
            "pid": os.getpid(),
            "uptime_s": round(self._clock.monotonic() - self._began, 1),
            "broker_epoch": self._standing.broker_epoch,
            "fenced": self._standing.is_fenced,
            "leader": self._standing.controller_id,
            "syncs": self._sync_times.view(),
            **self._standing.status(),
            "damaged": [f"{replica}: {damage}" for replica, damage in islice(self._damages(), DAMAGES_SHOWN_MAX)],
            **image_view(self._standing.store.image),
        }

    def figures(self) -> Figures:
        """Returns what the console shows of this node's load."""
        counts = self._router.counts.values()
        requests, failures = sum(each.requests for each in counts), sum(each.failures for each in counts)
        return Figures(requests, failures, self._connection_count())

    def group(self, group_id: str) -> dict[str, Any] | None:
        return group_view(self._standing.store.image, group_id)

    def ready(self) -> str | None:
        if self._standing.is_draining:
            return "draining"
        return "this broker is fenced: it is not part of a majority" if self._standing.is_fenced else None

    def metrics(self) -> Iterable[Metric]:
        yield from self._own_metrics()
        yield from image_metrics(self._standing.store.image)

    def _own_metrics(self) -> Iterator[Metric]:
        counts = self._router.counts.items()
        yield from api_metrics((APIS[key].name, count.requests, count.failures) for key, count in counts)
        yield gauge("chronik_connections", "Open client connections.", self._connection_count())
        throttled = self._router.limiter.throttled.items()
        yield Metric(
            "chronik_throttled_requests_total",
            "counter",
            "Requests whose clients had to wait, by the quota that they exceeded.",
            [Sample(count, {"quota": name}) for name, count in throttled],
        )
        damaged = sum(1 for _ in self._damages())
        yield gauge("chronik_damaged_partitions", "Partitions of which this disk has lost records.", damaged)
        yield gauge("chronik_fenced", "1 while this broker serves no data.", self._standing.is_fenced)
        times = self._sync_times
        yield counter("chronik_syncs_total", "Times that records were synced to disk.", times.count)
        yield counter("chronik_slow_syncs_total", "Of those, the ones that took over 50 ms.", times.slow_count)
        yield gauge("chronik_longest_sync_seconds", "The longest of them.", times.longest_seconds)
        for name, value in self._standing.status().items():
            if isinstance(value, int):
                yield gauge(f"chronik_raft_{name}", f"Of the metadata log: {name.replace('_', ' ')}.", value)
