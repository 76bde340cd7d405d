"""TLS handshakes that do not come to an end: how many there may be, in all and from one address, and for how long."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from chronik import limits
from chronik.server.handshakes import Handshakes
from chronik.server.listener_limits import ListenerLimits
from tests.server.secured import in_thread, run, secured, served
from tests.server.test_connections import Echo, until
from tests.tls.certificates import client_context, settings


class One:
    def __init__(self, host: str, has_spoken: bool = False) -> None:
        self.host = host
        self.has_spoken = has_spoken


def test_a_listener_keeps_the_limits_unless_it_is_told_otherwise() -> None:
    default = ListenerLimits()
    assert default.handshakes == limits.TLS_HANDSHAKES_MAX
    assert default.handshakes_per_address == limits.TLS_HANDSHAKES_PER_ADDRESS_MAX
    assert default.handshake_seconds == limits.TLS_HANDSHAKE_SECONDS_MAX


def test_an_address_has_its_share_and_the_next_pushes_out_one_that_is_silent() -> None:
    handshakes: Handshakes[One] = Handshakes()
    spoken = One("a", has_spoken=True)
    ones = [spoken, *(One("a") for _ in range(limits.TLS_HANDSHAKES_PER_ADDRESS_MAX - 1))]
    assert [handshakes.begin(one) for one in ones] == [None] * len(ones)
    assert not handshakes.refuses("a")
    assert handshakes.begin(One("a")) is ones[1]
    assert handshakes.begin(One("b")) is None
    assert len(handshakes) == limits.TLS_HANDSHAKES_PER_ADDRESS_MAX + 1


def test_those_that_have_spoken_come_to_an_end_and_the_next_is_refused() -> None:
    handshakes: Handshakes[One] = Handshakes(per_address_max=2)
    ones = [One("a", has_spoken=True) for _ in range(2)]
    for one in ones:
        assert not handshakes.refuses("a")
        assert handshakes.begin(one) is None
    assert handshakes.refuses("a")
    assert not handshakes.refuses("b")
    handshakes.end(ones[0])
    handshakes.end(ones[0])
    assert not handshakes.refuses("a")
    assert handshakes.begin(One("a")) is None


def test_when_there_is_no_room_the_address_with_most_gives_one_up() -> None:
    handshakes: Handshakes[One] = Handshakes()
    share = limits.TLS_HANDSHAKES_PER_ADDRESS_MAX
    crowd = [One("crowd", has_spoken=True) for _ in range(share)]
    others = [One(f"other {number % 8}") for number in range(limits.TLS_HANDSHAKES_MAX - share)]
    assert [handshakes.begin(one) for one in crowd + others] == [None] * limits.TLS_HANDSHAKES_MAX
    assert len(handshakes) == limits.TLS_HANDSHAKES_MAX
    assert not handshakes.refuses("late")
    assert handshakes.begin(One("late")) is crowd[0]
    assert len(handshakes) == limits.TLS_HANDSHAKES_MAX
    assert set(handshakes.all()) >= set(others)


def test_half_open_handshakes_of_an_address_do_not_keep_its_clients_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        echo = Echo()
        async with secured(echo, settings(tmp_path), ListenerLimits(handshakes_per_address=5)) as server:
            half_open = [socket.create_connection(server.address) for _ in range(20)]
            await until(lambda: server.securing.handshake_count == 5)
            assert await in_thread(lambda: served(server.address, client_context(tmp_path))) == b"hello"
            for each in half_open:
                each.close()
            await until(lambda: server.securing.handshake_count == 0)

    run(scenario)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_a_handshake_that_takes_too_long_is_ended(tmp_path: Path, sent: bytes) -> None:
    async def scenario() -> None:
        async with secured(Echo(), settings(tmp_path), ListenerLimits(handshake_seconds=0.2)) as server:
            with socket.create_connection(server.address) as slow:
                slow.sendall(sent)
                await until(lambda: server.securing.handshake_count == 1)
                await until(lambda: server.securing.handshake_count == 0)
                slow.settimeout(20)
                assert await in_thread(lambda: slow.recv(100)) == b""

    run(scenario)


def test_a_node_that_stops_does_not_wait_for_handshakes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with secured(Echo(), settings(tmp_path)) as server:
            half_open = socket.create_connection(server.address)
            await until(lambda: server.securing.handshake_count == 1)
            await server.listener.stop()
            await until(lambda: server.securing.handshake_count == 0)
            half_open.close()

    run(scenario)
