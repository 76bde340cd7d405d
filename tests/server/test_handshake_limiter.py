"""Limits on concurrent TLS handshakes, in total and per address, and on their duration."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from chronik import limits
from chronik.server.connection import ListenerLimits
from chronik.server.handshake_limiter import HandshakeLimiter
from tests.server.test_connections import Echo, until
from tests.server.tls_server import connect_and_exchange, in_thread, run, tls_server
from tests.tls.certificates import client_context, server_settings


class FakeHandshake:
    def __init__(self, host: str, has_spoken: bool = False) -> None:
        self.host = host
        self.has_received_bytes = has_spoken


def test_listener_handshake_limits_default_to_global_limits() -> None:
    default = ListenerLimits()
    assert default.handshakes == limits.TLS_HANDSHAKES_MAX
    assert default.handshakes_per_address == limits.TLS_HANDSHAKES_PER_ADDRESS_MAX
    assert default.handshake_seconds == limits.TLS_HANDSHAKE_SECONDS_MAX


def test_address_at_its_limit_evicts_its_oldest_silent_handshake() -> None:
    handshakes: HandshakeLimiter[FakeHandshake] = HandshakeLimiter()
    active = FakeHandshake("a", has_spoken=True)
    pending = [active, *(FakeHandshake("a") for _ in range(limits.TLS_HANDSHAKES_PER_ADDRESS_MAX - 1))]
    assert [handshakes.add(handshake) for handshake in pending] == [None] * len(pending)
    assert not handshakes.must_reject("a")
    assert handshakes.add(FakeHandshake("a")) is pending[1]
    assert handshakes.add(FakeHandshake("b")) is None
    assert len(handshakes) == limits.TLS_HANDSHAKES_PER_ADDRESS_MAX + 1


def test_address_with_only_active_handshakes_rejects_new_ones() -> None:
    handshakes: HandshakeLimiter[FakeHandshake] = HandshakeLimiter(per_address_max=2)
    pending = [FakeHandshake("a", has_spoken=True) for _ in range(2)]
    for handshake in pending:
        assert not handshakes.must_reject("a")
        assert handshakes.add(handshake) is None
    assert handshakes.must_reject("a")
    assert not handshakes.must_reject("b")
    handshakes.remove(pending[0])
    handshakes.remove(pending[0])
    assert not handshakes.must_reject("a")
    assert handshakes.add(FakeHandshake("a")) is None


def test_total_limit_evicts_handshake_of_address_with_most() -> None:
    handshakes: HandshakeLimiter[FakeHandshake] = HandshakeLimiter()
    per_address = limits.TLS_HANDSHAKES_PER_ADDRESS_MAX
    busiest = [FakeHandshake("crowd", has_spoken=True) for _ in range(per_address)]
    others = [FakeHandshake(f"other {number % 8}") for number in range(limits.TLS_HANDSHAKES_MAX - per_address)]
    assert [handshakes.add(handshake) for handshake in busiest + others] == [None] * limits.TLS_HANDSHAKES_MAX
    assert len(handshakes) == limits.TLS_HANDSHAKES_MAX
    assert not handshakes.must_reject("late")
    assert handshakes.add(FakeHandshake("late")) is busiest[0]
    assert len(handshakes) == limits.TLS_HANDSHAKES_MAX
    assert set(handshakes.all()) >= set(others)


def test_half_open_handshakes_do_not_block_clients_of_same_address(tmp_path: Path) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with tls_server(echo, server_settings(tmp_path), ListenerLimits(handshakes_per_address=5)) as server:
            half_open = [socket.create_connection(server.address) for _ in range(20)]
            await until(lambda: server.securing.handshake_count == 5)
            assert await in_thread(lambda: connect_and_exchange(server.address, client_context(tmp_path))) == b"hello"
            for each in half_open:
                each.close()
            await until(lambda: server.securing.handshake_count == 0)

    run(scenario)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_handshake_timeout_closes_connection(tmp_path: Path, sent: bytes) -> None:
    async def scenario() -> None:
        async with tls_server(Echo(), server_settings(tmp_path), ListenerLimits(handshake_seconds=0.2)) as server:
            with socket.create_connection(server.address) as slow:
                slow.sendall(sent)
                await until(lambda: server.securing.handshake_count == 1)
                await until(lambda: server.securing.handshake_count == 0)
                slow.settimeout(20)
                assert await in_thread(lambda: slow.recv(100)) == b""

    run(scenario)


def test_shutdown_does_not_wait_for_handshakes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with tls_server(Echo(), server_settings(tmp_path)) as server:
            half_open = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            await server.listener.stop()
            await until(lambda: server.securing.handshake_count == 0)
            half_open.close()

    run(scenario)
