"""Helpers for peer tests: nodes on real sockets whose received messages are collected in an inbox."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from chronik.config import Address
from chronik.files import Buffer
from chronik.peers.frames import SCRATCH_BYTES, FrameKind, PeerFrameDecoder, encode_frame
from chronik.peers.handshake import AcceptorHandshake, PeerIdentity, derive_identity
from chronik.peers.transport import PeerTransport

SECRET = "a secret of some length"
LOCALHOST = "127.0.0.1"
ANY_PORT = Address(LOCALHOST, 0)
DEADLINE_SECONDS = 20.0
"""Timeout of a test that hangs."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of the kind that nodes use."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(60):
            await scenario

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(with_deadline())


async def until(condition: Callable[[], bool], what: str = "it") -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_SECONDS
    while not condition():
        assert loop.time() < deadline, f"{what} did not happen"
        await asyncio.sleep(0.005)


def identity(node_id: int, secret: str = SECRET, cluster: str = "test") -> PeerIdentity:
    return derive_identity(cluster, node_id, secret, [])


class Inbox:
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.unreachable: list[int] = []
        self.gone: list[int] = []
        self.reached: list[int] = []

    def messages_received(self, peer: int, messages: Sequence[Buffer]) -> None:
        self.messages += map(bytes, messages)

    def peer_connected(self, peer: int) -> None:
        self.reached.append(peer)

    def peer_down(self, peer: int) -> None:
        self.gone.append(peer)

    def peer_unreachable(self, peer: int) -> None:
        self.unreachable.append(peer)


def new_frame_decoder() -> PeerFrameDecoder:
    return PeerFrameDecoder(memoryview(bytearray(SCRATCH_BYTES)))


def feed_bytes(splitter: PeerFrameDecoder, data: bytes, found: list[bytes] | None = None) -> None:
    """Pass bytes to the decoder as a socket would, and collect the complete frames."""
    while data:
        buffer = splitter.get_buffer()
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        splitter.buffer_updated(size)
        data = data[size:]
        while found is not None and (frame := splitter.next_frame()) is not None:
            found.append(bytes(frame.content))


def fail_on_fatal(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def listening_node(
    secret: str = SECRET, where: Address = ANY_PORT
) -> AsyncIterator[tuple[Address, Inbox, PeerTransport]]:
    server = PeerTransport(identity(1, secret), where, {}, fail_on_fatal)
    address = await server.bind()
    inbox = Inbox()
    await server.start(inbox)
    try:
        yield address, inbox, server
    finally:
        await server.stop()


@asynccontextmanager
async def connected_client(who: PeerIdentity, address: Address) -> AsyncIterator[tuple[PeerTransport, Inbox]]:
    client = PeerTransport(who, ANY_PORT, {1: address}, fail_on_fatal)
    inbox = Inbox()
    await client.start(inbox)
    try:
        yield client, inbox
    finally:
        await client.stop()


class StuckAcceptor(asyncio.Protocol):
    """An acceptor that completes the handshake and then stops reading."""

    def __init__(self, node_id: int = 1) -> None:
        self._handshake = AcceptorHandshake(identity(node_id))
        self._splitter = new_frame_decoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        feed_bytes(self._splitter, data)
        while (frame := self._splitter.next_frame()) is not None:
            answer = self._handshake.receive(bytes(frame.content))
            self._transport.write(encode_frame(FrameKind.HANDSHAKE, answer))
        if self._handshake.is_done:
            self._transport.pause_reading()
