"""Fair sharing of the event loop between connections over real sockets (scheduler: tests/test_scheduler.py)."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from chronik.config import Address
from chronik.principals import ANONYMOUS, Principal
from chronik.request_reply import ConnectedClient, Dispatch, Reply
from chronik.scheduler import UNAUTHENTICATED_SECONDS_MAX, Scheduler
from chronik.server import connection
from chronik.server.connection import ListenerLimits
from chronik.server.listener import ACCEPTS_PER_ITERATION, ClientListeners
from tests.server.test_connections import DEADLINE_SECONDS, MUCH_BYTES, Echo, framed, listening, read_frame, run, until

UNAUTHENTICATED = 150

REJECTED = 100
PER_ITERATION_MAX = 10

COUNT, ITERATIONS_MAX = 160, 30


class SlowEcho(Echo):
    """A handler that takes a millisecond of the event loop for each request."""

    def __call__(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        return super().__call__(frame, peer)


def test_other_connection_is_served_while_pipelined_requests_are_queued() -> None:
    async def scenario() -> None:
        slow = SlowEcho()
        async with listening(slow) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            other_reader, other_writer = await asyncio.open_connection(*address)
            requests = [b"r%d" % number for number in range(400)]
            writer.write(b"".join(map(framed, requests)))
            while not slow.handled:
                await asyncio.sleep(0)
            other_writer.write(framed(b"other"))
            assert await read_frame(other_reader) == b"other"
            assert slow.handled.index(b"other") < 200, "it is handled before the queue is empty"
            assert [await read_frame(reader) for _ in requests] == requests
            writer.close()
            other_writer.close()

    run(scenario)


def test_queued_connection_that_closes_is_withdrawn() -> None:
    async def scenario() -> None:
        slow = SlowEcho()
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


async def handled_before(name: str) -> int:
    """Return how many requests of unauthenticated clients at one address are handled before that of a client at another
    address, which arrives last, through the listener of that name.
    """
    slow = SlowEcho()
    addresses = {"ASKS": Address("127.0.0.1", 0), "OPEN": Address("127.0.0.1", 0)}
    listener = ClientListeners(addresses, slow, sasl_listeners={"ASKS"})
    bound = await listener.bind()
    await listener.serve()
    crowd = [socket.create_connection(bound["ASKS"], 10, ("127.0.0.2", 0)) for _ in range(UNAUTHENTICATED)]
    other = socket.create_connection(bound[name], 10)
    try:
        await until(lambda: listener.connection_count == UNAUTHENTICATED + 1)
        for each in crowd:  # within one event-loop iteration
            each.sendall(framed(b"unauthenticated"))
        other.sendall(framed(b"other"))
        await until(lambda: b"other" in slow.handled)
        before = slow.handled.index(b"other")
        await until(lambda: len(slow.handled) == UNAUTHENTICATED + 1)
        return before
    finally:
        for each in (*crowd, other):
            each.close()
        await listener.stop()


@pytest.mark.parametrize("name", ["ASKS", "OPEN"])
def test_unauthenticated_clients_of_one_address_do_not_delay_other_addresses(name: str) -> None:
    async def scenario() -> None:
        assert await handled_before(name) < UNAUTHENTICATED / 5

    run(scenario)


def test_connection_after_connection_flood_does_not_wait_for_its_requests() -> None:
    async def scenario() -> None:
        slow = SlowEcho()
        listener = ClientListeners({"ASKS": Address("127.0.0.1", 0)}, slow, sasl_listeners={"ASKS"})
        address = (await listener.bind())["ASKS"]
        await listener.serve()
        iterations = 20
        crowd = [
            socket.create_connection(address, 10, ("127.0.0.2", 0)) for _ in range(iterations * ACCEPTS_PER_ITERATION)
        ]
        other = socket.create_connection(address, 10)  # the loop has not accepted any yet
        try:
            for each in crowd:
                each.sendall(framed(b"unauthenticated"))
            other.sendall(framed(b"other"))
            await until(lambda: b"other" in slow.handled)
            assert slow.handled.index(b"other") < 2 * iterations, "two milliseconds' worth of requests per iteration"
        finally:
            for each in (*crowd, other):
                each.close()
            await listener.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 3 * DEADLINE_SECONDS))


class RejectingHandler:
    """A handler that holds every request until all are rejected."""

    def __init__(self) -> None:
        self.peers: list[ConnectedClient] = []
        self._held: list[Reply[Any]] = []

    def __call__(self, frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
        self.peers.append(peer)
        self._held.append(Reply())
        return self._held[-1]

    def reject_all(self) -> None:
        for peer, answer in zip(self.peers, self._held, strict=True):
            peer.close_reason = "rejected"
            answer.complete([framed(b"no")])


@asynccontextmanager
async def unauthenticated_clients(
    handler: RejectingHandler,
) -> AsyncIterator[tuple[ClientListeners, list[connection.ClientConnection]]]:
    """Connect clients that have each sent a request. Reading the clock takes a fifth of the unauthenticated budget."""
    ticks = itertools.count()
    scheduler = Scheduler(clock=lambda: next(ticks) * UNAUTHENTICATED_SECONDS_MAX / 5)
    listener = ClientListeners({"ASKS": Address("127.0.0.1", 0)}, handler, sasl_listeners={"ASKS"}, scheduler=scheduler)
    address = (await listener.bind())["ASKS"]
    await listener.serve()
    crowd = [socket.create_connection(address, DEADLINE_SECONDS) for _ in range(REJECTED)]
    try:
        for each in crowd:
            each.sendall(framed(b"let me in"))
        await until(lambda: len(handler.peers) == REJECTED)
        yield listener, list(listener._connections)
    finally:
        for each in crowd:
            each.close()
        await listener.stop()


async def largest_decrease_per_iteration(left: Callable[[], int]) -> int:
    """Return the largest decrease of `left` in one event-loop iteration, until it is 0."""
    most, before = 0, left()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while before:
            await asyncio.sleep(0)
            now = left()
            most, before = max(most, before - now), now
    return most


def test_rejections_of_unauthenticated_clients_are_sent_a_few_per_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSE_DELAY_SECONDS", DEADLINE_SECONDS)

    async def scenario() -> None:
        handler = RejectingHandler()
        async with unauthenticated_clients(handler) as (_, connections):
            handler.reject_all()
            most = await largest_decrease_per_iteration(lambda: sum(bool(each._replies) for each in connections))
            assert most <= PER_ITERATION_MAX

    run(scenario)


def test_rejected_connections_are_closed_a_few_per_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLOSE_DELAY_SECONDS", 0.0)

    async def scenario() -> None:
        handler = RejectingHandler()
        async with unauthenticated_clients(handler) as (_, connections):
            handler.reject_all()
            transports = [each._transport for each in connections]
            most = await largest_decrease_per_iteration(lambda: sum(not each.is_closing() for each in transports))
            assert most <= PER_ITERATION_MAX

    run(scenario)


def test_closed_connection_is_freed_when_client_has_read_eof() -> None:
    """A client that does not read is given seconds, and thousands of connections may be closed in that time."""

    async def scenario() -> None:
        async with listening(Echo()) as (listener, address):
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


@asynccontextmanager
async def authenticating_listener(
    dispatch: Dispatch, scheduler: Scheduler | None = None, limits: ListenerLimits | None = None
) -> AsyncIterator[tuple[ClientListeners, Address]]:
    """Start a listener that requires authentication."""
    listener = ClientListeners(
        {"ASKS": Address("127.0.0.1", 0)}, dispatch, limits, sasl_listeners={"ASKS"}, scheduler=scheduler
    )
    address = (await listener.bind())["ASKS"]
    await listener.serve()
    try:
        yield listener, address
    finally:
        await listener.stop()


def test_closed_unauthenticated_connections_are_removed_from_scheduler() -> None:
    """Other connections reuse their slots, so the queue would be unbounded, and clients of the same address would wait
    for connections that were closed.
    """

    async def scenario() -> None:
        handled: list[ConnectedClient] = []

        def dispatch(frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
            handled.append(peer)
            return Reply.from_frame(None)

        soon: list[Callable[[], None]] = []
        scheduler = Scheduler(soon.append, accepted_max=0)
        scheduler._is_crowded = True  # every request is queued
        async with authenticating_listener(dispatch, scheduler) as (listener, address):
            crowd = [socket.create_connection(address, DEADLINE_SECONDS) for _ in range(20)]
            for each in crowd:
                each.sendall(framed(b"let me in"))
            await until(lambda: sum(each.is_queued for each in listener._connections) == 20)
            for open_connection in list(listener._connections):
                open_connection._transport.abort()
            await until(lambda: not listener.connection_count)
            assert scheduler.queued_account_count == 0
            assert scheduler.account_count == 0
            for each in crowd:
                each.close()
            for callback in list(soon):
                callback()
            assert not handled

    run(scenario)


def test_connection_that_authenticates_after_close_is_aborted() -> None:
    """A thread may check its credentials for longer than the authentication timeout."""

    async def scenario() -> None:
        peers: list[ConnectedClient] = []

        def dispatch(frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
            peers.append(peer)
            return Reply.from_frame([bytes(MUCH_BYTES)])  # which the client does not read

        async with authenticating_listener(dispatch, limits=ListenerLimits(linger_seconds=0.1)) as (listener, address):
            with socket.create_connection(address, DEADLINE_SECONDS) as client:
                client.sendall(framed(b"let me in"))
                await until(lambda: bool(peers))
                for connection in listener._connections:
                    connection.close("closed by the test")
                peers[0].set_authenticated(ANONYMOUS)
                await until(lambda: not listener.connection_count)

    run(scenario)


def test_pipelining_gives_unauthenticated_client_no_advantage() -> None:
    async def scenario() -> None:
        handled = 0

        def dispatch(frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
            nonlocal handled
            handled += 1
            return Reply.from_frame(None)

        ticks = itertools.count()
        scheduler = Scheduler(clock=lambda: next(ticks) * UNAUTHENTICATED_SECONDS_MAX / 2)
        async with authenticating_listener(dispatch, scheduler) as (_, address):
            with socket.create_connection(address, DEADLINE_SECONDS) as client:
                client.sendall(framed(b"who are you?") * 100)
                most = 0
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while handled < 100:
                        before = handled
                        await asyncio.sleep(0)
                        most = max(most, handled - before)
                assert most <= 3

    run(scenario)


def test_received_requests_are_answered_on_shutdown() -> None:
    async def scenario() -> None:
        slow = SlowEcho()
        async with listening(slow) as (listener, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(framed(b"request") * 40)
            await until(lambda: bool(slow.handled))
            await listener.stop()
            for _ in range(40):
                assert await read_frame(reader) == b"request"
            writer.close()

    run(scenario)


def test_disconnected_authenticated_client_is_removed_from_scheduler() -> None:
    async def scenario() -> None:
        def dispatch(frame: bytearray, peer: ConnectedClient) -> Reply[Any]:
            peer.set_authenticated(Principal("User", "alice"))
            end = time.perf_counter() + UNAUTHENTICATED_SECONDS_MAX
            while time.perf_counter() < end:
                pass
            return Reply.from_frame([framed(bytes(frame))])

        scheduler = Scheduler()
        async with authenticating_listener(dispatch, scheduler) as (listener, address):
            clients = [socket.create_connection(address, DEADLINE_SECONDS) for _ in range(20)]
            for client in clients:
                client.sendall(framed(b"let me in") * 10)
            await until(lambda: any(each.client.is_authenticated for each in listener._connections))
            for open_connection in list(listener._connections):
                open_connection._transport.abort()
            await until(lambda: not listener.connection_count)
            assert scheduler.account_count == 0
            assert scheduler.queued_account_count == 0
            for client in clients:
                client.close()

    run(scenario)


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
