"""One stream for all who look: how the cluster is, every two seconds, made only while somebody listens."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from pathlib import Path
from typing import Final

from chronik.client.errors import ClientError
from chronik.client.groups import committed_offsets
from chronik.console.http import HttpResponse
from chronik.console.rest.application import AsyncCall, RestApplication
from chronik.console.rest.call import Call
from chronik.console.rest.doing.groups import ends_of, lag_of, listed
from chronik.console.rest.doing.overview import cluster_view
from chronik.console.rest.doing.shared import unless_refused
from chronik.console.rest.shapes.common import Error, NoQuestion
from chronik.console.rest.shapes.live import GroupLag, Latency, LiveCluster, Overview, Percentiles, Rates
from chronik.console.rest.streams import CONTENT_TYPE, Event, encoded_event
from chronik.console.source import Figures
from chronik.errors import ChronikError
from chronik.principals import Principal
from chronik.protocol.errors import KafkaError

SECONDS: Final = 2.0
GROUPS_SHOWN_MAX: Final = 10
GROUPS_LOOKED_AT_MAX: Final = 200
"""Of more groups, the lag is looked at in turns."""
LAG_SECONDS: Final = 10.0
"""The lag of groups is asked for so often: it takes more than all the rest."""
EVENTS_AHEAD_MAX: Final = 4
"""A browser that does not read misses what was before."""


async def stream(call: AsyncCall, asked: NoQuestion) -> HttpResponse:
    tickers: dict[tuple[Principal, str], Ticker] = call.application.kept.setdefault("tickers", {})
    key = call.principal, call.host
    ticker = tickers.get(key)
    if ticker is None:
        ticker = tickers[key] = Ticker(call.application, call)
    return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, events=_events(tickers, key, ticker))


async def _events(
    tickers: dict[tuple[Principal, str], Ticker], key: tuple[Principal, str], ticker: Ticker
) -> AsyncGenerator[bytes, None]:
    queue: asyncio.Queue[bytes] = asyncio.Queue(EVENTS_AHEAD_MAX)
    ticker.join(queue)
    try:
        while True:
            yield await queue.get()
    finally:
        if ticker.leave(queue):
            tickers.pop(key, None)


class Ticker:
    """Makes one event for all tabs of one principal; those of others may see other things."""

    def __init__(self, application: RestApplication, call: Call) -> None:
        self._application = application
        self._call = call
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None
        self._last = b""
        self._before: tuple[float, float, Figures] | None = None
        self._lag: list[GroupLag] = []
        self._lag_at = float("-inf")

    def join(self, queue: asyncio.Queue[bytes]) -> None:
        self._listeners.add(queue)
        if self._last:
            queue.put_nowait(self._last)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def leave(self, queue: asyncio.Queue[bytes]) -> bool:
        """Says whether nobody is left."""
        self._listeners.discard(queue)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None
        return not self._listeners

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            self._last = await self._made()
            for queue in self._listeners:
                if not queue.full():
                    queue.put_nowait(self._last)
            await asyncio.sleep(max(0.0, SECONDS - (time.monotonic() - began)))

    async def _made(self) -> bytes:
        figures = self._application.side.figures()
        try:
            overview = await self._application.in_thread(self._overview, self._call, figures)
        except ChronikError as error:
            return encoded_event(Event("error", Error(str(error))))
        return encoded_event(Event("overview", overview))

    def _overview(self, call: Call, figures: Figures) -> Overview:
        overview = Overview(
            call.side.services.clock.now_ms(), None, None, None, self._lag_of_groups(call), None, None, None
        )
        if not call.may_describe_cluster():
            return overview
        view = cluster_view(call)
        overview.cluster = LiveCluster(**{name: getattr(view, name) for name in LiveCluster.__struct_fields__})
        overview.connections = figures.connections
        overview.memory_bytes = memory_bytes()
        self._add_rates(overview, figures)
        latencies = figures.latencies_ms
        nothing = (None, None)
        overview.latency_ms = Latency(
            Percentiles(*latencies.get("Produce", nothing)), Percentiles(*latencies.get("Fetch", nothing))
        )
        return overview

    def _add_rates(self, overview: Overview, figures: Figures) -> None:
        now, used = time.monotonic(), time.process_time()
        before, self._before = self._before, (now, used, figures)
        if before is None or now <= before[0]:
            return
        seconds = now - before[0]

        def rate(new: int | None, old: int | None) -> float | None:
            return None if new is None or old is None else round(max(0, new - old) / seconds, 1)

        old = before[2]
        overview.rates = Rates(
            rate(figures.requests, old.requests) or 0.0,
            rate(figures.errors, old.errors) or 0.0,
            rate(figures.in_bytes, old.in_bytes),
            rate(figures.out_bytes, old.out_bytes),
            rate(figures.in_messages, old.in_messages),
        )
        overview.cpu = round((used - before[1]) / seconds, 3)

    def _lag_of_groups(self, call: Call) -> list[GroupLag]:
        now = time.monotonic()
        if now - self._lag_at >= LAG_SECONDS:
            try:
                self._lag = _furthest_behind(call)
                self._lag_at = time.monotonic()
            except (KafkaError, ClientError):
                pass  # what was known before is shown until it is known again
        return self._lag


def _furthest_behind(call: Call) -> list[GroupLag]:
    offsets = {}
    for name in sorted(listed(call))[:GROUPS_LOOKED_AT_MAX]:
        committed = unless_refused(lambda name=name: committed_offsets(call.cluster, name))  # type: ignore[misc]
        if committed:
            offsets[name] = committed
    ends = ends_of(call, {each for of_group in offsets.values() for each in of_group})
    lags = [GroupLag(name, lag_of(committed, ends)) for name, committed in offsets.items()]
    return sorted(lags, key=lambda each: (-(each.lag or 0), each.group))[:GROUPS_SHOWN_MAX]


def memory_bytes() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()
