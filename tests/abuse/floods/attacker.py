"""The process that runs a flood, so that its CPU use and garbage collections stay out of the probe and the harness.

    python -m tests.abuse.floods.attacker < spec.json

Opens connections from addresses 127.0.1.1, 127.0.1.2, … to the addresses of a `Spec` and keeps each of them busy until
the time or the number of requests runs out, or stdin ends. Reopens connections that the server closes. Prints totals.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, cast

import msgspec

from chronik.console.rest.operation_table import BASE_PATH
from tests.abuse.floods.registry_requests import REGISTRY_PATH, REGISTRY_PAYLOADS
from tests.abuse.floods.requests import PAYLOADS, Payload, login_frames

READ_BYTES: Final = 1 << 20
READ_BUFFER: Final = memoryview(bytearray(READ_BYTES))
"""A read buffer that all connections share, since the event loop reads from one at a time."""

STDIN: Final = 0
SIZE: Final = struct.Struct(">i")
REOPEN_SECONDS: Final = 0.2
CONNECT_SECONDS_MAX: Final = 30.0
DECLARED_BYTES: Final = 3 * 1024 * 1024
SILENT_PER_SECOND: Final = 100
SILENT_MAX: Final = 1_000

DECLARED_BODIES: Final = "declared-bodies"
DECLARED_SCHEMAS: Final = "declared-schemas"
SILENT: Final = "silent"
FAILED_LOGINS: Final = "failed-logins"

HEAD: Final = (
    "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
)
LOGIN_PATH: Final = f"{BASE_PATH}/login"
REGISTRATION_PATH: Final = f"{REGISTRY_PATH}/subjects/declared/versions"
END_OF_HEAD: Final = b"\r\n\r\n"
CONTENT_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
FloodConnectionHandler = Callable[[tuple[str, int], int], Coroutine[Any, Any, bool]]
"""Open a connection and use it until it is closed. Return whether to open another."""


class FloodSpec(msgspec.Struct, frozen=True):
    """A flood: the requests, the connections they are sent on, and when it ends."""

    kinds: list[str]
    """Names of `PAYLOADS`, sent alternately, one of `REGISTRY_PAYLOADS`, or one of the HTTP floods."""
    addresses: list[tuple[str, int]]
    connections: int
    """Connections to each address."""
    sources: int = 1
    """Number of source addresses that the connections are spread over."""
    seconds: float = 10.0
    requests: int | None = None
    """Requests to each address, if the number ends the flood."""
    names: int = 0
    """Number of names that a request lists."""
    user: str = ""
    password: str = ""


class FloodTotals(msgspec.Struct):
    """Totals of a flood."""

    sent: int = 0
    largest: int = 0
    responses: int = 0
    response_bytes: int = 0
    opened: int = 0
    refused: int = 0
    """Connections that could not be opened, or that the server closed."""
    cpu_seconds: float = 0.0
    seconds: float = 0.0

    def count_sent(self, size: int) -> None:
        self.sent += size
        self.largest = max(self.largest, size)


def source_address(spec: FloodSpec, number: int) -> tuple[str, int]:
    return f"127.0.1.{1 + number % spec.sources}", 0


class Requester(asyncio.BufferedProtocol):
    """A Kafka connection that sends the next request when the response to the previous one has arrived."""

    def __init__(self, first: list[bytes], next_frame: Callable[[], bytes | None], done: FloodTotals) -> None:
        self._unsent = deque(first)
        self._next_frame = next_frame
        self._done = done
        self._size = bytearray()
        self._remaining = 0
        self._transport: asyncio.Transport
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return READ_BUFFER

    def buffer_updated(self, count: int) -> None:
        self._done.response_bytes += count
        position = 0
        while position < count:
            if self._remaining:
                taken = min(self._remaining, count - position)
                position += taken
                self._remaining -= taken
                if not self._remaining:
                    self._done.responses += 1
                    self._send()
                continue
            needed = SIZE.size - len(self._size)
            self._size += READ_BUFFER[position : min(count, position + needed)]
            position += needed
            if len(self._size) == SIZE.size:
                (self._remaining,) = SIZE.unpack(self._size)
                self._size.clear()

    def _send(self) -> None:
        data = self._unsent.popleft() if self._unsent else self._next_frame()
        if data is None:
            self._transport.close()
        else:
            self._done.count_sent(len(data))
            self._transport.write(data)


class Flood:
    """A running flood and its totals."""

    def __init__(self, spec: FloodSpec) -> None:
        self._spec = spec
        self.done = FloodTotals()

    async def run(self) -> None:
        """Run until the time is up, all requests have been answered, or stdin ends."""
        started = time.monotonic()
        is_finished = asyncio.Event()
        asyncio.get_running_loop().add_reader(STDIN, is_finished.set)
        tasks = [asyncio.ensure_future(each) for each in self._tasks()]
        try:
            while not is_finished.is_set() and time.monotonic() < started + self._spec.seconds:
                finished, _ = await asyncio.wait(tasks, timeout=0.1)
                for each in finished:
                    each.result()
                if len(finished) == len(tasks):
                    break
        finally:
            self.done.seconds = time.monotonic() - started
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.done.cpu_seconds = time.process_time()

    def _tasks(self) -> Iterator[Coroutine[Any, Any, None]]:
        spec = self._spec
        for address in spec.addresses:
            if spec.kinds == [SILENT]:
                yield self._open_silently(address)
                continue
            visit: FloodConnectionHandler
            if spec.kinds == [DECLARED_BODIES]:
                visit = self._declare_bodies(LOGIN_PATH)
            elif spec.kinds == [DECLARED_SCHEMAS]:
                visit = self._declare_bodies(REGISTRATION_PATH)
            elif spec.kinds[0] in REGISTRY_PAYLOADS:
                visit = self._repeat_http_requests(REGISTRY_PAYLOADS[spec.kinds[0]])
            elif spec.kinds == [FAILED_LOGINS]:
                visit = self._fail_to_log_in
            else:
                visit = self._kafka_visit(self._frames())
            for number in range(spec.connections):
                yield self._reopen(visit, address, number)

    async def _reopen(self, visit: FloodConnectionHandler, address: tuple[str, int], number: int) -> None:
        """Repeat a connection until its visit reports that there is nothing left to send."""
        while True:
            try:
                if not await visit(address, number):
                    return
            except (OSError, asyncio.IncompleteReadError):
                pass
            self.done.refused += 1
            await asyncio.sleep(REOPEN_SECONDS)

    # Kafka

    def _frames(self) -> Callable[[], bytes | None]:
        """Return a function that returns the next frame, or None after the last."""
        payloads = itertools.cycle([PAYLOADS[kind](self._spec.names) for kind in self._spec.kinds])
        numbers = iter(range(self._spec.requests)) if self._spec.requests is not None else itertools.count()

        def next_frame() -> bytes | None:
            number = next(numbers, None)
            payload: Payload = next(payloads)
            return None if number is None else payload(number)

        return next_frame

    def _kafka_visit(self, next_frame: Callable[[], bytes | None]) -> FloodConnectionHandler:
        first = login_frames(self._spec.user, self._spec.password) if self._spec.user else []
        is_finished = False

        def next_counted_frame() -> bytes | None:
            nonlocal is_finished
            data = next_frame()
            is_finished = data is None
            return data

        async def visit(address: tuple[str, int], number: int) -> bool:
            transport, requester = await asyncio.get_running_loop().create_connection(
                lambda: Requester(first, next_counted_frame, self.done),
                *address,
                local_addr=source_address(self._spec, number),
            )
            self.done.opened += 1
            try:
                await requester.closed
            finally:
                transport.abort()
            return not is_finished

        return visit

    # HTTP

    async def _fail_to_log_in(self, address: tuple[str, int], number: int) -> bool:
        body = json.dumps({"username": f"nobody-{number}", "password": "wrong"}).encode()
        reader, writer = await self._send(address, number, HEAD.format(path=LOGIN_PATH, size=len(body)).encode() + body)
        try:
            self.done.response_bytes += len(await reader.readuntil(b"\r\n\r\n"))
            self.done.responses += 1
        finally:
            writer.transport.abort()
        return True

    def _declare_bodies(self, path: str) -> FloodConnectionHandler:
        """Declare bodies and send none. If the server rejects a size, declare half of it, to fill what is left."""

        async def visit(address: tuple[str, int], number: int) -> bool:
            size = DECLARED_BYTES
            while size:
                reader, writer = await self._send(address, number, HEAD.format(path=path, size=size).encode())
                try:
                    is_rejected = bool(await reader.read(READ_BYTES))
                    self.done.responses += is_rejected
                finally:
                    writer.transport.abort()
                if not is_rejected:
                    break
                size //= 2
            return True

        return visit

    def _repeat_http_requests(self, payload: Payload) -> FloodConnectionHandler:
        """Send the next request on a connection when the previous one was answered."""
        numbers = iter(range(self._spec.requests)) if self._spec.requests is not None else itertools.count()
        unanswered: deque[int] = deque()

        async def visit(address: tuple[str, int], number: int) -> bool:
            writer = None
            while True:
                sent = unanswered.popleft() if unanswered else next(numbers, None)
                if sent is None:
                    break
                try:
                    if writer is None:
                        reader, writer = await self._send(address, number, payload(sent))
                    else:
                        writer.write(data := payload(sent))
                        self.done.count_sent(len(data))
                    self.done.response_bytes += await _read_http_response(reader)
                    self.done.responses += 1
                except BaseException:
                    unanswered.append(sent)
                    if writer is not None:
                        writer.transport.abort()
                    raise
            if writer is not None:
                writer.transport.abort()
            return False

        return visit

    async def _send(
        self, address: tuple[str, int], number: int, data: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*address, local_addr=source_address(self._spec, number))
        self.done.opened += 1
        writer.write(data)
        self.done.count_sent(len(data))
        return reader, writer

    async def _open_silently(self, address: tuple[str, int]) -> None:
        """Open connections at a fixed rate, and keep the latest of them open without sending anything."""
        held: deque[asyncio.StreamWriter] = deque()
        started = time.monotonic()
        try:
            for number in itertools.count():
                await asyncio.sleep(started + number / SILENT_PER_SECOND - time.monotonic())
                try:
                    _, writer = await asyncio.open_connection(*address, local_addr=source_address(self._spec, number))
                except OSError:
                    self.done.refused += 1
                    continue
                self.done.opened += 1
                held.append(writer)
                if len(held) > SILENT_MAX:
                    held.popleft().transport.abort()
        finally:
            for writer in held:
                writer.transport.abort()


async def _read_http_response(reader: asyncio.StreamReader) -> int:
    """Read a response with a length or in chunks, and return its size. The bodies contain no empty chunk."""
    head = await reader.readuntil(END_OF_HEAD)
    found = CONTENT_LENGTH.search(head)
    if found is not None:
        return len(head) + len(await reader.readexactly(int(found[1])))
    size, end = len(head), b""
    while not end.endswith(LAST_CHUNK):
        data = await reader.read(READ_BYTES)
        if not data:
            raise asyncio.IncompleteReadError(end, None)
        size += len(data)
        end = (end + data)[-len(LAST_CHUNK) :]
    return size


def main() -> None:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(STDIN, READ_BYTES) or b"\n"
    flood = Flood(msgspec.json.decode(line, type=FloodSpec))
    asyncio.run(flood.run())
    print(msgspec.json.encode(flood.done).decode(), flush=True)


if __name__ == "__main__":
    main()
