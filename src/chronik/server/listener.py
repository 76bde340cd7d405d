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
from chronik.listeners import explain_bind_error
from chronik.request_reply import Dispatch, UnsentByteCounter
from chronik.scheduler import Scheduler
from chronik.security.quotas.connection_limits import ConnectionDecision, ConnectionLimits
from chronik.server.connection import ClientConnection, ConnectionSlot, ConnectionStats, ListenerLimits
from chronik.server.frames import READ_BUFFER_BYTES, FrameBudget

logger = logging.getLogger("chronik.server")

BACKLOG = 1024
"""Maximum number of pending connections in a port's accept queue."""
SWEEPS_PER_TIMEOUT = 10
"""Number of checks for idle and stalled connections per timeout interval."""

STOP_LINGER_SECONDS = 0.5
"""Time in seconds for which clients may read their last responses after the shutdown timeout has expired."""

ACCEPTS_PER_ITERATION = 16
"""Maximum number of connections that a port accepts per event-loop iteration. libuv accepts one per server object, so
each port has this many server objects on the same socket; otherwise the hundredth pending client would wait for a
hundred iterations. A single connection wakes all of them, which costs about 20 µs."""


class TlsListenerInterface(Protocol):
    """The interface of TLS listeners. The module `server/tls_listener` is imported only if TLS is configured."""

    @property
    def handshake_count(self) -> int:
        """Return the number of TLS handshakes in progress."""

    def protocol_factory(
        self, name: str, listener: ClientListeners, connection: Callable[[], ClientConnection]
    ) -> Callable[[], asyncio.BaseProtocol] | None:
        """Return the protocol factory of the named listener, or None if it does not use TLS."""

    def background_jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the background jobs that must run while the listener serves."""

    def stop(self) -> None:
        """Abort the handshakes in progress."""


class ClientListeners:
    """The client listeners of a node."""

    def __init__(
        self,
        addresses: Mapping[str, Address],
        dispatch: Dispatch,
        listener_limits: ListenerLimits | None = None,
        unsent_bytes: UnsentByteCounter | None = None,
        connections_max: Callable[[], int] | None = None,
        sasl_listeners: Collection[str] = (),
        address_limits: ConnectionLimits | None = None,
        tls_listeners: TlsListenerInterface | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Create the listeners without binding their ports.

        Args:
            addresses: The bind addresses by listener name.
            dispatch: Handles a request; it authenticates the clients of listeners in `sasl_listeners`.
            listener_limits: The limits on clients.
            unsent_bytes: Counts unsent response bytes.
            connections_max: Returns the current connection limit; default: the limit in `build_listener_limits`.
            sasl_listeners: The names of listeners that require SASL authentication.
            address_limits: The limits per client address.
            tls_listeners: The TLS listeners, if any.
            scheduler: Schedules the clients' work.
        """
        self.sasl_listeners = sasl_listeners
        self._addresses = addresses
        self.dispatch = dispatch
        self.limits = listener_limits or ListenerLimits()
        self.unsent_bytes = unsent_bytes or UnsentByteCounter()
        self._connections_max = connections_max or (lambda: self.limits.connections)
        self._by_address = address_limits
        self.loop: asyncio.AbstractEventLoop
        self.scheduler = scheduler or Scheduler(accepted_max=ACCEPTS_PER_ITERATION)
        self._servers: list[asyncio.Server] = []
        self._connections: set[ClientConnection] = set()
        self._securing = tls_listeners
        self._accepted = 0
        self.connection_stats: Final = {name: ConnectionStats() for name in addresses}
        """Connection statistics by listener name."""
        self._stopping = False
        self._budget: FrameBudget[ClientConnection] = FrameBudget(self.limits.frames_bytes, self.limits.frame_bytes)
        self._sweep: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event
        self._shared_scratch: memoryview | None = None

    async def bind(self) -> dict[str, Address]:
        """Bind the ports and return their addresses, with the assigned port numbers in place of 0.

        Raises:
            OSError: A port cannot be bound. The caller must call `stop` in this case as well.
        """
        self.loop = asyncio.get_running_loop()
        self._all_closed = asyncio.Event()
        bound = {}
        for name, address in self._addresses.items():
            connection = self._create_protocol_factory(name)
            with explain_bind_error(f"{name}://{address}"):
                server = await self.loop.create_server(
                    connection, _encode_host(address.host), address.port, backlog=BACKLOG, start_serving=False
                )
            self._servers.append(server)
            bound[name] = Address(address.host, server.sockets[0].getsockname()[1])
            for shared in [each.fileno() for each in server.sockets]:
                await self._add_accepting_servers(connection, shared)
        return bound

    async def _add_accepting_servers(self, connection: Callable[[], asyncio.BaseProtocol], shared: int) -> None:
        if sys.platform == "win32":  # the proactor event loop accepts differently
            return
        for _ in range(ACCEPTS_PER_ITERATION - 1):
            same = socket.socket(fileno=os.dup(shared))
            server = await self.loop.create_server(connection, sock=same, backlog=BACKLOG, start_serving=False)
            self._servers.append(server)

    async def serve(self) -> None:
        """Start accepting connections."""
        for server in self._servers:
            await server.start_serving()
        self._schedule_sweep()

    def background_jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the background jobs that must run while the listeners serve."""
        return self._securing.background_jobs() if self._securing is not None else ()

    async def stop(self, seconds: float | None = None) -> None:
        """Stop accepting connections and requests; complete pending responses within `seconds` (or `stop_seconds`).

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
            elif pending := [future for connection in self._connections for future in connection.pending_replies()]:
                done = asyncio.FIRST_COMPLETED
                await asyncio.wait(pending, timeout=deadline - self.loop.time(), return_when=done)
            else:
                break
        for connection in list(self._connections):
            connection.close("the node is stopping")
        linger = min(self.limits.linger_seconds, max(deadline - self.loop.time(), STOP_LINGER_SECONDS))
        if not await self._wait_until_closed(linger):
            for connection in list(self._connections):
                connection.close_and_discard("the node is stopping")
            if not await self._wait_until_closed(STOP_LINGER_SECONDS):
                logger.warning("listener stopped: %d connections did not close in time", len(self._connections))
        self._servers.clear()

    async def _wait_until_closed(self, seconds: float) -> bool:
        """Wait up to `seconds` for all connections to close; return whether they did."""
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
    def reserved_bytes(self) -> int:
        """Return the memory reserved for large requests."""
        return self._budget.total_bytes

    def _create_protocol_factory(self, name: str) -> Callable[[], asyncio.BaseProtocol]:
        connection = partial(self._create_connection, name)
        secured = self._securing.protocol_factory(name, self, connection) if self._securing is not None else None
        return secured or connection

    def _create_connection(self, name: str) -> ClientConnection:
        self._accepted += 1
        return ClientConnection(self, name, self._accepted)

    # Methods for connections

    def read_buffer(self) -> memoryview:
        """Return the shared read buffer. On Windows each connection has its own, because a proactor reads ahead."""
        if sys.platform == "win32":
            return memoryview(bytearray(READ_BUFFER_BYTES))
        if self._shared_scratch is None:
            self._shared_scratch = memoryview(bytearray(READ_BUFFER_BYTES))
        return self._shared_scratch

    def has_free_slot(self) -> bool:
        """Return whether the limit allows another connection, counting open connections and TLS handshakes."""
        handshakes = self._securing.handshake_count if self._securing is not None else 0
        return not self._stopping and len(self._connections) + handshakes < self._connections_max()

    def acquire_slot(self, host: str) -> ConnectionSlot | str:
        """Return a connection slot for a new client, or the reason to reject the client."""
        self.scheduler.count_accepted_connection()
        if not self.has_free_slot():
            return f"{len(self._connections)} connections are open"
        now = self.loop.time()
        refusal, wait_seconds = (
            self._by_address.accept(host, now) if self._by_address is not None else ConnectionDecision()
        )
        return refusal or ConnectionSlot(host, now + wait_seconds)

    def release_slot(self, place: ConnectionSlot) -> None:
        """Return a client's slot to the connection limit."""
        if self._by_address is not None:
            self._by_address.release(place.host)

    def admit(self, connection: ClientConnection) -> bool:
        """Admit a connection and count it. If a limit is reached, set its `rejection_reason` and return False.

        A TLS connection has acquired its slot before the handshake, but the limit may have been reached since.
        """
        if connection.slot is None:
            place = self.acquire_slot(connection.client.host)
            if isinstance(place, str):
                connection.rejection_reason = place
            else:
                connection.slot = place
        elif not self.has_free_slot():
            connection.rejection_reason = f"{len(self._connections)} connections are open"
        comings = self.connection_stats[connection.client.listener]
        if connection.rejection_reason or connection.slot is None:
            comings.rejected += 1
            return False
        comings.accepted += 1
        comings.open += 1
        wait_seconds = max(0.0, connection.slot.throttled_until - self.loop.time())
        if wait_seconds:
            comings.throttled += 1
            comings.throttled_seconds += wait_seconds
        connection.client.throttle_seconds = wait_seconds
        self._connections.add(connection)
        return True

    def release(self, connection: ClientConnection) -> None:
        """Release the slot and memory of a closed connection."""
        if connection in self._connections:
            self._connections.remove(connection)
            self.connection_stats[connection.client.listener].open -= 1
        if connection.slot is not None:
            self.release_slot(connection.slot)
            connection.slot = None
        self._budget.release(connection)
        self._grant_waiting_memory()
        if not self._connections:
            self._all_closed.set()

    def reserve_memory(self, connection: ClientConnection, count: int) -> bool:
        """Reserve memory for a connection's large requests; return False if the connection must wait for it."""
        before = self._budget.reserved_bytes(connection)
        if not count and not before:
            return True
        has_room = self._budget.reserve(connection, count)
        if has_room and count < before:
            self._grant_waiting_memory()
        elif not has_room:
            self._reschedule_sweep_earlier()
        return has_room

    def _grant_waiting_memory(self) -> None:
        for connection in self._budget.grant_waiting():
            connection.on_memory_granted()

    # Idle and stalled connections

    def _schedule_sweep(self) -> None:
        limits_seconds = [
            self.limits.idle_seconds,
            self.limits.frame_receive_seconds,
            self.limits.response_stalled_seconds,
        ]
        if self._budget.has_waiters:
            limits_seconds.append(self.limits.frame_rate_seconds)
        self._sweep = self.loop.call_later(min(limits_seconds) / SWEEPS_PER_TIMEOUT, self._sweep_connections)

    def _reschedule_sweep_earlier(self) -> None:
        """Schedule the next sweep earlier, to detect connections that hold needed memory and receive too slowly."""
        if self._sweep is not None and self._sweep.when() - self.loop.time() > self.limits.frame_rate_seconds:
            self._sweep.cancel()
            self._schedule_sweep()

    def _sweep_connections(self) -> None:
        now = self.loop.time()
        is_full = self.unsent_bytes.unsent_bytes > self.limits.responses_bytes
        for connection in list(self._connections):
            connection.update_last_activity(now)
            reason = self._find_close_reason(connection, now)
            if reason is not None:
                connection.close(reason)
            elif is_full and connection.stalled_seconds(now) > self.limits.response_stalled_seconds:
                connection.close_and_discard("responses not read; the memory is needed for other clients")
        self._schedule_sweep()

    def _find_close_reason(self, connection: ClientConnection, now: float) -> str | None:
        began = connection.frame_started_at
        if began is not None and now - began > self.limits.frame_receive_seconds:
            return f"request not received completely within {self.limits.frame_receive_seconds:g} s"
        if self._budget.has_waiters and connection.is_receiving_too_slowly(now):
            return "large request received too slowly while other clients wait for memory"
        if connection.is_throttled:
            if connection.has_client_disconnected:
                return "client disconnected while throttled"
            if self._budget.has_waiters and self._budget.reserved_bytes(connection):
                return "large requests throttled by a quota while other clients wait for memory"
        silent_seconds = now - connection.last_active
        if connection.is_waiting_for_client and silent_seconds > self.limits.idle_seconds:
            return f"idle for {self.limits.idle_seconds:g} s"
        return None


def _encode_host(host: str) -> Sequence[Any] | str:
    """Return the host as bytes. For a string, Python would load its IDNA tables, which take 250 kB of memory."""
    return [host.encode()] if host and host.isascii() else host
