"""Many connections at a time from the attacker's address, each followed by another when it has ended."""

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
from tests.abuse.attack import Target
from tests.abuse.doors.door import ATTACKERS_HOST

READ_BYTES: Final = 1 << 16
POLL_SECONDS: Final = 0.01
SECONDS_MORE_MAX: Final = 60.0
SASL_VERSIONS: Final[dict[type[Request], int]] = {SaslHandshakeRequest: 1, SaslAuthenticateRequest: 2}
SIZE: Final = struct.Struct(">i")


class Caller:
    """One connection of the crowd."""

    def __init__(self, target: Target, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.target = target
        self.number = number
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        self.target.meter.sent(len(data))
        await self._writer.drain()

    async def ask(self, *requests: Request) -> bytes:
        """Sends them at once, and returns the last answer."""
        await self.send(b"".join(map(frame_of, requests)))
        for _ in requests:
            answer = await self.answer()
        return answer

    async def answer(self) -> bytes:
        """Without its correlation id. Raises asyncio.IncompleteReadError when there is none."""
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        return (await self._reader.readexactly(size))[4:]

    async def some(self) -> bytes:
        """Of what the node says, whatever it is."""
        return await self._reader.read(READ_BYTES)

    async def until_closed(self, seconds: float | None = None) -> None:
        """Or for so many seconds."""
        async with asyncio.timeout(seconds):
            while await self._reader.read(READ_BYTES):
                pass

    def close(self) -> None:
        self._writer.transport.abort()


Visit = Callable[[Caller], Awaitable[None]]


def frame_of(request: Request) -> bytes:
    return encode_request(RequestHeader(request.__schema__.api_key, SASL_VERSIONS[type(request)], 1, "abuse"), request)


def storm(target: Target, visit: Visit, at_once: int, seconds: float, tls: ssl.SSLContext | None = None) -> None:
    """With a context each visit begins with a handshake of TLS. Takes longer where a machine does much else: until all
    have come once, and one has gone again, be it that the node has cut it short."""
    crowd = Crowd(target, visit, at_once, tls)
    asyncio.run(crowd.come(seconds))


class Crowd:
    def __init__(self, target: Target, visit: Visit, at_once: int, tls: ssl.SSLContext | None) -> None:
        self._target = target
        self._visit = visit
        self._at_once = at_once
        self._tls = tls
        self._came = 0
        self._gone = asyncio.Event()

    async def come(self, seconds: float) -> None:
        """Raises TimeoutError, and what a visit raises that is not as it should be."""
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
                opened = await asyncio.open_connection(host, port, local_addr=(ATTACKERS_HOST, 0), ssl=self._tls)
            except OSError:  # it is not let in, or has no port left for a moment
                await asyncio.sleep(POLL_SECONDS)
                continue
            self._came += 1
            caller = Caller(self._target, number, *opened)
            try:
                await self._visit(caller)
            except (OSError, asyncio.IncompleteReadError):  # cut off: as good
                pass
            finally:
                caller.close()
            self._gone.set()
