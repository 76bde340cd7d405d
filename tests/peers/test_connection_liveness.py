"""Liveness of connections: both ends close a silent connection within seconds and reconnect as soon as possible."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from chronik.config import Address
from chronik.files import Buffer
from chronik.peers import link as peer_link
from chronik.peers.connection import UNANSWERED_PINGS_MAX, PeerConnection
from chronik.peers.handshake import AcceptorHandshake, DialerHandshake
from chronik.peers.transport import PeerTransport
from chronik.testing.links import NetworkLinks
from tests.peers.helpers import (
    ANY_PORT,
    LOCALHOST,
    Inbox,
    connected_client,
    fail_on_fatal,
    identity,
    listening_node,
    run,
    until,
)

PING_SECONDS = 0.02
LARGE_BYTES = 1024 * 1024


@pytest.fixture(autouse=True)
def short_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.peers.connection.PING_SECONDS", PING_SECONDS)
    monkeypatch.setattr("chronik.peers.link.PARALLEL_DIAL_SECONDS", PING_SECONDS)


@asynccontextmanager
async def line_to(address: Address) -> AsyncIterator[tuple[Address, NetworkLinks]]:
    """Yield an address at which node 2 reaches node 1 through a link that can be cut."""
    links = NetworkLinks({1: address, 2: address})
    try:
        yield links.get_proxy_address(2, 1), links
    finally:
        links.restore()
        links.close()


@asynccontextmanager
async def slow_line_to(address: Address) -> AsyncIterator[Address]:
    """Yield an address that forwards 800 kB/s to node 1 through small buffers; the other direction is fast."""
    carriers = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause_seconds: float) -> None:
        try:
            while some := await reader.read(4096):
                writer.write(some)
                await writer.drain()
                await asyncio.sleep(pause_seconds)
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(*address)
        carriers.add(asyncio.ensure_future(carry(reader, onward_writer, 0.005)))
        carriers.add(asyncio.ensure_future(carry(onward_reader, writer, 0.0)))

    with socket.create_server((LOCALHOST, 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        server = await asyncio.start_server(accept, sock=listener, limit=4096)
        try:
            yield Address(*listener.getsockname())
        finally:
            server.close()
            for carrier in carriers:
                carrier.cancel()
            await asyncio.gather(*carriers, return_exceptions=True)


def silent_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "no data received for" in record.getMessage()]


def test_silent_connection_is_closed_and_reestablished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.INFO)
        async with (
            listening_node() as (address, _, server),
            line_to(address) as (through, line),
            connected_client(identity(2), through) as (client, inbox),
        ):
            await until(lambda: client.connected_peers == [1])
            await until(lambda: 2 in server._accepted and server._accepted[2]._expects_pings)
            line.interrupt([(1, 2), (2, 1)])
            await until(lambda: client.connected_peers == [] and 2 not in server._accepted, "disconnection")
            assert len(silent_lines(caplog)) == 2, "one line per end"
            line.restore()
            reached = len(inbox.reached)
            await until(lambda: client.connected_peers == [1], "reconnection")
            await until(lambda: len(inbox.reached) > reached, "reconnection event")

    run(scenario())


def test_idle_connection_stays_open() -> None:
    async def scenario() -> None:
        async with listening_node() as (address, _, server), connected_client(identity(2), address) as (client, _):
            await until(lambda: client.connected_peers == [1] and 2 in server._accepted)
            connection = server._accepted[2]
            looks = count_checks(connection)
            await until(lambda: looks() > 3 * UNANSWERED_PINGS_MAX)
            assert client.connected_peers == [1]
            assert server._accepted[2] is connection

    run(scenario())


def test_large_message_on_slow_link_does_not_close_connection() -> None:
    """All pings are queued behind the message and cannot be answered in time."""

    async def scenario() -> None:
        async with (
            listening_node() as (address, _, server),
            slow_line_to(address) as through,
            connected_client(identity(2), through) as (client, _),
        ):
            received: list[int] = []

            async def receive(peer: int, payload: Buffer) -> list[Buffer]:
                received.append(len(payload))
                return [b"thanks"]

            server.calls.register(99, receive)
            await until(lambda: client.connected_peers == [1])
            connection = client._links[1]._connection
            began = asyncio.get_running_loop().time()
            answer = await client.calls.call(1, 99, bytes(LARGE_BYTES), 60)
            assert asyncio.get_running_loop().time() - began > 3 * PING_SECONDS * UNANSWERED_PINGS_MAX
            assert (bytes(answer), received) == (b"thanks", [LARGE_BYTES])
            assert client._links[1]._connection is connection, "the connection was kept"

    run(scenario())


def count_checks(connection: PeerConnection) -> Callable[[], int]:
    count, check_liveness = [0], connection._check_liveness

    def counted() -> None:
        count[0] += 1
        check_liveness()

    connection._check_liveness = counted  # type: ignore[method-assign]
    return lambda: count[0]


class IgnoringOwner:
    def connection_opened(self, connection: PeerConnection) -> None: ...

    def frames_received(self, connection: PeerConnection, frames: object) -> None: ...

    def writing_resumed(self, connection: PeerConnection) -> None: ...

    def connection_closed(self, connection: PeerConnection) -> None: ...


def test_connection_of_peer_without_pings_stays_open() -> None:
    """Nodes of earlier versions do not send pings."""

    async def scenario() -> None:
        async with listening_node() as (address, _, server):
            loop = asyncio.get_running_loop()
            _, old = await loop.create_connection(
                lambda: PeerConnection(IgnoringOwner(), DialerHandshake(identity(2), 1)), *address
            )
            await until(lambda: 2 in server._accepted)
            looks = count_checks(server._accepted[2])
            await until(lambda: looks() > 3 * UNANSWERED_PINGS_MAX)
            assert 2 in server._accepted
            old.close("done")

    run(scenario())


def test_local_event_loop_stall_does_not_close_connection() -> None:
    """Checks are counted instead of seconds: after a stall, received data is read before the next check."""

    async def scenario() -> None:
        connection = PeerConnection(IgnoringOwner(), AcceptorHandshake(identity(1)))
        connection.on_ping_received()
        for _ in range(UNANSWERED_PINGS_MAX):
            connection._check_liveness()
        assert not connection.is_closing
        connection.get_buffer(1)[:1] = b"\0"  # any received byte
        connection.buffer_updated(1)
        for _ in range(UNANSWERED_PINGS_MAX):
            connection._check_liveness()
        assert not connection.is_closing
        connection._check_liveness()
        assert connection.is_closing

    run(scenario())


def test_lost_dial_does_not_delay_next_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a network failure, a new dial succeeds before the first packet of an earlier one is repeated."""

    async def scenario() -> None:
        async with listening_node() as (address, _, _):
            dials = 0
            dial_once = peer_link.PeerLink._dial_once

            async def lose_some(link: peer_link.PeerLink) -> PeerConnection:
                nonlocal dials
                dials += 1
                if dials <= 3:
                    await asyncio.sleep(60)
                return await dial_once(link)

            monkeypatch.setattr("chronik.peers.link.PeerLink._dial_once", lose_some)
            async with connected_client(identity(2), address) as (client, _):
                await until(lambda: client.connected_peers == [1])
                assert dials >= 4

    run(scenario())


def test_parallel_dials_are_limited_and_cancelled_with_link(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        under_way = most = 0

        async def never_connect(link: peer_link.PeerLink) -> PeerConnection:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                await asyncio.sleep(60)
            finally:
                under_way -= 1
            raise AssertionError("unreachable")

        monkeypatch.setattr("chronik.peers.link.PeerLink._dial_once", never_connect)
        monkeypatch.setattr("chronik.peers.link.PARALLEL_DIAL_SECONDS", 0.001)
        with socket.create_server((LOCALHOST, 0)) as nobody:
            client = PeerTransport(identity(2), Address(LOCALHOST, 0), {1: Address(*nobody.getsockname())}, _fatal)
            await client.start(Inbox())
            await until(lambda: most == peer_link.PARALLEL_DIALS_MAX)
            await asyncio.sleep(0.02)
            assert most == peer_link.PARALLEL_DIALS_MAX
            await client.stop()
            await until(lambda: under_way == 0)

    run(scenario())


def _fatal(error: BaseException) -> None:
    raise error


class HangingLink(peer_link.PeerLink):
    """A link whose dials are never answered, as in a network that drops packets."""

    dials = 0

    async def _dial_once(self) -> PeerConnection:
        self.dials += 1
        answer: asyncio.Future[PeerConnection] = asyncio.get_running_loop().create_future()
        return await answer


def test_link_dials_immediately_after_incoming_dial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer's dial shows that the network has healed; packets of the hanging dials are repeated seconds later."""
    monkeypatch.setattr("chronik.peers.link.PARALLEL_DIAL_SECONDS", 3600.0)
    monkeypatch.setattr("chronik.peers.link.HANDSHAKE_SECONDS_MAX", 3600.0)

    async def scenario() -> None:
        hanging = HangingLink(
            identity(2), 1, ANY_PORT, PeerTransport(identity(2), ANY_PORT, {}, fail_on_fatal), Random(1)
        )
        running = asyncio.create_task(hanging.run())
        await until(lambda: hanging.dials == 1)
        hanging.dial_now()
        await until(lambda: hanging.dials == 2)
        hanging.dial_now()
        await until(lambda: hanging.dials == 3)
        running.cancel()

    run(scenario())
