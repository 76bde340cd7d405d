"""The Kafka listeners: accept connections, enforce their shared limits, and stop gracefully."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from chronik.config import Address
from chronik.exchange import Dispatch, Outbox
from chronik.listeners import naming
from chronik.scheduler import Scheduler
from chronik.security.quotas.connections import ConnectionLimits, Verdict
from chronik.server.connection import Connection
from chronik.server.frame_budget import FrameBudget
from chronik.server.frames import SCRATCH_BYTES
from chronik.server.listener_limits import ListenerLimits
from chronik.server.places import Comings, Place

logger = logging.getLogger("chronik.server")

BACKLOG = 1024
"""Length of the accept queue of a port."""
SWEEPS_PER_TIMEOUT = 10
"""Sweeps for idle and stalled connections per timeout."""

STOP_LINGER_SECONDS = 0.5
"""Seconds for clients to read their last responses after the shutdown timeout has expired."""

ACCEPTED_PER_ITERATION = 16
"""Connections that a port accepts per event-loop iteration. libuv accepts one per server object, so each port has this
many server objects on the same socket; otherwise the hundredth waiting client would wait for a hundred iterations. A
single connection wakes all of them, which costs about 20 µs."""


class Securing(Protocol):
    """The interface for TLS listeners: see `server/tls_listener`, which a node without TLS does not import."""

    @property
    def handshake_count(self) -> int:
        """Return the number of TLS handshakes in progress."""

    def on_accept(
        self, name: str, listener: Listener, connection: Callable[[], Connection]
    ) -> Callable[[], asyncio.BaseProtocol] | None:
        """Return the protocol factory of the listener with that name; None if it does not use TLS."""

    def jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the background jobs that must run while the listener serves."""

    def stop(self) -> None:
        """Abort the handshakes in progress."""


class Listener:
    """The client listeners of a node."""

    def __init__(
        self,
        addresses: Mapping[str, Address],
        dispatch: Dispatch,
        listener_limits: ListenerLimits | None = None,
        outbox: Outbox | None = None,
        connections_max: Callable[[], int] | None = None,
        gated: Collection[str] = (),
        by_address: ConnectionLimits | None = None,
        securing: Securing | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Create the listeners without binding their ports.

        Args:
            addresses: The bind addresses by listener name.
            dispatch: Handles a request; it authenticates the clients of listeners in `gated`.
            listener_limits: The limits on clients.
            outbox: Counts unsent response bytes.
            connections_max: Returns the current limit on connections, if it can change.
            gated: The names of listeners that require SASL authentication.
            by_address: The limits per client address.
            securing: The TLS listeners, if there are any.
            scheduler: Schedules the clients' work.
        """
        self.gated = gated
        self._addresses = addresses
        self.dispatch = dispatch
        self.limits = listener_limits or ListenerLimits()
        self.outbox = outbox or Outbox()
        self._connections_max = connections_max or (lambda: self.limits.connections)
        self._by_address = by_address
        self.loop: asyncio.AbstractEventLoop
        self.scheduler = scheduler or Scheduler(accepted_max=ACCEPTED_PER_ITERATION)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._securing = securing
        self._accepted = 0
        self.comings: Final = {name: Comings() for name in addresses}
        """Connection statistics by listener name."""
        self._stopping = False
        self._budget: FrameBudget[Connection] = FrameBudget(self.limits.frames_bytes, self.limits.frame_bytes)
        self._sweep: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event
        self._shared_scratch: memoryview | None = None

    async def bind(self) -> dict[str, Address]:
        """Bind the ports and return their addresses, with real port numbers instead of 0.

        Raises:
            OSError: A port cannot be bound; call `stop` in this case, too.
        """
        self.loop = asyncio.get_running_loop()
        self._all_closed = asyncio.Event()
        bound = {}
        for name, address in self._addresses.items():
            connection = self._on_accept(name)
            with naming(f"{name}://{address}"):
                server = await self.loop.create_server(
                    connection, _as_bytes(address.host), address.port, backlog=BACKLOG, start_serving=False
                )
            self._servers.append(server)
            bound[name] = Address(address.host, server.sockets[0].getsockname()[1])
            for shared in [each.fileno() for each in server.sockets]:
                await self._add_accepting_servers(connection, shared)
        return bound

    async def _add_accepting_servers(self, connection: Callable[[], asyncio.BaseProtocol], shared: int) -> None:
        if sys.platform == "win32":  # the proactor event loop accepts differently
            return
        for _ in range(ACCEPTED_PER_ITERATION - 1):
            same = socket.socket(fileno=os.dup(shared))
            server = await self.loop.create_server(connection, sock=same, backlog=BACKLOG, start_serving=False)
            self._servers.append(server)

    async def serve(self) -> None:
        """Start accepting connections."""
        for server in self._servers:
            await server.start_serving()
        self._schedule_sweep()

    def jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the background jobs that must run while the listeners serve."""
        return self._securing.jobs() if self._securing is not None else ()

    async def stop(self, seconds: float | None = None) -> None:
        """Stop accepting connections and requests, and finish pending responses within `seconds` (or `stop_seconds`).

        Clients that do not read their responses by then, or within STOP_LINGER_SECONDS, are disconnected.
        """
        if not self._servers:
            return
        self._stopping = True
        for server in self._servers:
            server.close()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._securing is not None:
            self._securing.stop()
        for connection in list(self._connections):
            connection.stop_reading()
        deadline = self.loop.time() + (self.limits.stop_seconds if seconds is None else seconds)
        while self.loop.time() < deadline:
            if any(connection.has_work for connection in self._connections):
                await asyncio.sleep(0)  # the work is in the scheduler's queue
            elif pending := [future for connection in self._connections for future in connection.unanswered()]:
                done = asyncio.FIRST_COMPLETED
                await asyncio.wait(pending, timeout=deadline - self.loop.time(), return_when=done)
            else:
                break
        for connection in list(self._connections):
            connection.close("the node is stopping")
        linger = min(self.limits.linger_seconds, max(deadline - self.loop.time(), STOP_LINGER_SECONDS))
        if not await self._wait_closed(linger):
            for connection in list(self._connections):
                connection.close_unread("the node is stopping")
            if not await self._wait_closed(STOP_LINGER_SECONDS):
                logger.warning("listener stopped: %d connections did not close", len(self._connections))
        self._servers.clear()

    async def _wait_closed(self, seconds: float) -> bool:
        """Wait up to `seconds` for all connections to close, and return whether they have."""
        if self._connections:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), seconds)
            except TimeoutError:
                return False
        return True

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    @property
    def bytes_reserved(self) -> int:
        """Return the memory reserved for large requests."""
        return self._budget.total

    def _on_accept(self, name: str) -> Callable[[], asyncio.BaseProtocol]:
        connection = partial(self._new_connection, name)
        secured = self._securing.on_accept(name, self, connection) if self._securing is not None else None
        return secured or connection

    def _new_connection(self, name: str) -> Connection:
        self._accepted += 1
        return Connection(self, name, self._accepted)

    # Methods for connections

    def scratch(self) -> memoryview:
        """Return the read buffer. A proactor (Windows) reads ahead, so each connection has its own there."""
        if sys.platform == "win32":
            return memoryview(bytearray(SCRATCH_BYTES))
        if self._shared_scratch is None:
            self._shared_scratch = memoryview(bytearray(SCRATCH_BYTES))
        return self._shared_scratch

    def has_place(self) -> bool:
        """Return whether one more connection is allowed in addition to open connections and TLS handshakes."""
        handshakes = self._securing.handshake_count if self._securing is not None else 0
        return not self._stopping and len(self._connections) + handshakes < self._connections_max()

    def take_place(self, host: str) -> Place | str:
        """Return a connection slot for a client that was accepted, or the reason to reject it."""
        self.scheduler.accepted()
        if not self.has_place():
            return f"{len(self._connections)} connections are open"
        now = self.loop.time()
        refusal, wait_seconds = self._by_address.come(host, now) if self._by_address is not None else Verdict()
        return refusal or Place(host, now + wait_seconds)

    def give_back(self, place: Place) -> None:
        """Release a connection slot."""
        if self._by_address is not None:
            self._by_address.left(place.host)

    def admit(self, connection: Connection) -> bool:
        """Admit a connection to the listener and count it; set its `refusal` and return False if a limit is reached.

        A TLS connection has acquired its slot before the handshake, but the limit may have been reached since.
        """
        if connection.place is None:
            place = self.take_place(connection.peer.host)
            if isinstance(place, str):
                connection.refusal = place
            else:
                connection.place = place
        elif not self.has_place():
            connection.refusal = f"{len(self._connections)} connections are open"
        comings = self.comings[connection.peer.listener]
        if connection.refusal or connection.place is None:
            comings.refused += 1
            return False
        comings.accepted += 1
        comings.open += 1
        wait_seconds = max(0.0, connection.place.waits_until - self.loop.time())
        if wait_seconds:
            comings.throttled += 1
            comings.throttled_seconds += wait_seconds
        connection.peer.throttled_seconds = wait_seconds
        self._connections.add(connection)
        return True

    def release(self, connection: Connection) -> None:
        """Release what a closed connection holds."""
        if connection in self._connections:
            self._connections.remove(connection)
            self.comings[connection.peer.listener].open -= 1
        if connection.place is not None:
            self.give_back(connection.place)
            connection.place = None
        self._budget.leave(connection)
        self._grant()
        if not self._connections:
            self._all_closed.set()

    def has_room(self, connection: Connection, count: int) -> bool:
        """Reserve memory for the connection's large requests; return False if it must wait."""
        before = self._budget.reserved_by(connection)
        if not count and not before:
            return True
        has_room = self._budget.want(connection, count)
        if has_room and count < before:
            self._grant()
        elif not has_room:
            self._advance_sweep()
        return has_room

    def _grant(self) -> None:
        for connection in self._budget.granted():
            connection.granted()

    # Idle and stalled connections

    def _schedule_sweep(self) -> None:
        limits_seconds = [
            self.limits.idle_seconds,
            self.limits.frame_receive_seconds,
            self.limits.response_stuck_seconds,
        ]
        if self._budget.is_waited_for:
            limits_seconds.append(self.limits.frame_rate_seconds)
        self._sweep = self.loop.call_later(min(limits_seconds) / SWEEPS_PER_TIMEOUT, self._sweep_connections)

    def _advance_sweep(self) -> None:
        """Bring the next sweep forward because a connection has started to wait for memory."""
        if self._sweep is not None and self._sweep.when() - self.loop.time() > self.limits.frame_rate_seconds:
            self._sweep.cancel()
            self._schedule_sweep()

    def _sweep_connections(self) -> None:
        now = self.loop.time()
        is_full = self.outbox.unsent_bytes > self.limits.responses_bytes
        for connection in list(self._connections):
            connection.look_whether_it_reads(now)
            reason = self._close_reason(connection, now)
            if reason is not None:
                connection.close(reason)
            elif is_full and connection.unread_seconds(now) > self.limits.response_stuck_seconds:
                connection.close_unread("responses not read; the memory is needed for other clients")
        self._schedule_sweep()

    def _close_reason(self, connection: Connection, now: float) -> str | None:
        began = connection.frame_began
        if began is not None and now - began > self.limits.frame_receive_seconds:
            return f"request not received completely within {self.limits.frame_receive_seconds:g} s"
        if self._budget.is_waited_for and connection.is_too_slow(now):
            return "large request received too slowly while other clients wait for memory"
        if connection.is_throttled:
            if connection.has_lost_client:
                return "client disconnected while throttled"
            if self._budget.is_waited_for and self._budget.reserved_by(connection):
                return "large requests throttled by a quota while other clients wait for memory"
        silent_seconds = now - connection.last_active
        if connection.waits_for_client and silent_seconds > self.limits.idle_seconds:
            return f"idle for {self.limits.idle_seconds:g} s"
        return None


def _as_bytes(host: str) -> Sequence[Any] | str:
    """Return the host as bytes: for text, Python would load its IDNA tables, which take 250 kB."""
    return [host.encode()] if host and host.isascii() else host
