"""The live overview: an event every two seconds with the state of the cluster, shared by all tabs of a principal and
produced only while a client is connected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from chronik.client.errors import ClientError
from chronik.client.groups import committed_offsets
from chronik.console.http import HttpResponse
from chronik.console.rest.application import AsyncCall, RestApplication
from chronik.console.rest.call import Call
from chronik.console.rest.doing.cluster import cluster_view
from chronik.console.rest.doing.groups import ends_of, lag_of, listed
from chronik.console.rest.doing.shared import unless_refused
from chronik.console.rest.refusals import Refusal
from chronik.console.rest.shapes.common import Error, NoQuestion
from chronik.console.rest.shapes.live import GroupLag, Latency, LiveCluster, Overview, Percentiles, Rates
from chronik.console.rest.streams import CONTENT_TYPE, Event, encoded_event
from chronik.console.vitals import Latency as Seconds
from chronik.console.vitals import Vitals
from chronik.errors import ChronikError
from chronik.principals import Principal
from chronik.protocol.errors import KafkaError
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType

SECONDS: Final = 2.0
GROUPS_SHOWN_MAX: Final = 10
GROUPS_LOOKED_AT_MAX: Final = 200
"""Maximum number of groups whose lag is read."""
LAG_SECONDS: Final = 10.0
"""Interval at which the groups' lag is read: it is the most expensive part."""
EVENTS_AHEAD_MAX: Final = 4
"""Maximum number of events queued for a client. A slow client misses events."""


async def stream(context: AsyncCall, params: NoQuestion) -> HttpResponse:
    """Stream the state of the cluster."""
    tickers: dict[tuple[Principal, str], Ticker] = context.application.kept.setdefault("tickers", {})
    if context.side.services.authorizer is not None:
        right = Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        if context.side.services.authorizer.allows(context.principal, context.host, *right):
            context.right = right  # When it is revoked, the stream ends; the client reconnects and sees less.
    key = context.principal, context.host
    ticker = tickers.get(key)
    if ticker is None:
        ticker = tickers[key] = Ticker(context.application, context)
    return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, events=_subscribe_events(tickers, key, ticker))


async def _subscribe_events(
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
    """Produces the overview events for all streams of one principal. Other principals may see other data."""

    def __init__(self, application: RestApplication, context: Call) -> None:
        self._application = application
        self._context = context
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None
        self._last = b""
        self._previous: tuple[float, Vitals] | None = None
        self._lag: list[GroupLag] = []
        self._lag_at = float("-inf")
        self._acl_changes = 0
        self._is_outdated = asyncio.Event()

    def join(self, queue: asyncio.Queue[bytes]) -> None:
        """Add a stream's queue, and start to produce events for the first one."""
        self._listeners.add(queue)
        if self._last:
            queue.put_nowait(self._last)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            self._application.identity.when_acls_change.add(self._on_acls_changed)

    def _on_acls_changed(self) -> None:
        """Discard the events produced so far: the principal may no longer be authorized to see them."""
        self._acl_changes += 1
        self._last, self._lag, self._lag_at = b"", [], float("-inf")
        for queue in self._listeners:
            while not queue.empty():
                queue.get_nowait()
        self._is_outdated.set()

    def leave(self, queue: asyncio.Queue[bytes]) -> bool:
        """Remove a stream's queue and return whether none is left."""
        self._listeners.discard(queue)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None
            self._application.identity.when_acls_change.discard(self._on_acls_changed)
        return not self._listeners

    async def _run(self) -> None:
        while True:
            started, acl_changes = time.monotonic(), self._acl_changes
            self._is_outdated.clear()
            event = await self._produce_event()
            if acl_changes != self._acl_changes:
                continue
            self._last = event
            for queue in self._listeners:
                if not queue.full():
                    queue.put_nowait(event)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_outdated.wait(), max(0.0, SECONDS - (time.monotonic() - started)))

    async def _produce_event(self) -> bytes:
        vitals = self._application.side.source.vitals()
        try:
            overview = await self._application.in_thread(self._build_overview, self._context, vitals)
        except (ChronikError, Refusal) as error:
            return encoded_event(Event("error", Error(str(error))))
        return encoded_event(Event("overview", overview))

    def _build_overview(self, context: Call, vitals: Vitals) -> Overview:
        overview = Overview(
            context.side.services.clock.now_ms(), None, None, None, self._group_lags(context), None, None, None
        )
        if not context.may_describe_cluster():
            return overview
        view = cluster_view(context)
        overview.cluster = LiveCluster(**{name: getattr(view, name) for name in LiveCluster.__struct_fields__})
        overview.connections = vitals.connections
        overview.memory_bytes = vitals.memory_bytes
        self._add_rates(overview, vitals)
        return overview

    def _add_rates(self, overview: Overview, vitals: Vitals) -> None:
        """Add the rates since the previous event. The first event has none."""
        now = time.monotonic()
        previous, self._previous = self._previous, (now, vitals)
        if previous is None or now <= previous[0]:
            return
        seconds, old = now - previous[0], previous[1]

        def rate(new: int, earlier: int) -> float:
            return round(max(0, new - earlier) / seconds, 1)

        overview.rates = Rates(
            rate(vitals.requests, old.requests),
            rate(vitals.errors, old.errors),
            rate(vitals.in_bytes, old.in_bytes),
            rate(vitals.out_bytes, old.out_bytes),
            None,
        )
        overview.cpu = round((vitals.cpu_seconds - old.cpu_seconds) / seconds, 3)
        overview.latency_ms = Latency(
            _to_milliseconds(vitals.produce_since(old)), _to_milliseconds(vitals.fetch_since(old))
        )

    def _group_lags(self, context: Call) -> list[GroupLag]:
        now = time.monotonic()
        if now - self._lag_at >= LAG_SECONDS:
            acl_changes = self._acl_changes
            try:
                self._lag = _largest_lags(context)
                if acl_changes == self._acl_changes:
                    self._lag_at = time.monotonic()
            except (KafkaError, ClientError):
                pass  # Keep the previous lag until it can be read again.
        return self._lag


def _largest_lags(context: Call) -> list[GroupLag]:
    offsets = {}
    for name in sorted(listed(context))[:GROUPS_LOOKED_AT_MAX]:
        committed = unless_refused(lambda name=name: committed_offsets(context.cluster, name))  # type: ignore[misc]
        if committed:
            offsets[name] = committed
    ends = ends_of(context, {each for group_offsets in offsets.values() for each in group_offsets})
    lags = [GroupLag(name, lag_of(committed, ends)) for name, committed in offsets.items()]
    return sorted(lags, key=lambda each: (-(each.lag or 0), each.group))[:GROUPS_SHOWN_MAX]


def _to_milliseconds(latency: Seconds) -> Percentiles:
    return Percentiles(*(None if each is None else round(1000 * each, 3) for each in latency))
