"""Pipelined connections for load generation: many requests in flight, so that the client is never the bottleneck.

The blocking client waits for each response. Here a request is written when it is due, regardless of outstanding
responses (an open-loop load): a slow broker receives the same load as a fast one. Times come from `perf_counter`,
because uvloop's clock has millisecond resolution.
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
from chronik.bench.errors import BenchmarkError
from chronik.client.access.sasl_login import authenticate_with_sasl
from chronik.client.access.settings import ClientSecurity
from chronik.client.access.tls import create_ssl_context
from chronik.client.connection import BrokerConnection
from chronik.config import Address
from chronik.protocol.codec import RequestHeader, decode_response, encode_request
from chronik.protocol.schema import Request, Response

RESPONSE_SECONDS_MAX: Final = 60.0
"""Time limit in seconds for receiving the outstanding responses at the end of a benchmark."""

_SIZE: Final = struct.Struct(">i")

T = TypeVar("T")
R = TypeVar("R", bound=Response)


class PipelinedConnection(asyncio.Protocol):
    """A connection that sends requests without waiting for previous responses. Kafka brokers respond in order."""

    def __init__(self, version_of: Callable[[type[Request]], int]) -> None:
        self._version_of = version_of
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._in_flight: deque[tuple[int, int, int, asyncio.Future[Response]]] = deque()
        self._last_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        frame_start = 0
        while len(received) - frame_start >= _SIZE.size:
            end = frame_start + _SIZE.size + _SIZE.unpack_from(received, frame_start)[0]
            if end > len(received):
                break
            self._on_response(bytes(received[frame_start + _SIZE.size : end]))
            frame_start = end
        del received[:frame_start]

    def connection_lost(self, error: Exception | None) -> None:
        for *_, response_future in self._in_flight:
            if not response_future.done():
                response_future.set_exception(
                    BenchmarkError(f"the broker closed the connection: {error or 'no reason given'}")
                )
        self._in_flight.clear()

    def send(self, request: Request) -> asyncio.Future[Response]:
        """Send a request, and return a future of the response.

        The future raises BenchmarkError if the connection closes.
        """
        response_future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        if self._transport.is_closing():
            response_future.set_exception(BenchmarkError("the broker closed the connection"))
            return response_future
        key, version = request.__schema__.api_key, self._version_of(type(request))
        self._last_id += 1
        self._in_flight.append((self._last_id, key, version, response_future))
        self._transport.write(encode_request(RequestHeader(key, version, self._last_id, CLIENT_ID), request))
        return response_future

    def close(self) -> None:
        """Close the connection immediately, without a TLS shutdown.

        The shutdown may outlast the event loop, which uvloop then cannot close.
        """
        self._transport.abort()

    def replace_protocol(self, protocol: asyncio.Protocol) -> None:
        """Hand the network connection over to another asyncio protocol.

        No requests may be in flight.
        """
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)

    def _on_response(self, frame: bytes) -> None:
        expected, key, version, response_future = self._in_flight.popleft()
        correlation_id, response = decode_response(key, version, memoryview(frame))
        if correlation_id != expected:
            self._transport.abort()
            response_future.set_exception(
                BenchmarkError(f"request {expected}: response has correlation id {correlation_id}")
            )
        elif not response_future.done():
            response_future.set_result(response)


async def open_pipelined(
    address: Address, security: ClientSecurity, version_of: Callable[[type[Request]], int]
) -> PipelinedConnection:
    """Open a connection for pipelined requests, with TLS and SASL if configured.

    Raises OSError, ClientError or BenchmarkError.
    """
    loop = asyncio.get_running_loop()
    tls = create_ssl_context(security) if security.is_encrypted else None
    _, pipe = await loop.create_connection(partial(PipelinedConnection, version_of), *address, ssl=tls)
    if security.has_login:

        def ask(request: Request, response_type: type[R]) -> R:
            response = asyncio.run_coroutine_threadsafe(_send_request(pipe, request), loop).result()
            assert isinstance(response, response_type)
            return response

        await asyncio.to_thread(authenticate_with_sasl, security, address, ask)
    return pipe


async def _send_request(pipe: PipelinedConnection, request: Request) -> Response:
    return await pipe.send(request)


@asynccontextmanager
async def open_pipelined_connections(
    connections: Sequence[BrokerConnection],
) -> AsyncIterator[list[PipelinedConnection]]:
    """Open a pipelined connection for each existing connection, to the same broker and with its settings."""
    pipes: list[PipelinedConnection] = []
    try:
        for connection in connections:
            pipes.append(await open_pipelined(connection.address, connection.security, connection.negotiated_version))
        yield pipes
    finally:
        for pipe in pipes:
            pipe.close()


class SendNumberedRequest(Protocol):
    """A function that sends one numbered request and waits for its response."""

    def __call__(self, number: int) -> Coroutine[Any, Any, None]:
        """Send request `number` and wait for its successful response. Raises BenchmarkError."""


async def send_at_constant_rate(ask: SendNumberedRequest, per_second: float, seconds: float) -> list[float]:
    """Send requests at a constant rate and return the latency of each in seconds.

    The event loop's timers send a request up to a millisecond late. This delay is not part of the latency.
    """
    latencies: list[float] = []

    async def send_timed(number: int) -> None:
        sent = time.perf_counter()
        await ask(number)
        latencies.append(time.perf_counter() - sent)

    started = time.perf_counter()
    async with asyncio.timeout(seconds + RESPONSE_SECONDS_MAX), asyncio.TaskGroup() as tasks:
        for number in range(int(per_second * seconds)):
            due = started + number / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(send_timed(number))
    return latencies


def run_with_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop if it is installed. If several BenchmarkErrors occur, raise only the first."""
    try:
        import uvloop
    except ImportError:  # Windows
        factory = None
    else:
        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(main)
    except* BenchmarkError as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        failure = first
    except* TimeoutError:
        failure = BenchmarkError(f"not all responses arrived within {RESPONSE_SECONDS_MAX:g} s")
    raise failure
