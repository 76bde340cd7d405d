"""Many requests under way on one connection, so that it is never the client that is waited for.

The blocking client asks, waits, and asks again. Here a request is written when it is due, whatever is still unanswered:
a broker that falls behind is not spared the requests that a real crowd would send meanwhile. (Times are not the loop's
own: uvloop counts whole milliseconds.)
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from chronik.bench.arguments import CLIENT_ID
from chronik.bench.errors import BenchFailed
from chronik.client.access.login import log_in
from chronik.client.access.settings import ClientSecurity
from chronik.client.access.tls import context_of
from chronik.client.connection import Connection
from chronik.config import Address
from chronik.protocol.codec import RequestHeader, decode_response, encode_request
from chronik.protocol.schema import Request, Response

ANSWER_SECONDS_MAX: Final = 60.0
"""The time for all that is under way at the end of a measurement."""

_SIZE: Final = struct.Struct(">i")

T = TypeVar("T")
R = TypeVar("R", bound=Response)


class Pipe(asyncio.Protocol):
    """A connection whose answers come in the order of its requests, as every Kafka broker sends them."""

    def __init__(self, version_of: Callable[[type[Request]], int]) -> None:
        self._version_of = version_of
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._unanswered: deque[tuple[int, int, int, asyncio.Future[Response]]] = deque()
        self._last_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        begin = 0
        while len(received) - begin >= _SIZE.size:
            end = begin + _SIZE.size + _SIZE.unpack_from(received, begin)[0]
            if end > len(received):
                break
            self._answer(bytes(received[begin + _SIZE.size : end]))
            begin = end
        del received[:begin]

    def connection_lost(self, error: Exception | None) -> None:
        for *_, answer in self._unanswered:
            if not answer.done():
                answer.set_exception(BenchFailed(f"the broker closed the connection: {error or 'without a reason'}"))
        self._unanswered.clear()

    def send(self, request: Request) -> asyncio.Future[Response]:
        """Returns the answer to come, which fails with BenchFailed when the connection ends first."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            answer.set_exception(BenchFailed("the broker closed the connection"))
            return answer
        key, version = request.__schema__.api_key, self._version_of(type(request))
        self._last_id += 1
        self._unanswered.append((self._last_id, key, version, answer))
        self._transport.write(encode_request(RequestHeader(key, version, self._last_id, CLIENT_ID), request))
        return answer

    def close(self) -> None:
        self._transport.close()

    def replace_with(self, protocol: asyncio.Protocol) -> None:
        """Let another protocol take over the connection, which has no request in flight."""
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)

    def _answer(self, frame: bytes) -> None:
        expected, key, version, answer = self._unanswered.popleft()
        correlation_id, response = decode_response(key, version, memoryview(frame))
        if correlation_id != expected:
            self._transport.abort()
            answer.set_exception(BenchFailed(f"request {expected} was answered as {correlation_id}"))
        elif not answer.done():
            answer.set_result(response)


async def open_pipe(address: Address, security: ClientSecurity, version_of: Callable[[type[Request]], int]) -> Pipe:
    """Connect with TLS and log in where the settings say so. Raises OSError, ClientError or BenchFailed."""
    loop = asyncio.get_running_loop()
    tls = context_of(security) if security.is_encrypted else None
    _, pipe = await loop.create_connection(partial(Pipe, version_of), *address, ssl=tls)
    if security.has_login:

        def ask(request: Request, response_type: type[R]) -> R:
            response = asyncio.run_coroutine_threadsafe(_answer_to(pipe, request), loop).result()
            assert isinstance(response, response_type)
            return response

        await asyncio.to_thread(log_in, security, address, ask)
    return pipe


async def _answer_to(pipe: Pipe, request: Request) -> Response:
    return await pipe.send(request)


@asynccontextmanager
async def open_pipes(connections: Sequence[Connection]) -> AsyncIterator[list[Pipe]]:
    """Open one next to each of these connections: to the same broker, with the same security and versions."""
    pipes: list[Pipe] = []
    try:
        for connection in connections:
            pipes.append(await open_pipe(connection.address, connection.security, connection.version_of))
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()


class Ask(Protocol):
    def __call__(self, number: int) -> Coroutine[Any, Any, None]:
        """Sends the request of that number, and returns when it is answered well. Raises BenchFailed."""


async def at_a_steady_rate(ask: Ask, per_second: float, seconds: float) -> list[float]:
    """Returns the seconds that each request took. Each is sent when it is due, a millisecond late by the loop's timers,
    which is not the broker's doing and not counted."""
    latencies: list[float] = []

    async def one(number: int) -> None:
        sent = time.perf_counter()
        await ask(number)
        latencies.append(time.perf_counter() - sent)

    began = time.perf_counter()
    async with asyncio.timeout(seconds + ANSWER_SECONDS_MAX), asyncio.TaskGroup() as asked:
        for number in range(int(per_second * seconds)):
            due = began + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            asked.create_task(one(number))
    return latencies


def run_on_best_loop(main: Coroutine[Any, Any, T]) -> T:
    """Raises the first BenchFailed of several, alone."""
    try:
        import uvloop
    except ImportError:  # Windows
        factory = None
    else:
        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main)
    except* BenchFailed as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        failure = first
    except* TimeoutError:
        failure = BenchFailed(f"not everything was answered within {ANSWER_SECONDS_MAX:g} s")
    raise failure
