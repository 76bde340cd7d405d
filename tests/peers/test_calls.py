from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from chronik.config import Address
from chronik.files import Buffer
from chronik.peers.calls import CallKind, CallRejected, CallTimedOut, PeerUnavailable, TypedCall
from chronik.peers.link import (
    CALLS_BYTES_MAX,
    DISCONNECTED_MESSAGES_MAX,
    MESSAGES_BYTES_MAX,
    MESSAGES_MAX,
    PeerSendQueue,
)
from chronik.peers.transport import PeerTransport
from tests.peers.helpers import (
    ANY_PORT,
    Inbox,
    StuckAcceptor,
    connected_client,
    fail_on_fatal,
    identity,
    listening_node,
    run,
    until,
)

ECHO, SLOW, BROKEN, REFUSING = 100, 101, 102, 103


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[PeerTransport, PeerTransport, asyncio.Event]]:
    """Yield the calling node, the called node, and an event that releases slow responses."""
    go = asyncio.Event()

    async def echo(peer: int, payload: Buffer) -> list[Buffer]:
        return [b"%d:" % peer, payload]

    async def slow(peer: int, payload: Buffer) -> list[Buffer]:
        await go.wait()
        return [payload]

    async def broken(peer: int, payload: Buffer) -> list[Buffer]:
        raise ValueError("a bug")

    async def refusing(peer: int, payload: Buffer) -> list[Buffer]:
        raise CallRejected("not today")

    async with listening_node() as (address, _, server):
        server.calls.register(ECHO, echo)
        server.calls.register(SLOW, slow)
        server.calls.register(BROKEN, broken)
        server.calls.register(REFUSING, refusing)
        async with connected_client(identity(2), address) as (client, _):
            await until(lambda: client.connected_peers == [1])
            yield client, server, go


def test_call_returns_response_of_handler() -> None:
    async def scenario() -> None:
        async with two_nodes() as (client, _, go):
            slow = asyncio.create_task(client.calls.call(1, SLOW, b"later", 10))
            answers = await asyncio.gather(*(client.calls.call(1, ECHO, b"%d" % n, 10) for n in range(100)))
            assert [bytes(answer) for answer in answers] == [b"2:%d" % n for n in range(100)]
            assert not slow.done()  # a slow call does not delay others
            go.set()
            assert bytes(await slow) == b"later"
            large = b"x" * (16 * 1024 * 1024)
            assert bytes(await client.calls.call(1, ECHO, large, 20)) == b"2:" + large

    run(scenario())


def test_rejected_or_unknown_call_raises_with_reason() -> None:
    async def scenario() -> None:
        async with two_nodes() as (client, _, _):
            with pytest.raises(CallRejected, match="not today"):
                await client.calls.call(1, REFUSING, b"", 10)
            with pytest.raises(CallRejected, match="unknown kind of call: 999"):
                await client.calls.call(1, 999, b"", 10)

    run(scenario())


def test_handler_exception_is_logged_and_call_rejected(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with two_nodes() as (client, _, _):
            with pytest.raises(CallRejected, match="see its log"):
                await client.calls.call(1, BROKEN, b"", 10)
            assert "a bug" in caplog.text

    run(scenario())


def test_call_fails_on_timeout_or_lost_connection() -> None:
    async def scenario() -> None:
        async with two_nodes() as (client, server, _):
            with pytest.raises(CallTimedOut):
                await client.calls.call(1, SLOW, b"", 0.05)
            waiting = asyncio.create_task(client.calls.call(1, SLOW, b"", 10))
            await until(lambda: any(server.calls._running_requests.values()))
            await server.stop()
            with pytest.raises(PeerUnavailable) as lost:
                await waiting
            assert lost.value.may_have_arrived
            with pytest.raises(PeerUnavailable) as refused:
                await client.calls.call(1, ECHO, b"", 10)
            assert not refused.value.may_have_arrived
            assert not any(client.calls._pending_calls.values())

    run(scenario())


def test_pending_calls_are_limited_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with two_nodes() as (client, _, go):
            monkeypatch.setattr("chronik.peers.calls.PENDING_CALLS_MAX", 5)
            calls = [asyncio.create_task(client.calls.call(1, SLOW, b"%d" % n, 10)) for n in range(5)]
            await until(lambda: len(client.calls._pending_calls.get(1, ())) == 5)
            with pytest.raises(PeerUnavailable, match="too many pending calls"):
                await client.calls.call(1, ECHO, b"", 10)
            client.calls._pending_calls[1], held = {}, client.calls._pending_calls[1]  # a client without a limit
            with pytest.raises(PeerUnavailable, match="overloaded"):
                await client.calls.call(1, ECHO, b"", 10)
            client.calls._pending_calls[1] = held
            go.set()
            assert await asyncio.gather(*calls) == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario())


class Number(msgspec.Struct, array_like=True):
    number: int


class Double(msgspec.Struct, array_like=True):
    number: int


def test_typed_call_encodes_structs() -> None:
    kind: TypedCall[Number, Double] = TypedCall(200, Number, Double)

    async def double(peer: int, question: Number) -> Double:
        return Double(question.number * 2)

    async def scenario() -> None:
        async with two_nodes() as (client, server, _):
            kind.serve(server.calls, double)
            assert await kind.call(client.calls, 1, Number(21), 10) == Double(42)
            with pytest.raises(CallRejected, match="malformed request"):
                await client.calls.call(1, 200, b"\xc1", 10)

    run(scenario())


# --------------------------------------------------------------------------------------------------------- send queue


def test_full_queue_drops_oldest_messages() -> None:
    queue = PeerSendQueue()
    queue.is_disconnected = False
    assert all(queue.put_message(b"%d" % n) for n in range(MESSAGES_MAX))
    assert not queue.put_message(b"last")
    taken = queue.take_frames(1 << 30)
    assert (taken[0], taken[-1], len(taken)) == (b"1", b"last", MESSAGES_MAX)


def test_queued_messages_are_limited_in_bytes() -> None:
    queue = PeerSendQueue()
    queue.is_disconnected = False
    piece = bytes(1024 * 1024)
    while queue.put_message(piece):
        assert queue.size_bytes <= MESSAGES_BYTES_MAX
    assert MESSAGES_BYTES_MAX - len(piece) < queue.size_bytes <= MESSAGES_BYTES_MAX


def test_few_messages_are_queued_without_connection() -> None:
    queue = PeerSendQueue()
    for number in range(1000):
        queue.put_message(b"%d" % number)
    assert len(queue) == DISCONNECTED_MESSAGES_MAX


def test_full_queue_rejects_calls_and_messages_have_priority() -> None:
    queue = PeerSendQueue()
    queue.is_disconnected = False
    half = bytes(CALLS_BYTES_MAX // 2)
    assert queue.put_call(half)
    assert queue.put_call(half)
    assert not queue.put_call(b"xx")
    queue.put_message(b"heartbeat")
    assert queue.take_frames(10) == [b"heartbeat"]
    assert queue.take_frames(10) == [half]
    assert queue.size_bytes == len(half)


def test_unresponsive_peer_uses_bounded_memory_and_is_reported() -> None:
    """Messages are still accepted, the oldest are dropped, and memory stays bounded."""

    async def scenario() -> None:
        acceptor = StuckAcceptor()
        stuck = await asyncio.get_running_loop().create_server(lambda: acceptor, "127.0.0.1", 0)
        try:
            async with connected_client(identity(2), Address(*stuck.sockets[0].getsockname())) as (client, inbox):
                await until(lambda: client.connected_peers == [1])
                assert not inbox.unreachable
                for _ in range(100):
                    client.send([(1, bytes(1024 * 1024))])
                    assert client.get_queued_bytes(1) <= MESSAGES_BYTES_MAX
                    await asyncio.sleep(0)
                assert 1 in inbox.unreachable
                assert client._links[1]._connection is not None
                assert client._links[1]._connection.unsent_bytes < 4 * 1024 * 1024
        finally:
            stuck.close()
            acceptor.abort()

    run(scenario())


def test_restarted_peer_is_dialed_again() -> None:
    async def scenario() -> None:
        first = PeerTransport(identity(1), ANY_PORT, {}, fail_on_fatal)
        address = await first.bind()
        await first.start(Inbox())
        async with connected_client(identity(2), address) as (client, inbox):
            await until(lambda: client.connected_peers == [1])
            await first.stop()
            await until(lambda: client.connected_peers == [])
            assert 1 in inbox.unreachable
            second = PeerTransport(identity(1), address, {}, fail_on_fatal)
            heard = Inbox()
            await second.start(heard)
            await until(lambda: client.connected_peers == [1])
            client.send([(1, b"a message")])
            await until(lambda: len(heard.messages) == 1)
            await second.stop()

    run(scenario())


def test_moved_peer_is_dialed_at_new_address() -> None:
    async def scenario() -> None:
        async with listening_node() as (old, _, _), connected_client(identity(2), old) as (client, _):
            await until(lambda: client.connected_peers == [1])
            async with listening_node() as (new, heard, _):
                client.set_peer(1, new)
                await until(lambda: client.connected_peers == [1])
                client.send([(1, b"a message")])
                await until(lambda: len(heard.messages) == 1)
                client.remove_peer(1)
                assert client.connected_peers == []

    run(scenario())


def test_call_kind_numbers_are_stable() -> None:
    assert {kind.name: kind.value for kind in CallKind} == {
        "FORWARD": 1,
        "PING": 2,
        "HEARTBEAT": 16,
        "QUORUM": 17,
        "JOIN": 18,
        "FETCH": 19,
        "WAKE": 20,
        "MARKERS": 21,
        "JOIN_TRANSACTION": 22,
        "ADMIN": 23,
        "STATUS": 24,
        "HEALTH": 25,
        "HISTORY": 26,
    }
