"""A connection over which nothing comes is given up in seconds, from both ends, and made anew as soon as that works."""

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
from chronik.peers import connection as peer_connection
from chronik.peers import link as peer_link
from chronik.peers.connection import SILENT_PINGS_MAX, PeerConnection
from chronik.peers.handshake import AcceptorHandshake, DialerHandshake
from chronik.peers.transport import PeerTransport
from chronik.testing.links import Links
from tests.peers.talking import ANY_PORT, LOCALHOST, Inbox, dialling, fatal, identity, listening, run, until

PING_SECONDS = 0.02
LARGE_BYTES = 1024 * 1024


@pytest.fixture(autouse=True)
def short_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_connection, "PING_SECONDS", PING_SECONDS)
    monkeypatch.setattr(peer_link, "DIAL_AGAIN_SECONDS", PING_SECONDS)


@asynccontextmanager
async def line_to(address: Address) -> AsyncIterator[tuple[Address, Links]]:
    """Where node 2 reaches node 1, as long as the line between them is not cut."""
    links = Links({1: address, 2: address})
    try:
        yield links.address(2, 1), links
    finally:
        links.heal()
        links.close()


@asynccontextmanager
async def slow_line_to(address: Address) -> AsyncIterator[Address]:
    """Carries some 800 kB in a second to node 1, and has room for little; back it is as fast as any."""
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


def test_both_ends_give_up_a_silent_connection_and_are_connected_again_when_the_line_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        caplog.set_level(logging.INFO)
        async with (
            listening() as (address, _, server),
            line_to(address) as (through, line),
            dialling(identity(2), through) as (client, inbox),
        ):
            await until(lambda: client.connected_peers == [1])
            await until(lambda: 2 in server._accepted and server._accepted[2]._is_watched)
            line.cut([(1, 2), (2, 1)])
            await until(lambda: client.connected_peers == [] and 2 not in server._accepted, "giving up")
            assert len(silent_lines(caplog)) == 2, "one line of each end"
            line.heal()
            reached = len(inbox.reached)
            await until(lambda: client.connected_peers == [1], "the line is back")
            await until(lambda: len(inbox.reached) > reached, "and that is told")

    run(scenario())


def test_an_idle_connection_is_not_silent() -> None:
    async def scenario() -> None:
        async with listening() as (address, _, server), dialling(identity(2), address) as (client, _):
            await until(lambda: client.connected_peers == [1] and 2 in server._accepted)
            connection = server._accepted[2]
            looks = count_looks(connection)
            await until(lambda: looks() > 3 * SILENT_PINGS_MAX)
            assert client.connected_peers == [1]
            assert server._accepted[2] is connection

    run(scenario())


def test_a_message_that_takes_many_times_the_silence_that_is_borne_gets_over_a_slow_line() -> None:
    """No ping is answered meanwhile: all are behind it."""

    async def scenario() -> None:
        async with (
            listening() as (address, _, server),
            slow_line_to(address) as through,
            dialling(identity(2), through) as (client, _),
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
            assert asyncio.get_running_loop().time() - began > 3 * PING_SECONDS * SILENT_PINGS_MAX
            assert (bytes(answer), received) == (b"thanks", [LARGE_BYTES])
            assert client._links[1]._connection is connection, "on one connection"

    run(scenario())


def count_looks(connection: PeerConnection) -> Callable[[], int]:
    count, look = [0], connection._look

    def counted() -> None:
        count[0] += 1
        look()

    connection._look = counted  # type: ignore[method-assign]
    return lambda: count[0]


class Nobody:
    def connection_opened(self, connection: PeerConnection) -> None: ...

    def frames_received(self, connection: PeerConnection, frames: object) -> None: ...

    def writing_resumed(self, connection: PeerConnection) -> None: ...

    def connection_closed(self, connection: PeerConnection) -> None: ...


def test_a_node_that_does_not_ping_is_waited_for_as_ever() -> None:
    """Of an earlier version: that it says nothing means nothing."""

    async def scenario() -> None:
        async with listening() as (address, _, server):
            loop = asyncio.get_running_loop()
            _, old = await loop.create_connection(
                lambda: PeerConnection(Nobody(), DialerHandshake(identity(2), 1)), *address
            )
            await until(lambda: 2 in server._accepted)
            looks = count_looks(server._accepted[2])
            await until(lambda: looks() > 3 * SILENT_PINGS_MAX)
            assert 2 in server._accepted
            old.close("done")

    run(scenario())


def test_a_pause_of_our_own_is_nobodys_silence() -> None:
    """Counted in looks: after a stall there is one look, however long it was, and then what has come is read."""

    async def scenario() -> None:
        connection = PeerConnection(Nobody(), AcceptorHandshake(identity(1)))
        connection.pinged()
        for _ in range(SILENT_PINGS_MAX):
            connection._look()
        assert not connection.is_closing
        connection.get_buffer(1)[:1] = b"\0"  # the first byte of whatever it says
        connection.buffer_updated(1)
        for _ in range(SILENT_PINGS_MAX):
            connection._look()
        assert not connection.is_closing
        connection._look()
        assert connection.is_closing

    run(scenario())


def test_a_dial_that_is_lost_does_not_hold_up_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a network heals: the first packet of an earlier dial is repeated late, that of a new one passes."""

    async def scenario() -> None:
        async with listening() as (address, _, _):
            dials = 0
            dial_once = peer_link.PeerLink._dial_once

            async def some_are_lost(link: peer_link.PeerLink) -> PeerConnection:
                nonlocal dials
                dials += 1
                if dials <= 3:
                    await asyncio.sleep(60)
                return await dial_once(link)

            monkeypatch.setattr(peer_link.PeerLink, "_dial_once", some_are_lost)
            async with dialling(identity(2), address) as (client, _):
                await until(lambda: client.connected_peers == [1])
                assert dials >= 4

    run(scenario())


def test_the_dials_under_way_are_bounded_and_end_with_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        under_way = most = 0

        async def lost(link: peer_link.PeerLink) -> PeerConnection:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                await asyncio.sleep(60)
            finally:
                under_way -= 1
            raise AssertionError("not reached")

        monkeypatch.setattr(peer_link.PeerLink, "_dial_once", lost)
        monkeypatch.setattr(peer_link, "DIAL_AGAIN_SECONDS", 0.001)
        with socket.create_server((LOCALHOST, 0)) as nobody:
            client = PeerTransport(identity(2), Address(LOCALHOST, 0), {1: Address(*nobody.getsockname())}, _fatal)
            await client.start(Inbox())
            await until(lambda: most == peer_link.DIALS_MAX)
            await asyncio.sleep(0.02)
            assert most == peer_link.DIALS_MAX
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


def test_link_dials_immediately_when_the_peer_has_dialled_while_other_dials_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer's dial shows that the network has healed; packets of the hanging dials are repeated seconds later."""
    monkeypatch.setattr(peer_link, "DIAL_AGAIN_SECONDS", 3600.0)
    monkeypatch.setattr(peer_link, "HANDSHAKE_SECONDS_MAX", 3600.0)

    async def scenario() -> None:
        hanging = HangingLink(identity(2), 1, ANY_PORT, PeerTransport(identity(2), ANY_PORT, {}, fatal), Random(1))
        running = asyncio.create_task(hanging.run())
        await until(lambda: hanging.dials == 1)
        hanging.dial_now()
        await until(lambda: hanging.dials == 2)
        hanging.dial_now()
        await until(lambda: hanging.dials == 3)
        running.cancel()

    run(scenario())
