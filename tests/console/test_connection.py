from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from chronik.config import Address
from chronik.console.connection import HttpLimits
from chronik.console.http import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    PARSE_ERROR_CHARACTERS_MAX,
    HttpError,
    is_loopback_host,
    parse_head,
)
from chronik.console.listener import HttpListener
from chronik.console.status_pages import ROWS_PER_CHUNK
from chronik.scheduler import ITERATION_SECONDS_MAX

from .http_harness import DEADLINE_SECONDS, FakeSource, encode_request, serve_console


def test_pipelined_requests_are_answered_in_order() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(encode_request("/healthz") + encode_request("/nowhere") + encode_request("/readyz"))
            assert [(await peer.read_response()).status for _ in range(3)] == [200, 404, 200]

    asyncio.run(scenario())


def test_request_received_byte_by_byte_is_answered() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            peer = await node.connect()
            for byte in encode_request("/healthz"):
                peer.send(bytes([byte]))
                await peer.writer.drain()
                await asyncio.sleep(0)
            assert (await peer.read_response()).status == 200

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
        (encode_request("/healthz", "POST"), 405),
        (encode_request("/healthz", "DELETE"), 405),
        (encode_request("/healthz", "POST", more="Content-Length: 5\r\n") + b"12345", 405),
        (encode_request("/healthz", "POST", more="Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n", 411),
        (encode_request("/healthz", "POST", more=f"Content-Length: {BODY_BYTES_MAX + 1}\r\n"), 413),
        (encode_request("/healthz", "POST", more="Content-Length: " + "9" * 5000 + "\r\n"), 400),
        (encode_request("/healthz", "POST", more="Content-Length: 5\r\nExpect: a miracle\r\n"), 417),
        (encode_request("/healthz", "BREW"), 405),
        (encode_request("/healthz", host="rebound.example"), 421),
        (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", 400),
        (encode_request("/healthz", more="Content-Length: 5\r\nContent-Length: 0\r\n"), 400),
        (encode_request("/healthz", more="Content-Length: 0\r\nContent-Length: 5\r\n"), 400),
        (encode_request("/healthz", more="Content-Length: 5\r\nContent-Length: 5\r\n") + b"12345", 413),
        (encode_request("/healthz", more="Content-Length: -1\r\n"), 400),
        (encode_request("/healthz", more="X: one\n two: three\r\n"), 400),
        (encode_request("/healthz", more="X: one\ntwo: three\r\n"), 400),
        (encode_request("/healthz", more="X: one\rtwo: three\r\n"), 400),
        (encode_request("/healthz", more="X: \x00\r\n"), 400),
        (encode_request("/healthz", "G\tT"), 400),
    ],
)
def test_invalid_request_is_rejected_and_connection_closed(sent: bytes, status: int) -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(sent + encode_request("/healthz"))
            answer = await peer.read_response()
            assert answer.status == status
            assert answer.json["error"]
            assert ("allow" in answer.headers) == (status == 405)
            assert await peer.is_closed(), "the start of the next request is unknown"

    asyncio.run(scenario())


@pytest.mark.parametrize(("size", "status"), [(HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431)])
def test_header_size_limit_is_enforced(size: int, status: int) -> None:
    bare = len(encode_request("/healthz", more="X: \r\n")) - len(b"\r\n\r\n")
    sent = encode_request("/healthz", more=f"X: {'x' * (size - bare)}\r\n")

    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(sent)
            assert (await peer.read_response()).status == status

    asyncio.run(scenario())


SPACES = b" " * 8000
SLOW_HEADS = {
    "line feed after spaces": b"x:" + SPACES + b"\na",
    "control character after spaces": b"x:" + SPACES + b"\x00",
    "letter after spaces": b"x:" + SPACES + b"x",
    "spaces and tabs": b"x:" + b" \t" * 4000,
    "words": b"x:" + b"a " * 4000 + b"\x7f",
    "no colon": b"x" * 8000,
    "many headers": b"x:y\r\n" * 1600 + b"x:y",
    "folded lines": b"x:y\r\n" + b" y\r\n" * 1600 + b" y",
    "many lengths": b"content-length:" + b"1," * 4000 + b"1",
}


@pytest.mark.parametrize("header", SLOW_HEADS.values(), ids=SLOW_HEADS)
def test_malicious_head_is_parsed_quickly(header: bytes) -> None:
    """The slowest head takes 10 ms. With cubic parsing it would take minutes, with quadratic parsing 400 ms."""
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + header
    started_at = time.process_time()
    with contextlib.suppress(HttpError):
        parse_head(head)
    assert len(head) <= HEAD_BYTES_MAX
    assert time.process_time() - started_at < 0.2


def test_parser_error_message_is_truncated() -> None:
    with pytest.raises(HttpError) as rejected:
        parse_head(b"GET /healthz HTTP/1.1\r\n" + b"x" * 8000)
    assert len(str(rejected.value)) == len("not a valid HTTP/1.1 request: ") + PARSE_ERROR_CHARACTERS_MAX + 1


def test_pipelined_requests_are_spread_over_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_readings = itertools.count()
    request_seconds = ITERATION_SECONDS_MAX / 10  # the scheduler reads the clock once per queued request
    monkeypatch.setattr("chronik.scheduler.perf_counter", lambda: next(clock_readings) * request_seconds)
    iteration = 0
    iterations: list[int] = []

    class RecordingSource(FakeSource):
        def unready_reason(self) -> str | None:
            iterations.append(iteration)
            return None

    async def scenario() -> None:
        def tick() -> None:
            nonlocal iteration
            iteration += 1
            loop.call_soon(tick)

        request_count = 300
        loop = asyncio.get_running_loop()
        async with serve_console(RecordingSource()) as node:
            peer = await node.connect()
            loop.call_soon(tick)
            peer.send(encode_request("/readyz") * request_count)
            assert [(await peer.read_response()).status for _ in range(request_count)] == [200] * request_count
        assert max(Counter(iterations).values()) <= 10 + 1  # the last request may overrun the budget

    asyncio.run(scenario())


def rows(count: int) -> list[dict[str, object]]:
    return [{"topic": "t", "partition": number, "offset": 5, "metadata": "x" * 4096} for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_CHUNK, ROWS_PER_CHUNK + 1, 5 * ROWS_PER_CHUNK])
def test_long_page_is_sent_in_chunks(count: int) -> None:
    async def scenario() -> None:
        source = FakeSource()
        source.groups["g"] = {"group": "g", "offsets": rows(count)}
        async with serve_console(source) as node:
            peer = await node.connect()
            for _ in range(2):
                assert (await peer.get("/status/groups/g")).json == source.groups["g"]
            peer.send(encode_request("/status/groups/g", "HEAD") + encode_request("/healthz"))
            assert (await peer.read_response(to_head=True)).status == 200
            assert (await peer.read_response()).body == b"ok\n"
            old = await node.connect()
            old.send(b"GET /status/groups/g HTTP/1.0\r\n\r\n")
            answer = await old.read_response()
            assert answer.json == source.groups["g"]
            assert "content-length" in answer.headers, "HTTP/1.0 has no chunked encoding"

    asyncio.run(scenario())


@pytest.mark.slow
def test_long_page_is_rendered_as_client_reads() -> None:
    rendered = 0

    def counted_rows() -> Iterator[dict[str, object]]:
        nonlocal rendered
        for rendered, row in enumerate(rows(20_000), 1):  # noqa: B007 - read concurrently
            yield row

    async def scenario() -> None:
        source = FakeSource()
        source.groups["g"] = {"group": "g", "offsets": counted_rows()}
        async with serve_console(source) as node:
            slow_reader = await node.connect()
            slow_reader.send(encode_request("/status/groups/g"))
            while rendered < ROWS_PER_CHUNK:
                await asyncio.sleep(0)
            assert (await node.get("/healthz")).status == 200
            assert rendered < 10_000, "socket buffers and one chunk; the page has 80 MB"
            assert len((await slow_reader.read_response()).json["offsets"]) == 20_000

    asyncio.run(scenario())


def test_failing_page_aborts_connection(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[dict[str, object]]:
        yield from rows(ROWS_PER_CHUNK)
        raise RuntimeError("gone")

    async def scenario() -> None:
        source = FakeSource()
        source.groups["g"] = {"group": "g", "offsets": broken()}
        async with serve_console(source) as node:
            peer = await node.connect()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError, ValueError)):
                await peer.get("/status/groups/g")
            assert (await node.get("/healthz")).status == 200

    asyncio.run(scenario())
    assert "http page aborted: rendering failed" in caplog.text


def test_endless_headers_are_rejected() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * HEAD_BYTES_MAX)
            assert (await peer.read_response()).status == 431
            assert await peer.is_closed()

    asyncio.run(scenario())


def test_least_recently_active_connection_is_evicted() -> None:
    async def scenario() -> None:
        limits = HttpLimits(connections=3)
        async with serve_console(FakeSource(), limits) as node:
            peers = [await node.connect() for _ in range(limits.connections)]
            for peer in (peers[1], peers[0], peers[2]):
                assert (await peer.get("/healthz")).status == 200
            new = await node.connect()
            assert (await new.get("/healthz")).status == 200
            assert await peers[1].is_closed()
            for peer in (peers[0], peers[2], new):
                assert (await peer.get("/healthz")).status == 200
            assert node.listener.connection_count == limits.connections

    asyncio.run(scenario())


def test_idle_connection_is_closed_after_timeout() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource(), HttpLimits(idle_seconds_max=0.05)) as node:
            silent, half = await node.connect(), await node.connect()
            half.send(b"GET /healthz HT")
            assert await silent.is_closed()
            assert await half.is_closed()
            assert (await node.get("/healthz")).status == 200

    asyncio.run(scenario())


def test_no_pages_are_rendered_for_client_that_does_not_read() -> None:
    rendered = 0

    class CountingSource(FakeSource):
        def status(self) -> dict[str, object]:
            nonlocal rendered
            rendered += 1
            return {"much": "x" * 1_000_000}

    async def scenario() -> None:
        request_count = 100
        async with serve_console(CountingSource()) as node:
            slow_reader = await node.connect()
            slow_reader.send(encode_request("/status") * request_count)
            await slow_reader.writer.drain()
            while not rendered:
                await asyncio.sleep(0.001)
            assert (await node.get("/healthz")).status == 200
            assert rendered < request_count / 2, "socket buffers and one page"
            for _ in range(request_count):
                assert (await slow_reader.read_response()).status == 200
            assert rendered == request_count

    asyncio.run(scenario())


def test_connection_close_header_is_honored() -> None:
    async def scenario() -> None:
        async with serve_console(FakeSource()) as node:
            peer = await node.connect()
            peer.send(encode_request("/healthz", more="Connection: close\r\n"))
            answer = await peer.read_response()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await peer.is_closed()
            old = await node.connect()
            old.send(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert (await old.read_response()).status == 200
            assert await old.is_closed()

    asyncio.run(scenario())


def test_stop_waits_at_most_linger_time() -> None:
    async def scenario() -> None:
        source = FakeSource()
        source.status_value = {"much": "x" * 20_000_000}
        listener = HttpListener(Address("127.0.0.1", 0), source, HttpLimits(linger_seconds=0.05))
        address = await listener.bind()
        await listener.serve()
        _, slow_reader = await asyncio.open_connection(*address)
        _, idle = await asyncio.open_connection(*address)
        slow_reader.write(encode_request("/status"))
        while listener.connection_count < 2:
            await asyncio.sleep(0.001)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await listener.stop()
            await listener.stop()
        assert listener.connection_count == 0
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection(*address)
        slow_reader.close()
        idle.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:6092", "localhost:6092", "LOCALHOST", "[::1]:6092", "[::1]"])
def test_loopback_host_header_is_accepted(host: str) -> None:
    assert is_loopback_host(host)


@pytest.mark.parametrize("host", ["", "example.com", "localhost.example.com", "10.0.0.1:80", "127.0.0.1.nip.io"])
def test_other_host_header_is_not_loopback(host: str) -> None:
    assert not is_loopback_host(host)
