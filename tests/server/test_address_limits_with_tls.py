"""Connection limits per address are checked before the TLS handshake, and each slot is acquired and released once."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from chronik.security.quotas.connection_limits import BURST_SECONDS, CONNECTIONS_PER_ADDRESS, ConnectionLimits
from chronik.server.connection import ListenerLimits
from chronik.tls.settings import CLIENT_AUTH_REQUIRED
from tests.security.quotas.test_connection_limits import limits
from tests.server.test_connections import Echo, until
from tests.server.tls_server import connect_and_exchange, connect_tls, exchange, in_thread, is_rejected, run, tls_server
from tests.tls.certificates import client_context, server_settings

HERE = "127.0.0.1"


def rejections(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "rejected: " in record.getMessage()]


def is_closed(silent: socket.socket) -> bool:
    """Wait until the other end has closed the connection."""
    silent.settimeout(20)
    try:
        while silent.recv(1):  # the TLS alert
            pass
        return True
    except ConnectionResetError:
        return True


def counted(limited: ConnectionLimits) -> int:
    return limited._counts.get(HERE, 0)


def test_pending_handshake_holds_slot_and_next_connection_is_rejected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        limited = limits(max_connections_per_ip="1")
        async with tls_server(Echo(), server_settings(tmp_path), by_address=limited) as server:
            silent = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            with socket.create_connection(server.address) as second:
                assert await in_thread(lambda: is_closed(second)), "rejected before it sent a ClientHello"
            assert counted(limited) == 1
            assert server.securing.handshake_count == 1
            silent.close()
            await until(lambda: not limited._counts)
            assert await in_thread(lambda: connect_and_exchange(server.address, client_context(tmp_path))) == b"hello"

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    (rejection,) = rejections(caplog)
    assert CONNECTIONS_PER_ADDRESS in rejection


def test_slot_is_counted_once_from_handshake_to_close(tmp_path: Path) -> None:
    async def scenario() -> None:
        limited = limits(max_connections_per_ip="1")
        async with tls_server(Echo(), server_settings(tmp_path), by_address=limited) as server:
            context = client_context(tmp_path)
            for _ in range(2):
                with await in_thread(lambda: connect_tls(server.address, context)) as client:
                    assert await in_thread(lambda: exchange(client, b"hello")) == b"hello"
                    assert counted(limited) == 1
                    assert await in_thread(lambda: is_rejected(server.address, context))
                    assert counted(limited) == 1
                await until(lambda: not limited._counts)

    run(scenario)


def record_releases(monkeypatch: pytest.MonkeyPatch, limited: ConnectionLimits) -> list[str]:
    """Return a list that grows with each released slot."""
    released: list[str] = []
    give_back = limited.release

    def note(host: str) -> None:
        released.append(host)
        give_back(host)

    monkeypatch.setattr(limited, "release", note)
    return released


def test_failed_handshake_releases_its_slot_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client of the same address keeps its slot: a slot released twice would be missing there."""

    async def scenario() -> None:
        limited = limits(max_connections_per_ip="2")
        allowed = ListenerLimits(handshake_seconds=1.0)
        tls = server_settings(tmp_path, client_auth=CLIENT_AUTH_REQUIRED)
        async with tls_server(Echo(), tls, allowed, by_address=limited) as server:
            known = client_context(tmp_path, "CN=known")
            with await in_thread(lambda: connect_tls(server.address, known)) as client:
                assert await in_thread(lambda: exchange(client, b"first")) == b"first"
                released = record_releases(monkeypatch, limited)
                for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b""):
                    with socket.create_connection(server.address) as failing:
                        failing.sendall(sent)
                        assert await in_thread(lambda: is_closed(failing))
                assert await in_thread(lambda: is_rejected(server.address, client_context(tmp_path)))
                await until(lambda: len(released) == 4)
                assert counted(limited) == 1
                assert await in_thread(lambda: exchange(client, b"last")) == b"last"
            await until(lambda: not limited._counts)

    run(scenario)


def test_connection_rejected_after_handshake_releases_its_slot(tmp_path: Path) -> None:
    async def scenario() -> None:
        limited = limits(max_connections_per_ip="2")
        async with tls_server(Echo(), server_settings(tmp_path), by_address=limited) as server:
            silent = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            server.listener._connections_max = lambda: 0  # an operator may change it
            context = client_context(tmp_path)
            with await in_thread(lambda: context.wrap_socket(silent, server_hostname="localhost")) as client:
                assert await in_thread(lambda: is_closed(client))
            await until(lambda: not limited._counts)

    run(scenario)


def test_connection_rejected_by_handshake_limit_does_not_count(tmp_path: Path) -> None:
    async def scenario() -> None:
        limited = limits(max_connection_creation_rate="1")
        async with tls_server(
            Echo(), server_settings(tmp_path), ListenerLimits(handshakes_per_address=1), by_address=limited
        ) as server:
            with socket.create_connection(server.address) as started_handshake:
                started_handshake.sendall(b"\x16\x03\x01")
                await until(lambda: any(each.has_received_bytes for each in server.securing._handshakes.all()))
                for _ in range(2 * int(BURST_SECONDS)):
                    with socket.create_connection(server.address) as rejected:
                        assert await in_thread(lambda: is_closed(rejected))
                assert counted(limited) == 1
            await until(lambda: not limited._counts)
            began = asyncio.get_running_loop().time()
            assert not limited.accept("10.0.0.1", began).throttle_seconds

    run(scenario)


def test_connection_rate_delay_starts_at_accept(tmp_path: Path) -> None:
    async def scenario() -> None:
        rate = 2
        limited = limits(max_connection_creation_rate=str(rate))
        async with tls_server(Echo(), server_settings(tmp_path), by_address=limited) as server:
            context = client_context(tmp_path)
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(int(rate * BURST_SECONDS)):
                assert limited.accept("10.0.0.1", began) == ("", 0.0)
            with socket.create_connection(server.address) as slow:
                await until(lambda: server.securing.handshake_count == 1)
                client = await in_thread(lambda: context.wrap_socket(slow, server_hostname="localhost"))
                assert await in_thread(lambda: exchange(client, b"hello")) == b"hello"
                assert 1 / rate - 0.01 <= loop.time() - began
                client.close()
            await until(lambda: server.listener.connection_count == 0)

    run(scenario)


def test_delay_that_expires_during_handshake_is_not_repeated(tmp_path: Path) -> None:
    async def scenario() -> None:
        rate = 5
        limited = limits(max_connection_creation_rate=str(rate))
        async with tls_server(Echo(), server_settings(tmp_path), by_address=limited) as server:
            context = client_context(tmp_path)
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(int(rate * BURST_SECONDS)):
                limited.accept("10.0.0.1", began)
            with socket.create_connection(server.address) as slow:
                await until(lambda: server.securing.handshake_count == 1)
                await until(lambda: loop.time() > began + 1 / rate)
                client = await in_thread(lambda: context.wrap_socket(slow, server_hostname="localhost"))
                await until(lambda: server.listener.connection_count == 1)
                (connection,) = server.listener._connections
                assert not connection.is_throttled
                client.close()

    run(scenario)
