"""Network between the nodes of a test cluster: TCP proxies whose directions can be interrupted.

Bytes from one node to another pass a gate of that direction, whichever node opened the connection. An interrupted link
behaves like a lost network, not like a closed port: connections are not refused, nothing arrives, and bytes in flight
are delivered when the link is restored.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from itertools import permutations
from typing import Any, TypeVar

from chronik.config import Address
from chronik.testing.ports import HOST

T = TypeVar("T")

READ_BYTES = 64 * 1024
CALL_SECONDS_MAX = 30.0
ITERATIONS_TO_CLOSE = 3
"""Number of event-loop iterations that pass until all connections of stopped proxies are closed.

The callbacks of a finished task run in the next iteration, and an aborted transport closes in the one after it.
"""


class NetworkLinks:
    """TCP proxies between all pairs of nodes, whose connections can be interrupted. Not thread-safe."""

    def __init__(self, targets: Mapping[int, Address]) -> None:
        """Start the proxies; `targets` are the addresses on which the nodes accept peers."""
        self._targets: dict[int, Address] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chronik-links", daemon=True)
        self._thread.start()
        self._gates: dict[tuple[int, int], asyncio.Event] = {}
        self._servers: dict[tuple[int, int], asyncio.Server] = {}
        self._forwarding_tasks: set[asyncio.Task[None]] = set()
        self._call(self._open, dict(targets))

    def add(self, node_id: int, target: Address) -> None:
        """Add uninterrupted links between a new node and all others."""
        self._call(self._open, {node_id: target})

    def get_proxy_address(self, dialer: int, acceptor: int) -> Address:
        """Return the address of the proxy through which `dialer` connects to `acceptor`."""
        return Address(HOST, self._servers[dialer, acceptor].sockets[0].getsockname()[1])

    def interrupt(self, directions: Iterable[tuple[int, int]]) -> None:
        """Interrupt the link from the first to the second node of each pair."""
        self._call(self._set_gates, list(directions), False)

    def restore(self) -> None:
        """Restore all links."""
        self._call(self._set_gates, list(self._gates), True)

    def close(self) -> None:
        """Stop the proxies. Repeated calls have no effect."""
        if self._loop.is_closed():
            return
        self._call(self._close_all)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # In the thread

    def _call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        return asyncio.run_coroutine_threadsafe(function(*arguments), self._loop).result(CALL_SECONDS_MAX)

    async def _open(self, targets: dict[int, Address]) -> None:
        known = set(self._servers)
        self._targets |= targets
        for dialer, acceptor in set(permutations(self._targets, 2)) - known:
            self._gates[dialer, acceptor] = asyncio.Event()
            self._gates[dialer, acceptor].set()
            accept = self._create_acceptor(dialer, acceptor)
            self._servers[dialer, acceptor] = await asyncio.start_server(accept, HOST, 0)

    async def _set_gates(self, directions: list[tuple[int, int]], are_open: bool) -> None:
        for direction in directions:
            gate = self._gates[direction]
            gate.set() if are_open else gate.clear()

    async def _close_all(self) -> None:
        own_task = {asyncio.current_task()}
        while others := asyncio.all_tasks() - own_task:  # includes tasks that are accepting a connection
            for task in self._forwarding_tasks:
                task.cancel()
            await asyncio.wait(others)
        for server in self._servers.values():  # last: otherwise, connections being accepted would not be closed
            server.close()
        for _ in range(ITERATIONS_TO_CLOSE):
            await asyncio.sleep(0)

    def _create_acceptor(
        self, dialer: int, acceptor: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._forward(dialer, acceptor, reader, writer))
            self._forwarding_tasks.add(task)
            task.add_done_callback(self._forwarding_tasks.discard)
            task.add_done_callback(lambda _: writer.transport.abort())  # also if it was cancelled before it started

        return accept

    async def _forward(
        self, dialer: int, acceptor: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward data between two ends of a connection until one end closes. An interrupted link delays the data."""
        forth, back = self._gates[dialer, acceptor], self._gates[acceptor, dialer]
        writers = [writer]
        try:
            await forth.wait()  # establishing a connection needs both directions
            await back.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._targets[acceptor])
            writers.append(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, far_writer, forth))
                both.create_task(_pump(far_reader, writer, back))
        except* OSError:
            pass  # either end has closed the connection
        finally:
            for each in writers:  # abort all before waiting: the wait may be cancelled
                each.transport.abort()
            for each in writers:
                with suppress(OSError):
                    await each.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """Copy bytes from `reader` to `writer`, and pause while `gate` is closed. Raises OSError when either end closes."""
    while True:
        data = await reader.read(READ_BYTES)
        await gate.wait()
        if not data:
            raise ConnectionResetError("closed")
        writer.write(data)
        await writer.drain()
