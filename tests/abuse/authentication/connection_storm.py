"""Connection storms: many concurrent connections from the attacker's address, each replaced when it ends."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest
from chronik.protocol.schema import Request
from tests.abuse.attack import AttackTarget
from tests.abuse.authentication.attacked_listener import ATTACKER_HOST

READ_BYTES: Final = 1 << 16
POLL_SECONDS: Final = 0.01
SECONDS_MORE_MAX: Final = 60.0
SASL_VERSIONS: Final[dict[type[Request], int]] = {SaslHandshakeRequest: 1, SaslAuthenticateRequest: 2}
SIZE: Final = struct.Struct(">i")


class StormConnection:
    """One connection of the storm."""

    def __init__(
        self, target: AttackTarget, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.target = target
        self.number = number
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        self.target.meter.add(len(data))
        await self._writer.drain()

    async def send_requests(self, *requests: Request) -> bytes:
        """Send several requests at once and return the last response."""
        await self.send(b"".join(map(encode_frame, requests)))
        for _ in requests:
            answer = await self.read_response()
        return answer

    async def read_response(self) -> bytes:
        """Return the next response without its correlation id. Raise asyncio.IncompleteReadError if the node closes."""
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        return (await self._reader.readexactly(size))[4:]

    async def read_some(self) -> bytes:
        """Return some received bytes."""
        return await self._reader.read(READ_BYTES)

    async def wait_closed(self, seconds: float | None = None) -> None:
        """Read until the node closes the connection, at most for the given time."""
        async with asyncio.timeout(seconds):
            while await self._reader.read(READ_BYTES):
                pass

    def close(self) -> None:
        self._writer.transport.abort()


ConnectionHandler = Callable[[StormConnection], Awaitable[None]]


def encode_frame(request: Request) -> bytes:
    return encode_request(RequestHeader(request.__schema__.api_key, SASL_VERSIONS[type(request)], 1, "abuse"), request)


def run_storm(
    target: AttackTarget, visit: ConnectionHandler, at_once: int, seconds: float, tls: ssl.SSLContext | None = None
) -> None:
    """Run a connection storm for some seconds, and until every connection was open once and one has ended.

    With an SSL context, every connection starts with a TLS handshake.
    """
    crowd = ConnectionStorm(target, visit, at_once, tls)
    asyncio.run(crowd.run(seconds))


class ConnectionStorm:
    """A running connection storm."""

    def __init__(
        self, target: AttackTarget, visit: ConnectionHandler, at_once: int, tls: ssl.SSLContext | None
    ) -> None:
        self._target = target
        self._visit = visit
        self._at_once = at_once
        self._tls = tls
        self._came = 0
        self._gone = asyncio.Event()

    async def run(self, seconds: float) -> None:
        """Run the storm. Raise TimeoutError if it does not get going, or the unexpected error of a connection."""
        async with asyncio.timeout(seconds + SECONDS_MORE_MAX), asyncio.TaskGroup() as group:
            each = [group.create_task(self._keep_coming(number)) for number in range(self._at_once)]
            await asyncio.sleep(seconds)
            await self._gone.wait()
            while self._came < self._at_once:
                await asyncio.sleep(POLL_SECONDS)
            for task in each:
                task.cancel()

    async def _keep_coming(self, number: int) -> None:
        host, port = self._target.kafka
        while True:
            try:
                opened = await asyncio.open_connection(host, port, local_addr=(ATTACKER_HOST, 0), ssl=self._tls)
            except OSError:  # rejected, or no free local port
                await asyncio.sleep(POLL_SECONDS)
                continue
            self._came += 1
            caller = StormConnection(self._target, number, *opened)
            try:
                await self._visit(caller)
            except (OSError, asyncio.IncompleteReadError):  # closed by the node, which is acceptable
                pass
            finally:
                caller.close()
            self._gone.set()
