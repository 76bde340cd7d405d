"""A peer counts as down while its port refuses connections, but not while it is merely silent."""

from __future__ import annotations

import asyncio
import socket

from chronik.config import Address
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
