from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from chronik.config import Address
from chronik.server.listener import Listener
from tests.server.test_connections import DEADLINE_SECONDS, Echo, framed, read_frame

COUNT, TURNS_MAX = 160, 30


async def turns_until_all_have_come(count: int) -> int:
    """Returns how many turns a loop takes to accept connections that were all there before the first."""
    listener = Listener({"PLAINTEXT": Address("127.0.0.1", 0)}, Echo())
    address = (await listener.bind())["PLAINTEXT"]
    await listener.serve()
    came = [socket.create_connection(address, DEADLINE_SECONDS) for _ in range(count)]
    turns = 0
    while listener.connection_count < count:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 100 * count
    reader, writer = await asyncio.open_connection(*address)
    writer.write(framed(b"and one more"))
    assert await read_frame(reader) == b"and one more"
    writer.close()
    for each in came:
        each.close()
    await listener.stop()
    return turns


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_who_comes_behind_many_others_waits_a_few_turns(loop: object) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        turns = runner.run(asyncio.wait_for(turns_until_all_have_come(COUNT), 3 * DEADLINE_SECONDS))
    assert turns <= TURNS_MAX


def test_a_port_is_free_when_its_listener_has_stopped() -> None:
    async def scenario() -> None:
        first = Listener({"PLAINTEXT": Address("127.0.0.1", 0)}, Echo())
        address = (await first.bind())["PLAINTEXT"]
        await first.serve()
        await first.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, DEADLINE_SECONDS)
        again = Listener({"PLAINTEXT": address}, Echo())
        assert (await again.bind())["PLAINTEXT"] == address
        await again.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), DEADLINE_SECONDS))
