"""Log lines about closed connections contain the node id of the other end if it is known."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from chronik.config import Address
from chronik.peers.frames import FrameKind, encode_frame
from chronik.peers.handshake import DialerHandshake
from tests.peers.helpers import LOCALHOST, connected_client, identity, listening_node, run, until

DURING = "closed during the handshake"
UNAUTHENTICATED = "unauthenticated peer connection from"


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
