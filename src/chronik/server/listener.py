"""The Kafka ports: accepts connections, keeps the limits they share, and stops without cutting off an answer."""

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
SWEEPS_PER_TIMEOUT = 10

STOP_LINGER_SECONDS = 0.5
"""Time for clients to read their last answers after the node has stopped to wait for more."""

ACCEPTED_PER_ITERATION = 16
"""Connections that a port accepts in one turn of the loop. libuv takes one for each server, so that who comes behind a
hundred others would wait for a hundred turns: each port has as many servers on its one socket. A connection that comes
alone wakes all of them, which costs some 20 µs."""


class Securing(Protocol):
    """What listeners with TLS have beside the others; see `server/securing`, which a node without them never loads."""

    @property
    def handshake_count(self) -> int: ...

    def on_accept(
        self, name: str, listener: Listener, connection: Callable[[], Connection]
    ) -> Callable[[], asyncio.BaseProtocol] | None:
        """Returns what is made for a client that came through the listener of that name; None if it has no TLS."""

    def jobs(self) -> Sequence[Callable[[], Awaitable[None]]]: ...

    def stop(self) -> None: ...


class Listener:
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
        """`addresses` are those of the listeners by their names. `connections_max` is called for each connection, if
        the limit may change. Clients of the listeners in `gated` must say who they are: `dispatch` asks them.
        `securing` is there if any of them has TLS."""
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
        """By the names of listeners."""
        self._stopping = False
        self._budget: FrameBudget[Connection] = FrameBudget(self.limits.frames_bytes, self.limits.frame_bytes)
        self._sweep: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event
        self._shared_scratch: memoryview | None = None

    async def bind(self) -> dict[str, Address]:
        """Takes the ports, and returns their addresses (a port of 0 becomes a real one). Raises OSError; call `stop`
        then too."""
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
                await self._accept_more(connection, shared)
        return bound

    async def _accept_more(self, connection: Callable[[], asyncio.BaseProtocol], shared: int) -> None:
        if sys.platform == "win32":  # a proactor has its own way
            return
        for _ in range(ACCEPTED_PER_ITERATION - 1):
            same = socket.socket(fileno=os.dup(shared))
            server = await self.loop.create_server(connection, sock=same, backlog=BACKLOG, start_serving=False)
            self._servers.append(server)

    async def serve(self) -> None:
        """Begins to accept connections."""
        for server in self._servers:
            await server.start_serving()
        self._schedule_sweep()

    def jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Returns what has to run as long as it serves."""
        return self._securing.jobs() if self._securing is not None else ()

    async def stop(self, seconds: float | None = None) -> None:
        """Accept no new connection or request, and finish answers under way within `seconds` (`stop_seconds` if None).
        Clients that do not read their answers by then, or within STOP_LINGER_SECONDS, are disconnected."""
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
                await asyncio.sleep(0)  # the scheduler has it in its queue
            elif pending := [future for connection in self._connections for future in connection.unanswered()]:
                done = asyncio.FIRST_COMPLETED
                await asyncio.wait(pending, timeout=deadline - self.loop.time(), return_when=done)
            else:
                break
        for connection in list(self._connections):
            connection.close("the node stops")
        linger = min(self.limits.linger_seconds, max(deadline - self.loop.time(), STOP_LINGER_SECONDS))
        if not await self._have_closed(linger):
            for connection in list(self._connections):
                connection.close_unread("the node stops")
            if not await self._have_closed(STOP_LINGER_SECONDS):
                logger.warning("listener stopped: connections=%d did not close", len(self._connections))
        self._servers.clear()

    async def _have_closed(self, seconds: float) -> bool:
        """Wait up to `seconds` until all connections are closed, and return whether they are."""
        if self._connections:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), seconds)
            except TimeoutError:
                return False
        return True

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def bytes_reserved(self) -> int:
        """The memory reserved for large requests."""
        return self._budget.total

    def _on_accept(self, name: str) -> Callable[[], asyncio.BaseProtocol]:
        connection = partial(self._new_connection, name)
        secured = self._securing.on_accept(name, self, connection) if self._securing is not None else None
        return secured or connection

    def _new_connection(self, name: str) -> Connection:
        self._accepted += 1
        return Connection(self, name, self._accepted)

    # What connections ask for

    def scratch(self) -> memoryview:
        """Returns the buffer for reads. A proactor (Windows) reads ahead, so there each connection has its own."""
        if sys.platform == "win32":
            return memoryview(bytearray(SCRATCH_BYTES))
        if self._shared_scratch is None:
            self._shared_scratch = memoryview(bytearray(SCRATCH_BYTES))
        return self._shared_scratch

    def has_place(self) -> bool:
        """Whether one more may come, beside those that are here and those that are shaking hands."""
        shaking_hands = self._securing.handshake_count if self._securing is not None else 0
        return not self._stopping and len(self._connections) + shaking_hands < self._connections_max()

    def take_place(self, host: str) -> Place | str:
        """Counts one that was accepted, until its place is given back. Returns why not if it may not come."""
        self.scheduler.accepted()
        if not self.has_place():
            return f"{len(self._connections)} connections are open"
        now = self.loop.time()
        refusal, wait_seconds = self._by_address.come(host, now) if self._by_address is not None else Verdict()
        return refusal or Place(host, now + wait_seconds)

    def give_back(self, place: Place) -> None:
        if self._by_address is not None:
            self._by_address.left(place.host)

    def admit(self, connection: Connection) -> bool:
        """One with TLS has its place already, and still there may be none by now."""
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
        before = self._budget.reserved_by(connection)
        if not count and not before:
            return True
        has_room = self._budget.want(connection, count)
        if has_room and count < before:
            self._grant()
        elif not has_room:
            self._hurry_sweep()
        return has_room

    def _grant(self) -> None:
        for connection in self._budget.granted():
            connection.granted()

    # Idle and stuck connections

    def _schedule_sweep(self) -> None:
        limits_seconds = [
            self.limits.idle_seconds,
            self.limits.frame_receive_seconds,
            self.limits.response_stuck_seconds,
        ]
        if self._budget.is_waited_for:
            limits_seconds.append(self.limits.frame_rate_seconds)
        self._sweep = self.loop.call_later(min(limits_seconds) / SWEEPS_PER_TIMEOUT, self._sweep_connections)

    def _hurry_sweep(self) -> None:
        """Brings the next sweep forward: somebody has begun to wait for memory."""
        if self._sweep is not None and self._sweep.when() - self.loop.time() > self.limits.frame_rate_seconds:
            self._sweep.cancel()
            self._schedule_sweep()

    def _sweep_connections(self) -> None:
        now = self.loop.time()
        is_full = self.outbox.unsent_bytes > self.limits.responses_bytes
        for connection in list(self._connections):
            connection.look_whether_it_reads(now)
            fault = self._fault(connection, now)
            if fault is not None:
                connection.close(fault)
            elif is_full and connection.unread_seconds(now) > self.limits.response_stuck_seconds:
                connection.close_unread("its responses are not read, and there is no memory for more")
        self._schedule_sweep()

    def _fault(self, connection: Connection, now: float) -> str | None:
        began = connection.frame_began
        if began is not None and now - began > self.limits.frame_receive_seconds:
            return f"a request did not arrive whole within {self.limits.frame_receive_seconds:g} s"
        if self._budget.is_waited_for and connection.is_too_slow(now):
            return "a large request comes slowly, and others wait for the memory that it takes"
        if connection.is_throttled:
            if connection.has_lost_client:
                return "its client left while it waited for its quota"
            if self._budget.is_waited_for and self._budget.reserved_by(connection):
                return "its large requests wait for its quota, and others for the memory that they take"
        silent_seconds = now - connection.last_active
        if connection.waits_for_client and silent_seconds > self.limits.idle_seconds:
            return f"idle for {self.limits.idle_seconds:g} s"
        return None


def _as_bytes(host: str) -> Sequence[Any] | str:
    """Of text Python would load its tables of all the world's letters, a quarter of a megabyte, to look through."""
    return [host.encode()] if host and host.isascii() else host
