from __future__ import annotations

import asyncio

import pytest

from chronik.config import Address
from chronik.console.http import HEAD_BYTES_MAX, names_this_machine
from chronik.console.listener import HttpLimits, HttpListener

from .serving import DEADLINE_SECONDS, FakeSource, console, request


def test_one_connection_asks_many_times_also_ahead_of_the_answers() -> None:
    async def scenario() -> None:
        async with console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(request("/healthz") + request("/nowhere") + request("/readyz"))
            assert [(await peer.answer()).status for _ in range(3)] == [200, 404, 200]

    asyncio.run(scenario())


def test_a_request_may_come_byte_by_byte() -> None:
    async def scenario() -> None:
        async with console(FakeSource()) as node:
            peer = await node.connect()
            for byte in request("/healthz"):
                peer.send(bytes([byte]))
                await peer.writer.drain()
                await asyncio.sleep(0)
            assert (await peer.answer()).status == 200

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded: yes\r\n\r\n", 400),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (request("/healthz", "POST"), 405),
        (request("/healthz", "DELETE"), 405),
        (request("/healthz", "POST", more="Content-Length: 5\r\n") + b"12345", 413),
        (request("/healthz", "POST", more="Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n", 413),
        (request("/healthz", host="rebound.example"), 421),
        (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", 400),
    ],
)
def test_what_is_not_spoken_is_answered_and_cut_off(sent: bytes, status: int) -> None:
    async def scenario() -> None:
        async with console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(sent + request("/healthz"))
            answer = await peer.answer()
            assert answer.status == status
            assert answer.json["error"]
            assert ("allow" in answer.headers) == (status == 405)
            assert await peer.is_closed(), "nobody knows where the next request begins"

    asyncio.run(scenario())


@pytest.mark.parametrize(("size", "status"), [(HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431)])
def test_headers_may_be_so_long_and_no_longer(size: int, status: int) -> None:
    bare = len(request("/healthz", more="X: \r\n")) - len(b"\r\n\r\n")
    sent = request("/healthz", more=f"X: {'x' * (size - bare)}\r\n")

    async def scenario() -> None:
        async with console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(sent)
            assert (await peer.answer()).status == status

    asyncio.run(scenario())


def test_headers_that_never_end_are_cut_off() -> None:
    async def scenario() -> None:
        async with console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * HEAD_BYTES_MAX)
            assert (await peer.answer()).status == 431
            assert await peer.is_closed()

    asyncio.run(scenario())


def test_the_one_that_was_silent_longest_makes_room_for_the_next() -> None:
    async def scenario() -> None:
        limits = HttpLimits(connections=3)
        async with console(FakeSource(), limits) as node:
            peers = [await node.connect() for _ in range(limits.connections)]
            for peer in (peers[1], peers[0], peers[2]):
                assert (await peer.get("/healthz")).status == 200
            late = await node.connect()
            assert (await late.get("/healthz")).status == 200
            assert await peers[1].is_closed()
            for peer in (peers[0], peers[2], late):
                assert (await peer.get("/healthz")).status == 200
            assert node.listener.connection_count == limits.connections

    asyncio.run(scenario())


def test_a_silent_connection_is_closed_in_time() -> None:
    async def scenario() -> None:
        async with console(FakeSource(), HttpLimits(silence_seconds=0.05)) as node:
            silent, half = await node.connect(), await node.connect()
            half.send(b"GET /healthz HT")
            assert await silent.is_closed()
            assert await half.is_closed()
            assert (await node.get("/healthz")).status == 200

    asyncio.run(scenario())


def test_a_peer_that_does_not_read_gets_no_further_pages_made() -> None:
    made = 0

    class Counting(FakeSource):
        def status(self) -> dict[str, object]:
            nonlocal made
            made += 1
            return {"much": "x" * 1_000_000}

    async def scenario() -> None:
        asked = 100
        async with console(Counting()) as node:
            deaf = await node.connect()
            deaf.send(request("/status") * asked)
            await deaf.writer.drain()
            while not made:
                await asyncio.sleep(0.001)
            assert (await node.get("/healthz")).status == 200
            assert made < asked / 2, "what the sockets hold, and one page above"
            for _ in range(asked):
                assert (await deaf.answer()).status == 200
            assert made == asked

    asyncio.run(scenario())


def test_connection_close_is_kept() -> None:
    async def scenario() -> None:
        async with console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(request("/healthz", more="Connection: close\r\n"))
            answer = await peer.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await peer.is_closed()
            old = await node.connect()
            old.send(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert (await old.answer()).status == 200
            assert await old.is_closed()

    asyncio.run(scenario())


def test_stopping_takes_no_longer_than_peers_may_linger() -> None:
    async def scenario() -> None:
        source = FakeSource()
        source.shown = {"much": "x" * 20_000_000}
        listener = HttpListener(Address("127.0.0.1", 0), source, HttpLimits(linger_seconds=0.05))
        address = await listener.bind()
        await listener.serve()
        _, deaf = await asyncio.open_connection(*address)
        _, idle = await asyncio.open_connection(*address)
        deaf.write(request("/status"))
        while listener.connection_count < 2:
            await asyncio.sleep(0.001)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await listener.stop()
            await listener.stop()
        assert listener.connection_count == 0
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(*address)
        deaf.close()
        idle.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:6092", "localhost:6092", "LOCALHOST", "[::1]:6092", "[::1]"])
def test_a_loopback_console_answers_to_its_own_names(host: str) -> None:
    assert names_this_machine(host)


@pytest.mark.parametrize("host", ["", "example.com", "localhost.example.com", "10.0.0.1:80", "127.0.0.1.nip.io"])
def test_a_loopback_console_answers_to_no_other_name(host: str) -> None:
    assert not names_this_machine(host)
