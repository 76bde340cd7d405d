"""The network between the nodes of a cluster, as far as a test can cut it: a TCP proxy for each pair of nodes.

Bytes from one node to another pass a gate of that direction, whoever dialled the connection they travel on. A cut link
behaves as a lost network does, not as a closed port: nothing is refused, nothing arrives, and what was under way is
delivered when the link heals.
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
TURNS_TO_CLOSE = 3
"""Of the loop: a task that has ended tells so in the next, a transport that is aborted closes in the one after it."""


class Links:
    """Runs on a thread of its own. Use it from one thread at a time; `close` when done."""

    def __init__(self, targets: Mapping[int, Address]) -> None:
        """`targets`: where each node listens for the others."""
        self._targets: dict[int, Address] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chronik-links", daemon=True)
        self._thread.start()
        self._gates: dict[tuple[int, int], asyncio.Event] = {}
        self._servers: dict[tuple[int, int], asyncio.Server] = {}
        self._carriers: set[asyncio.Task[None]] = set()
        self._call(self._open, dict(targets))

    def add(self, node_id: int, target: Address) -> None:
        """Makes the links between one node more and all others. If there were cuts, they are not between these."""
        self._call(self._open, {node_id: target})

    def address(self, dialer: int, acceptor: int) -> Address:
        """Returns what `dialer` is to take for the address of `acceptor`."""
        return Address(HOST, self._servers[dialer, acceptor].sockets[0].getsockname()[1])

    def cut(self, directions: Iterable[tuple[int, int]]) -> None:
        """Lets nothing pass from the first node of each pair to the second from now on."""
        self._call(self._set_gates, list(directions), False)

    def heal(self) -> None:
        """Lets everything pass again."""
        self._call(self._set_gates, list(self._gates), True)

    def close(self) -> None:
        """Does nothing the second time."""
        if self._loop.is_closed():
            return
        self._call(self._shut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # On the thread

    def _call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        return asyncio.run_coroutine_threadsafe(function(*arguments), self._loop).result(CALL_SECONDS_MAX)

    async def _open(self, targets: dict[int, Address]) -> None:
        known = set(self._servers)
        self._targets |= targets
        for dialer, acceptor in set(permutations(self._targets, 2)) - known:
            self._gates[dialer, acceptor] = asyncio.Event()
            self._gates[dialer, acceptor].set()
            accept = self._acceptor(dialer, acceptor)
            self._servers[dialer, acceptor] = await asyncio.start_server(accept, HOST, 0)

    async def _set_gates(self, directions: list[tuple[int, int]], are_open: bool) -> None:
        for direction in directions:
            gate = self._gates[direction]
            gate.set() if are_open else gate.clear()

    async def _shut(self) -> None:
        me = {asyncio.current_task()}
        while others := asyncio.all_tasks() - me:  # those that accept a connection in this very moment among them
            for task in self._carriers:
                task.cancel()
            await asyncio.wait(others)
        for server in self._servers.values():  # only now: what it had begun to accept would be closed by nobody
            server.close()
        for _ in range(TURNS_TO_CLOSE):
            await asyncio.sleep(0)

    def _acceptor(self, dialer: int, acceptor: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._carry(dialer, acceptor, reader, writer))
            self._carriers.add(task)
            task.add_done_callback(self._carriers.discard)
            task.add_done_callback(lambda _: writer.transport.abort())  # one that was cancelled before it began, too

        return accept

    async def _carry(
        self, dialer: int, acceptor: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carries one connection, until either end closes it and the other end may know."""
        forth, back = self._gates[dialer, acceptor], self._gates[acceptor, dialer]
        writers = [writer]
        try:
            await forth.wait()  # a connection needs both directions to come about
            await back.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._targets[acceptor])
            writers.append(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, far_writer, forth))
                both.create_task(_pump(far_reader, writer, back))
        except* OSError:
            pass  # an end is gone: so is the connection
        finally:
            for each in writers:  # all of them before the first is waited for: that may be cancelled
                each.transport.abort()
            for each in writers:
                with suppress(OSError):
                    await each.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """Raises OSError when either end is gone."""
    while True:
        data = await reader.read(READ_BYTES)
        await gate.wait()
        if not data:
            raise ConnectionResetError("closed")
        writer.write(data)
        await writer.drain()
