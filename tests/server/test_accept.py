from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from chronik.config import Address
from chronik.server.listener import ClientListeners
from tests.server.test_connections import DEADLINE_SECONDS, Echo, framed, read_frame

COUNT, ITERATIONS_MAX = 160, 30


async def iterations_until_accepted(count: int) -> int:
    """Return how many event-loop iterations it takes to accept connections that are all in the backlog already."""
    listener = ClientListeners({"PLAINTEXT": Address("127.0.0.1", 0)}, Echo())
    address = (await listener.bind())["PLAINTEXT"]
    await listener.serve()
    clients = [socket.create_connection(address, DEADLINE_SECONDS) for _ in range(count)]
    iterations = 0
    while listener.connection_count < count:
        await asyncio.sleep(0)
        iterations += 1
        assert iterations < 100 * count
    reader, writer = await asyncio.open_connection(*address)
    writer.write(framed(b"and one more"))
    assert await read_frame(reader) == b"and one more"
    writer.close()
    for each in clients:
        each.close()
    await listener.stop()
    return iterations


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_many_waiting_connections_are_accepted_within_few_iterations(loop: object) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        iterations = runner.run(asyncio.wait_for(iterations_until_accepted(COUNT), 3 * DEADLINE_SECONDS))
    assert iterations <= ITERATIONS_MAX


def test_stopped_listener_releases_its_port() -> None:
    async def scenario() -> None:
        first = ClientListeners({"PLAINTEXT": Address("127.0.0.1", 0)}, Echo())
        address = (await first.bind())["PLAINTEXT"]
        await first.serve()
        await first.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, DEADLINE_SECONDS)
        second = ClientListeners({"PLAINTEXT": address}, Echo())
        assert (await second.bind())["PLAINTEXT"] == address
        await second.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), DEADLINE_SECONDS))
