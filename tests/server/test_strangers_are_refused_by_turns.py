"""Hundreds of strangers that are refused at about the same time: the loop tells and closes a few of them in a turn, and
keeps nothing of those that are gone."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from chronik.config import Address
from chronik.exchange import Peer, Pending, Response
from chronik.server import connection
from chronik.server.listener import Listener
from chronik.turns import TURN_SECONDS_MAX, Turns
from tests.server.test_connections import DEADLINE_SECONDS, framed, listening, run, until
from tests.server.test_connections import Echo as Answering

STRANGERS = 100
PER_TURN_MAX = 10


class Refusing:
    """Holds every request until all are refused."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self._held: list[asyncio.Future[Response]] = []

    def __call__(self, frame: bytearray, peer: Peer) -> Pending:
        self.peers.append(peer)
        self._held.append(asyncio.get_running_loop().create_future())
        return Pending(self._held[-1])

    def refuse(self) -> None:
        for peer, answer in zip(self.peers, self._held, strict=True):
            peer.farewell = "as asked"
            answer.set_result([framed(b"no")])


@asynccontextmanager
async def crowd_of_strangers(refusing: Refusing) -> AsyncIterator[tuple[Listener, list[connection.Connection]]]:
    """All of them have asked for something. Whoever asks what time it is takes a fifth of a turn."""
    ticks = itertools.count()
    listener = Listener({"ASKS": Address("127.0.0.1", 0)}, refusing, gated={"ASKS"})
    address = (await listener.bind())["ASKS"]
    listener.turns = Turns(listener.loop.call_soon, lambda: next(ticks) * TURN_SECONDS_MAX / 5)
    await listener.serve()
    crowd = [socket.create_connection(address, DEADLINE_SECONDS) for _ in range(STRANGERS)]
    try:
        for each in crowd:
            each.sendall(framed(b"let me in"))
        await until(lambda: len(refusing.peers) == STRANGERS)
        yield listener, list(listener._connections)
    finally:
        for each in crowd:
            each.close()
        await listener.stop()


async def most_in_a_turn(left: Callable[[], int]) -> int:
    """Returns how many fewer are left after a turn of the loop than before it, at most, until none is."""
    most, before = 0, left()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while before:
            await asyncio.sleep(0)
            now = left()
            most, before = max(most, before - now), now
    return most


def test_a_turn_tells_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FAREWELL_SECONDS", DEADLINE_SECONDS)

    async def scenario() -> None:
        refusing = Refusing()
        async with crowd_of_strangers(refusing) as (_, connections):
            refusing.refuse()
            most = await most_in_a_turn(lambda: sum(bool(each.unanswered()) for each in connections))
            assert most <= PER_TURN_MAX

    run(scenario)


def test_a_turn_closes_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FAREWELL_SECONDS", 0.0)

    async def scenario() -> None:
        refusing = Refusing()
        async with crowd_of_strangers(refusing) as (_, connections):
            refusing.refuse()
            open_still = [each._transport for each in connections]
            most = await most_in_a_turn(lambda: sum(not each.is_closing() for each in open_still))
            assert most <= PER_TURN_MAX

    run(scenario)


def test_one_that_was_closed_is_forgotten_when_its_client_has_read_that() -> None:
    """And not when a client that does not read would be cut off, seconds later: thousands may be closed meanwhile."""

    async def scenario() -> None:
        async with listening(Answering()) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            await until(lambda: listener.connection_count == 1)
            (closed,) = (weakref.ref(each._transport) for each in listener._connections)
            writer.write(framed(b"disconnect"))
            assert await reader.read() == b""
            writer.close()
            await until(lambda: listener.connection_count == 0)
            await asyncio.sleep(0)
            gc.collect()
            assert closed() is None

    run(scenario)
