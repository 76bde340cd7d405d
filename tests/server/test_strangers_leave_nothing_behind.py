"""Strangers that go away, or are let in, while they wait for their turn or for the end of their connection."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from chronik.config import Address
from chronik.exchange import Dispatch, Peer, Response
from chronik.principals import ANONYMOUS
from chronik.server.listener import Listener
from chronik.server.listener_limits import ListenerLimits
from chronik.turns import STRANGERS_SECONDS_MAX, Turns
from tests.server.test_connections import DEADLINE_SECONDS, MUCH_BYTES, framed, run, until

STRANGERS = 20


class LaterTurns(Turns):
    """Nobody's turn comes until the test says so: there is always a crowd."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        super().__init__(self.soon.append, lambda: 0.0, crowd=0)
        self._is_crowded = True

    def go(self) -> None:
        while self.soon:
            self.soon.pop()()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting) + sum(map(len, self._strangers.values()))


@asynccontextmanager
async def asking(
    dispatch: Dispatch, turns: Turns | None = None, limits: ListenerLimits | None = None
) -> AsyncIterator[tuple[Listener, Address]]:
    """A listener that asks who its clients are."""
    listener = Listener({"ASKS": Address("127.0.0.1", 0)}, dispatch, limits, gated={"ASKS"})
    address = (await listener.bind())["ASKS"]
    listener.turns = turns or listener.turns
    await listener.serve()
    try:
        yield listener, address
    finally:
        await listener.stop()


def test_those_that_go_away_do_not_wait_any_longer() -> None:
    """As those do whose time to say who they are is over. Others come for their places, so that no limit would hold for
    how many of them there are, and whoever comes from the same address would wait for all of them."""

    async def scenario() -> None:
        handled: list[Peer] = []

        def dispatch(frame: bytearray, peer: Peer) -> Response:
            handled.append(peer)
            return None

        turns = LaterTurns()
        async with asking(dispatch, turns) as (listener, address):
            crowd = [socket.create_connection(address, DEADLINE_SECONDS) for _ in range(STRANGERS)]
            for each in crowd:
                each.sendall(framed(b"let me in"))
            await until(lambda: turns.waiting_count == STRANGERS)
            for connection in list(listener._connections):
                connection._transport.abort()
            await until(lambda: not listener.connection_count)
            assert turns.waiting_count == 0
            for each in crowd:
                each.close()
            turns.go()
            assert not handled

    run(scenario)


def test_one_that_is_let_in_after_it_was_closed_is_cut_off_all_the_same() -> None:
    """Who it is may be found out in a thread, for longer than it has time to say so."""

    async def scenario() -> None:
        peers: list[Peer] = []

        def dispatch(frame: bytearray, peer: Peer) -> Response:
            peers.append(peer)
            return [bytes(MUCH_BYTES)]  # which the client does not read

        async with asking(dispatch, limits=ListenerLimits(linger_seconds=0.1)) as (listener, address):
            with socket.create_connection(address, DEADLINE_SECONDS) as stranger:
                stranger.sendall(framed(b"let me in"))
                await until(lambda: bool(peers))
                for connection in listener._connections:
                    connection.close("as asked")
                peers[0].let_in(ANONYMOUS)
                await until(lambda: not listener.connection_count)

    run(scenario)


def test_one_that_sends_ahead_has_no_more_of_a_turn_than_other_strangers() -> None:
    async def scenario() -> None:
        handled = 0

        def dispatch(frame: bytearray, peer: Peer) -> Response:
            nonlocal handled
            handled += 1
            return None

        ticks = itertools.count()
        loop = asyncio.get_running_loop()
        turns = Turns(loop.call_soon, lambda: next(ticks) * STRANGERS_SECONDS_MAX / 2)
        async with asking(dispatch, turns) as (_, address):
            with socket.create_connection(address, DEADLINE_SECONDS) as stranger:
                stranger.sendall(framed(b"who are you?") * 100)
                most = 0
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while handled < 100:
                        before = handled
                        await asyncio.sleep(0)
                        most = max(most, handled - before)
                assert most <= 3

    run(scenario)
