"""What an address may have, and how fast new connections come, is asked before a TLS handshake costs anything; a place
is counted once, and given back once, however its connection ends."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from chronik.security.quotas.connections import BURST_SECONDS, PER_ADDRESS, ConnectionLimits
from chronik.server.listener_limits import ListenerLimits
from chronik.tls.settings import REQUIRED
from tests.security.quotas.test_addresses_have_so_many_connections import limits
from tests.server.secured import asked, connected, in_thread, is_refused, run, secured, served
from tests.server.test_connections import Echo, until
from tests.tls.certificates import client_context, settings

HERE = "127.0.0.1"


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "refused: " in record.getMessage()]


def is_closed(silent: socket.socket) -> bool:
    """Returns when the other end has."""
    silent.settimeout(20)
    try:
        while silent.recv(1):  # why, as TLS says it
            pass
        return True
    except ConnectionResetError:
        return True


def counted(limited: ConnectionLimits) -> int:
    return limited._counts.get(HERE, 0)


def test_a_silent_handshake_holds_its_addresses_place_and_the_next_is_refused_without_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        limited = limits(max_connections_per_ip="1")
        async with secured(Echo(), settings(tmp_path), by_address=limited) as server:
            silent = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            with socket.create_connection(server.address) as second:
                assert await in_thread(lambda: is_closed(second)), "it has not even said hello"
            assert counted(limited) == 1
            assert server.securing.handshake_count == 1
            silent.close()
            await until(lambda: not limited._counts)
            assert await in_thread(lambda: served(server.address, client_context(tmp_path))) == b"hello"

    with caplog.at_level(logging.INFO, "chronik"):
        run(scenario)
    (told,) = refusals(caplog)
    assert PER_ADDRESS in told


def test_a_place_is_counted_once_from_the_handshake_to_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        limited = limits(max_connections_per_ip="1")
        async with secured(Echo(), settings(tmp_path), by_address=limited) as server:
            context = client_context(tmp_path)
            for _ in range(2):
                with await in_thread(lambda: connected(server.address, context)) as client:
                    assert await in_thread(lambda: asked(client, b"hello")) == b"hello"
                    assert counted(limited) == 1
                    assert await in_thread(lambda: is_refused(server.address, context))
                    assert counted(limited) == 1
                await until(lambda: not limited._counts)

    run(scenario)


def noted(monkeypatch: pytest.MonkeyPatch, limited: ConnectionLimits) -> list[str]:
    """Returns a list that grows with each place that is given back."""
    left: list[str] = []
    give_back = limited.left

    def note(host: str) -> None:
        left.append(host)
        give_back(host)

    monkeypatch.setattr(limited, "left", note)
    return left


def test_a_handshake_that_fails_gives_its_place_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another client of the same address keeps its own: what is given back twice would be missed there."""

    async def scenario() -> None:
        limited = limits(max_connections_per_ip="2")
        allowed = ListenerLimits(handshake_seconds=1.0)
        tls = settings(tmp_path, client_auth=REQUIRED)
        async with secured(Echo(), tls, allowed, by_address=limited) as server:
            known = client_context(tmp_path, "CN=known")
            with await in_thread(lambda: connected(server.address, known)) as client:
                assert await in_thread(lambda: asked(client, b"first")) == b"first"
                left = noted(monkeypatch, limited)
                for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b""):
                    with socket.create_connection(server.address) as failing:
                        failing.sendall(said)
                        assert await in_thread(lambda: is_closed(failing))
                assert await in_thread(lambda: is_refused(server.address, client_context(tmp_path)))
                await until(lambda: len(left) == 4)
                assert counted(limited) == 1
                assert await in_thread(lambda: asked(client, b"last")) == b"last"
            await until(lambda: not limited._counts)

    run(scenario)


def test_who_finds_no_place_when_its_handshake_is_over_gives_it_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        limited = limits(max_connections_per_ip="2")
        async with secured(Echo(), settings(tmp_path), by_address=limited) as server:
            silent = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            server.listener._connections_max = lambda: 0  # as an operator may change it
            context = client_context(tmp_path)
            with await in_thread(lambda: context.wrap_socket(silent, server_hostname="localhost")) as client:
                assert await in_thread(lambda: is_closed(client))
            await until(lambda: not limited._counts)

    run(scenario)


def test_what_is_refused_for_its_handshakes_does_not_count(tmp_path: Path) -> None:
    async def scenario() -> None:
        limited = limits(max_connection_creation_rate="1")
        async with secured(
            Echo(), settings(tmp_path), ListenerLimits(handshakes_per_address=1), by_address=limited
        ) as server:
            with socket.create_connection(server.address) as begun:
                begun.sendall(b"\x16\x03\x01")
                await until(lambda: any(each.has_spoken for each in server.securing._handshakes.all()))
                for _ in range(2 * int(BURST_SECONDS)):
                    with socket.create_connection(server.address) as refused:
                        assert await in_thread(lambda: is_closed(refused))
                assert counted(limited) == 1
            await until(lambda: not limited._counts)
            began = asyncio.get_running_loop().time()
            assert not limited.come("10.0.0.1", began).wait_seconds

    run(scenario)


def test_what_comes_too_fast_in_all_waits_from_when_it_was_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        rate = 2
        limited = limits(max_connection_creation_rate=str(rate))
        async with secured(Echo(), settings(tmp_path), by_address=limited) as server:
            context = client_context(tmp_path)
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(int(rate * BURST_SECONDS)):
                assert limited.come("10.0.0.1", began) == ("", 0.0)
            with socket.create_connection(server.address) as slow:
                await until(lambda: server.securing.handshake_count == 1)
                client = await in_thread(lambda: context.wrap_socket(slow, server_hostname="localhost"))
                assert await in_thread(lambda: asked(client, b"hello")) == b"hello"
                assert 1 / rate - 0.01 <= loop.time() - began
                client.close()
            await until(lambda: server.listener.connection_count == 0)

    run(scenario)


def test_a_wait_that_is_over_by_the_end_of_the_handshake_is_not_waited_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        rate = 5
        limited = limits(max_connection_creation_rate=str(rate))
        async with secured(Echo(), settings(tmp_path), by_address=limited) as server:
            context = client_context(tmp_path)
            loop = asyncio.get_running_loop()
            began = loop.time()
            for _ in range(int(rate * BURST_SECONDS)):
                limited.come("10.0.0.1", began)
            with socket.create_connection(server.address) as slow:
                await until(lambda: server.securing.handshake_count == 1)
                await until(lambda: loop.time() > began + 1 / rate)
                client = await in_thread(lambda: context.wrap_socket(slow, server_hostname="localhost"))
                await until(lambda: server.listener.connection_count == 1)
                (connection,) = server.listener._connections
                assert not connection.is_throttled
                client.close()

    run(scenario)
