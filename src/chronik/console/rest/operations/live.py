"""The live overview: an event every two seconds with the state of the cluster, shared by all tabs of a principal and
produced only while a client is connected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from chronik.client.errors import ClientError
from chronik.client.groups import list_committed_offsets
from chronik.console.http import HttpResponse
from chronik.console.rest.application import AsyncOperationContext, RestApplication
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import RestError
from chronik.console.rest.models.cluster import GroupLag, Latency, LiveCluster, Overview, Percentiles, Rates
from chronik.console.rest.models.common import Error, NoQuestion
from chronik.console.rest.operations.cluster import build_cluster_view
from chronik.console.rest.operations.groups import compute_total_lag, fetch_end_offsets, list_groups
from chronik.console.rest.operations.shared import call_or_none_if_unauthorized
from chronik.console.rest.streams import CONTENT_TYPE, ServerSentEvent, encode_event
from chronik.console.status_source import LatencyQuantiles as Seconds
from chronik.console.status_source import NodeStats
from chronik.errors import ChronikError
from chronik.principals import Principal
from chronik.protocol.errors import KafkaError
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType

INTERVAL_SECONDS: Final = 2.0
GROUPS_SHOWN_MAX: Final = 10
GROUPS_READ_MAX: Final = 200
"""Maximum number of consumer groups whose lag is computed for an overview event."""
LAG_INTERVAL_SECONDS: Final = 10.0
"""Interval in seconds at which the consumer group lag on the overview page is recomputed."""
QUEUED_EVENTS_MAX: Final = 4
"""Maximum number of events queued for a client. Further events for a slow client are dropped."""


async def stream(context: AsyncOperationContext, params: NoQuestion) -> HttpResponse:
    """Stream overview events with the state of the cluster, the node's rates and the lag of groups."""
    tickers: dict[tuple[Principal, str], OverviewEventProducer] = context.application.shared_state.setdefault(
        "tickers", {}
    )
    if context.node.services.authorizer is not None:
        right = AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME
        if context.node.services.authorizer.is_authorized(context.principal, context.host, *right):
            context.permission = right  # When it is revoked, the stream ends; the client reconnects and sees less.
    key = context.principal, context.host
    ticker = tickers.get(key)
    if ticker is None:
        ticker = tickers[key] = OverviewEventProducer(context.application, context)
    return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, events=_subscribe_events(tickers, key, ticker))


async def _subscribe_events(
    tickers: dict[tuple[Principal, str], OverviewEventProducer],
    key: tuple[Principal, str],
    ticker: OverviewEventProducer,
) -> AsyncGenerator[bytes, None]:
    queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUED_EVENTS_MAX)
    ticker.subscribe(queue)
    try:
        while True:
            yield await queue.get()
    finally:
        if ticker.unsubscribe(queue):
            tickers.pop(key, None)


class OverviewEventProducer:
    """A producer of overview events, shared by all streams of one principal from one host."""

    def __init__(self, application: RestApplication, context: OperationContext) -> None:
        self._application = application
        self._context = context
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None
        self._last = b""
        self._previous: tuple[float, NodeStats] | None = None
        self._lag: list[GroupLag] = []
        self._lag_at = float("-inf")
        self._acl_changes = 0
        self._is_outdated = asyncio.Event()

    def subscribe(self, queue: asyncio.Queue[bytes]) -> None:
        """Add the event queue of a stream. If it is the first queue, start to produce events."""
        self._listeners.add(queue)
        if self._last:
            queue.put_nowait(self._last)
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            self._application.authenticator.acl_listeners.add(self._on_acls_changed)

    def _on_acls_changed(self) -> None:
        """Discard all queued events when ACLs change, because the principal may no longer be authorized to receive
        them.
        """
        self._acl_changes += 1
        self._last, self._lag, self._lag_at = b"", [], float("-inf")
        for queue in self._listeners:
            while not queue.empty():
                queue.get_nowait()
        self._is_outdated.set()

    def unsubscribe(self, queue: asyncio.Queue[bytes]) -> bool:
        """Remove the event queue of a stream, and return whether no queue is left."""
        self._listeners.discard(queue)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None
            self._application.authenticator.acl_listeners.discard(self._on_acls_changed)
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
                await asyncio.wait_for(
                    self._is_outdated.wait(), max(0.0, INTERVAL_SECONDS - (time.monotonic() - started))
                )

    async def _produce_event(self) -> bytes:
        vitals = self._application.node.status_source.node_stats()
        try:
            overview = await self._application.run_in_thread(self._build_overview, self._context, vitals)
        except (ChronikError, RestError) as error:
            return encode_event(ServerSentEvent("error", Error(str(error))))
        return encode_event(ServerSentEvent("overview", overview))

    def _build_overview(self, context: OperationContext, vitals: NodeStats) -> Overview:
        overview = Overview(
            context.node.services.clock.now_ms(), None, None, None, self._fetch_group_lags(context), None, None, None
        )
        if not context.can_describe_cluster():
            return overview
        view = build_cluster_view(context)
        overview.cluster = LiveCluster(**{name: getattr(view, name) for name in LiveCluster.__struct_fields__})
        overview.connections = vitals.connections
        overview.memory_bytes = vitals.memory_bytes
        self._add_rates(overview, vitals)
        return overview

    def _add_rates(self, overview: Overview, vitals: NodeStats) -> None:
        """Add the node's request and byte rates since the previous overview event."""
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
            _to_milliseconds(vitals.produce_latency_since(old)), _to_milliseconds(vitals.fetch_latency_since(old))
        )

    def _fetch_group_lags(self, context: OperationContext) -> list[GroupLag]:
        now = time.monotonic()
        if now - self._lag_at >= LAG_INTERVAL_SECONDS:
            acl_changes = self._acl_changes
            try:
                self._lag = _find_largest_lags(context)
                if acl_changes == self._acl_changes:
                    self._lag_at = time.monotonic()
            except (KafkaError, ClientError):
                pass  # Keep the previous lag until it can be read again.
        return self._lag


def _find_largest_lags(context: OperationContext) -> list[GroupLag]:
    offsets = {}
    for name in sorted(list_groups(context))[:GROUPS_READ_MAX]:
        committed = call_or_none_if_unauthorized(lambda name=name: list_committed_offsets(context.cluster, name))  # type: ignore[misc]
        if committed:
            offsets[name] = committed
    ends = fetch_end_offsets(context, {each for group_offsets in offsets.values() for each in group_offsets})
    lags = [GroupLag(name, compute_total_lag(committed, ends)) for name, committed in offsets.items()]
    return sorted(lags, key=lambda each: (-(each.lag or 0), each.group))[:GROUPS_SHOWN_MAX]


def _to_milliseconds(latency: Seconds) -> Percentiles:
    return Percentiles(*(None if each is None else round(1000 * each, 3) for each in latency))
