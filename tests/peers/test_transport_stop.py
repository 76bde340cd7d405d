from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from functools import partial

import pytest

from chronik.peers.transport import PeerTransport
from tests.peers.helpers import ANY_PORT, Inbox, fail_on_fatal, identity, run

HANDSHAKE_SECONDS = 300.0
STOP_SECONDS_MAX = 60.0
"""Less than the handshake timeout of this test, so that the stop does not depend on it."""


def _same(connection: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return connection


def test_stop_closes_connections_accepted_during_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asyncio creates the protocol immediately and calls `connection_made` in the next event-loop iteration."""
    monkeypatch.setattr("chronik.peers.connection.HANDSHAKE_SECONDS_MAX", HANDSHAKE_SECONDS)

    async def scenario() -> None:
        server = PeerTransport(identity(1), ANY_PORT, {}, fail_on_fatal)
        await server.start(Inbox())
        loop = asyncio.get_running_loop()
        early = server._new_connection()
        stopping = loop.create_task(server.stop())
        await asyncio.sleep(0)
        late = server._new_connection()
        with ExitStack() as callers:  # clients that wait for a response
            for connection in (early, late):
                ours, theirs = socket.socketpair()
                callers.enter_context(theirs)
                await loop.connect_accepted_socket(partial(_same, connection), ours)
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await stopping

    run(scenario())
