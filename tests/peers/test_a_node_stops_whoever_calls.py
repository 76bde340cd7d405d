from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from functools import partial

import pytest

from chronik.peers import connection as peer_connection
from chronik.peers.transport import PeerTransport
from tests.peers.talking import ANY_PORT, Inbox, fatal, identity, run

HANDSHAKE_SECONDS = 300.0
STOP_SECONDS_MAX = 60.0
"""Less than a caller has for its handshake here: it is not that deadline that ends the wait."""


def _same(connection: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return connection


def test_callers_that_arrive_while_a_node_stops_do_not_keep_it_from_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop makes the object for a connection at once, and tells it of its socket with the next turn."""

    monkeypatch.setattr(peer_connection, "HANDSHAKE_SECONDS_MAX", HANDSHAKE_SECONDS)

    async def story() -> None:
        server = PeerTransport(identity(1), ANY_PORT, {}, fatal)
        await server.start(Inbox())
        loop = asyncio.get_running_loop()
        early = server._new_connection()
        stopping = loop.create_task(server.stop())
        await asyncio.sleep(0)
        late = server._new_connection()
        with ExitStack() as callers:  # who wait for an answer
            for connection in (early, late):
                ours, theirs = socket.socketpair()
                callers.enter_context(theirs)
                await loop.connect_accepted_socket(partial(_same, connection), ours)
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await stopping

    run(story())
