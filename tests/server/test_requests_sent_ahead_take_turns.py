from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from chronik.config import Address
from chronik.exchange import Peer, Pending, Response
from chronik.server.listener import ACCEPTED_PER_TURN, Listener
from chronik.turns import STRANGERS_SECONDS_MAX, TURN_SECONDS_MAX, Turns
from tests.server.test_connections import DEADLINE_SECONDS, Echo, framed, listening, read_frame, run, until


class Loop:
    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for each in due:
            each()


class Busy:
    """A connection with so many requests, each of which takes so long."""

    def __init__(self, loop: Loop, turns: Turns, requests: int, seconds: float) -> None:
        self.loop, self.turns, self.requests, self.seconds = loop, turns, requests, seconds

    def go_on(self) -> None:
        while self.requests:
            self.requests -= 1
            self.loop.now += self.seconds
            if self.requests and not self.turns.has_time():
                self.turns.wait(self)
                return


def test_short_requests_share_a_turn_and_its_end_is_kept() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now)
    busy = Busy(loop, turns, 100, TURN_SECONDS_MAX / 10)
    busy.go_on()
    assert busy.requests == 100 - 11, "the first is free, and ten fit"
    loop.turn()
    assert busy.requests == 100 - 11 - 10
    while loop.soon:
        loop.turn()
    assert busy.requests == 0


def test_each_connection_that_waits_gets_a_request_answered_before_any_gets_a_second() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now)
    all_busy = [Busy(loop, turns, 10, 2 * TURN_SECONDS_MAX) for _ in range(5)]
    for busy in all_busy:
        busy.go_on()
    assert [busy.requests for busy in all_busy] == [8, 9, 9, 9, 9], "a turn begins when somebody asks for it"
    for _ in range(5):
        loop.turn()
    assert max(busy.requests for busy in all_busy) - min(busy.requests for busy in all_busy) <= 1
    while loop.soon:
        loop.turn()
    assert sum(busy.requests for busy in all_busy) == 0


def test_nothing_is_left_scheduled_when_nobody_waits() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now)
    assert turns.has_time()
    loop.turn()
    assert loop.soon == []


class Slow(Echo):
    """Takes a thousandth of a second of the loop for each request."""

    def __call__(self, frame: bytearray, peer: Peer) -> Response | Pending:
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        return super().__call__(frame, peer)


def test_somebody_else_is_answered_while_hundreds_of_requests_wait() -> None:
    async def scenario() -> None:
        slow = Slow()
        async with listening(slow) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            other_reader, other_writer = await asyncio.open_connection(*address)
            requests = [b"r%d" % number for number in range(400)]
            writer.write(b"".join(map(framed, requests)))
            while not slow.handled:
                await asyncio.sleep(0)
            other_writer.write(framed(b"other"))
            assert await read_frame(other_reader) == b"other"
            assert slow.handled.index(b"other") < 200, "and not after all of them"
            assert [await read_frame(reader) for _ in requests] == requests
            writer.close()
            other_writer.close()

    run(scenario)


def test_a_connection_that_ends_while_it_waits_for_its_turn_is_forgotten() -> None:
    async def scenario() -> None:
        slow = Slow()
        async with listening(slow) as (listener, address):
            _, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"x") * 2_000)
            while not slow.handled:
                await asyncio.sleep(0)
            writer.transport.abort()
            while listener.connection_count:
                await asyncio.sleep(0)
            handled = len(slow.handled)
            await asyncio.sleep(0.05)
            assert len(slow.handled) == handled

    run(scenario)


STRANGERS = 150


async def handled_before(name: str) -> int:
    """Returns how many requests of strangers from one address are handled before that of a client from another, which
    comes through the listener of that name, and last."""
    slow = Slow()
    addresses = {"ASKS": Address("127.0.0.1", 0), "OPEN": Address("127.0.0.1", 0)}
    listener = Listener(addresses, slow, gated={"ASKS"})
    bound = await listener.bind()
    await listener.serve()
    crowd = [socket.create_connection(bound["ASKS"], 10, ("127.0.0.2", 0)) for _ in range(STRANGERS)]
    other = socket.create_connection(bound[name], 10)
    try:
        await until(lambda: listener.connection_count == STRANGERS + 1)
        for each in crowd:  # all at once, as far as the loop can tell
            each.sendall(framed(b"stranger"))
        other.sendall(framed(b"other"))
        await until(lambda: b"other" in slow.handled)
        before = slow.handled.index(b"other")
        await until(lambda: len(slow.handled) == STRANGERS + 1)
        return before
    finally:
        for each in (*crowd, other):
            each.close()
        await listener.stop()


@pytest.mark.parametrize("name", ["ASKS", "OPEN"])
def test_strangers_of_one_address_wait_for_each_other_and_others_do_not_wait_for_them(name: str) -> None:
    async def scenario() -> None:
        assert await handled_before(name) < STRANGERS / 5

    run(scenario)


def test_strangers_get_their_turns_by_address() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now)
    served: list[str] = []

    class Stranger(Busy):
        def __init__(self, name: str) -> None:
            super().__init__(loop, turns, 1, 2 * TURN_SECONDS_MAX)
            self.name = name

        def go_on(self) -> None:
            super().go_on()
            served.append(self.name)

    assert turns.is_due(Stranger("first"), "one")
    loop.now += 2 * TURN_SECONDS_MAX
    for name, address in (("a", "one"), ("b", "one"), ("c", "one"), ("d", "two")):
        assert not turns.is_due(Stranger(name), address)
    while loop.soon:
        loop.turn()
    assert served == ["a", "d", "b", "c"]


def test_strangers_have_less_of_a_turn_and_who_is_let_in_goes_first() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now)
    busy = Busy(loop, turns, 1_000, TURN_SECONDS_MAX / 10)
    strangers = [Busy(loop, turns, 1, STRANGERS_SECONDS_MAX / 4) for _ in range(20)]
    busy.go_on()
    for each in strangers:
        if turns.is_due(each, "one"):
            each.go_on()
    assert sum(each.requests for each in strangers) == 16
    before = busy.requests
    loop.turn()
    assert before - busy.requests == 10
    assert sum(each.requests for each in strangers) == 12


CROWD = 16


def test_while_a_crowd_is_at_the_door_strangers_get_one_request_answered_in_a_turn() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now, CROWD)
    strangers = [Busy(loop, turns, 1, 0.0) for _ in range(20)]

    def left_after(came: int) -> int:
        for _ in range(came):
            turns.came()
        loop.turn()
        return sum(each.requests for each in strangers)

    left_after(CROWD)
    assert not any(turns.is_due(each, "one") for each in strangers)
    assert [left_after(CROWD), left_after(CROWD)] == [19, 18]
    assert left_after(CROWD - 1) == 0


def test_who_comes_behind_a_crowd_does_not_wait_for_its_requests() -> None:
    async def scenario() -> None:
        slow = Slow()
        listener = Listener({"ASKS": Address("127.0.0.1", 0)}, slow, gated={"ASKS"})
        address = (await listener.bind())["ASKS"]
        await listener.serve()
        turns = 20
        crowd = [socket.create_connection(address, 10, ("127.0.0.2", 0)) for _ in range(turns * ACCEPTED_PER_TURN)]
        other = socket.create_connection(address, 10)  # nobody was accepted so far: the loop has had no turn
        try:
            for each in crowd:
                each.sendall(framed(b"stranger"))
            other.sendall(framed(b"other"))
            await until(lambda: b"other" in slow.handled)
            assert slow.handled.index(b"other") < 2 * turns, "they were about two milliseconds' worth in each turn"
        finally:
            for each in (*crowd, other):
                each.close()
            await listener.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 3 * DEADLINE_SECONDS))
