"""The peer transport: when a peer counts as down, log lines about closed connections, and its stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import ExitStack
from functools import partial

import pytest

from chronik.config import Address
from chronik.peers.frames import FrameKind, encode_frame
from chronik.peers.handshake import DialerHandshake
from chronik.peers.link import FAST_REDIAL_DELAY_SECONDS_MAX
from chronik.peers.transport import PeerTransport
from chronik.testing.ports import ReservedPorts
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

DIALS = 5

HANDSHAKE_SECONDS = 300.0
STOP_SECONDS_MAX = 60.0
"""Less than the handshake timeout of this test, so that the stop does not depend on it."""

DURING = "closed during the handshake"
UNAUTHENTICATED = "unauthenticated peer connection from"


def test_peer_is_down_from_first_refused_connection_until_reconnection() -> None:
    async def scenario() -> None:
        ports = ReservedPorts(1)  # no other process can listen there
        where = Address(LOCALHOST, ports.ports[0])
        async with (
            listening_node(where=where) as (address, _, _),
            connected_client(identity(2), address) as (client, inbox),
        ):
            await until(lambda: client.connected_peers == [1])
            assert client.down_seconds(1) == 0
            assert inbox.gone == []
        async with connected_client(identity(2), address) as (client, inbox):
            began = asyncio.get_running_loop().time()
            await until(lambda: len(inbox.gone) >= DIALS)
            took = asyncio.get_running_loop().time() - began
            assert set(inbox.gone) == {1}
            assert 0 < client.down_seconds(1) <= took
            assert client.down_seconds(1) > took / 2, "counted from the first refused connection"
            assert took < 20 * DIALS * FAST_REDIAL_DELAY_SECONDS_MAX
            back = PeerTransport(identity(1), address, {}, fail_on_fatal)
            await back.start(Inbox())
            try:
                await until(lambda: client.connected_peers == [1])
                assert client.down_seconds(1) == 0
            finally:
                await back.stop()
                ports.release()

    run(scenario())


def test_silent_peer_with_listening_port_is_not_down() -> None:
    async def scenario() -> None:
        with socket.create_server((LOCALHOST, 0)) as paused:  # the kernel accepts connections for it
            address = Address(LOCALHOST, paused.getsockname()[1])
            async with connected_client(identity(2), address) as (client, inbox):
                paused.setblocking(False)
                dialled, _ = await asyncio.get_running_loop().sock_accept(paused)
                with dialled:
                    assert client.down_seconds(1) == 0
                    assert inbox.gone == []

    run(scenario())


def test_peer_with_incoming_connection_is_not_down() -> None:
    async def scenario() -> None:
        async with listening_node() as (address, inbox, server):
            ports = ReservedPorts(1)
            server.set_peer(2, Address(LOCALHOST, ports.ports[0]))
            await until(lambda: bool(inbox.gone))
            async with connected_client(identity(2), address) as (client, _):
                await until(lambda: client.connected_peers == [1])
                assert server.down_seconds(2) == 0
                told = len(inbox.gone)
                dials = len(inbox.unreachable)
                await until(lambda: len(inbox.unreachable) > dials + 2)  # the client keeps dialing
                assert len(inbox.gone) == told
            await until(lambda: server.down_seconds(2) > 0)
            ports.release()

    run(scenario())


def test_unknown_node_is_not_down() -> None:
    async def scenario() -> None:
        lone = PeerTransport(identity(1), ANY_PORT, {}, fail_on_fatal)
        assert lone.down_seconds(9) == 0

    run(scenario())


def _same(connection: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return connection


def test_stop_closes_connections_accepted_during_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asyncio creates the protocol immediately and calls `connection_made` in the next event-loop iteration."""
    monkeypatch.setattr("chronik.peers.connection.HANDSHAKE_SECONDS_MAX", HANDSHAKE_SECONDS)

    async def scenario() -> None:
        server = PeerTransport(identity(1), ANY_PORT, {}, fail_on_fatal)
        await server.start(Inbox())
        loop = asyncio.get_running_loop()
        early = server._create_connection()
        stopping = loop.create_task(server.stop())
        await asyncio.sleep(0)
        late = server._create_connection()
        with ExitStack() as callers:  # clients that wait for a response
            for connection in (early, late):
                ours, theirs = socket.socketpair()
                callers.enter_context(theirs)
                await loop.connect_accepted_socket(partial(_same, connection), ours)
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await stopping

    run(scenario())


def test_handshake_timeout_is_logged_with_dialed_node_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel accepts connections for a stopped process, which never answers the handshake."""
    monkeypatch.setattr("chronik.peers.connection.HANDSHAKE_SECONDS_MAX", 0.05)
    caplog.set_level(logging.INFO, "chronik.raft")

    async def scenario() -> None:
        with socket.create_server((LOCALHOST, 0)) as stopped:
            address = Address(LOCALHOST, stopped.getsockname()[1])
            async with connected_client(identity(2), address):
                await until(lambda: DURING in caplog.text)
            expected = f"peer connection to node 1 at {address} {DURING}: handshake not completed within 0 s"
            assert expected in caplog.text
            assert UNAUTHENTICATED not in caplog.text

    run(scenario())


def test_unauthenticated_connection_is_logged_with_claimed_node_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chronik.raft")

    async def scenario() -> None:
        async with listening_node() as (address, _, _):
            reader, writer = await asyncio.open_connection(*address)
            hello = DialerHandshake(identity(2), 1).start()
            writer.write(encode_frame(FrameKind.HANDSHAKE, hello))
            await reader.read(1)
            writer.close()
            await until(lambda: UNAUTHENTICATED in caplog.text)
        assert "closed: closed by the other end; it claimed to be node 2" in caplog.text

    run(scenario())


def test_connection_without_hello_is_logged_with_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chronik.raft")

    async def scenario() -> None:
        async with listening_node() as (address, _, _):
            _, writer = await asyncio.open_connection(*address)
            host, port = writer.get_extra_info("sockname")
            writer.close()
            await until(lambda: UNAUTHENTICATED in caplog.text)
        assert f"{UNAUTHENTICATED} {host}:{port} closed: closed by the other end" in caplog.text

    run(scenario())
