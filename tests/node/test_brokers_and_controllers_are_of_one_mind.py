"""A broker's lease and the controller's patience hang on the same heartbeats, however long those are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from chronik.clock import Clock
from chronik.controller.controller import Controller
from chronik.controller.heartbeats import BrokerHeartbeat, HeartbeatAnswer
from chronik.controller.liveness import GONE_SECONDS, Liveness
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker
from chronik.metadata.records import Broker
from chronik.metadata.stores.raft_store import RaftStore
from chronik.node.registration import HEARTBEAT_SECONDS_MAX, HEARTBEATS_PER_SESSION, Registration
from chronik.peers.calls import CallTimedOut
from chronik.quorum.driver import RaftDriver
from tests.replication.virtual_loop import VirtualLoop

SESSION = 3.0
BROKER, LEADER, EPOCH = 1, 2, 7
LOOK_SECONDS = 0.05


class World:
    """One broker, and a controller as far as it counts heartbeats, at the two ends of a line."""

    features: Mapping[str, int] = MappingProxyType({})

    def __init__(self, loop: VirtualLoop, session_seconds: float) -> None:
        self.loop = loop
        self.there_seconds = self.back_seconds = 0.0
        self.is_lost_there = self.is_lost_back = False
        self.liveness = Liveness(session_seconds)
        self.status = BrokerStatus.ONLINE
        self.beats_under_way = 0
        clock = cast(Clock, SimpleNamespace(monotonic=loop.time, now_ms=lambda: int(loop.time() * 1000)))
        calls = SimpleNamespace(call=self._call)
        driver = SimpleNamespace(
            leader=LEADER,
            transport=SimpleNamespace(calls=calls),
            wait_applied=self._applied,
            status=SimpleNamespace(term=1),
        )
        store = SimpleNamespace(image=self, propose=self._propose, incarnation=bytes(16), position=lambda index: "")
        self.registration = Registration(
            cast(RaftStore, store),
            cast(RaftDriver, driver),
            cast(Controller, None),
            clock,
            RegisterBroker(BROKER, "localhost", 9092, None, bytes(16), bytes(16), is_durable=True),
            session_seconds,
        )

    @property
    def brokers(self) -> dict[int, Broker]:
        return {BROKER: Broker(BROKER, "localhost", 9092, None, self.status, EPOCH, bytes(16), bytes(16))}

    async def _propose(self, command: object) -> object:
        return SimpleNamespace(value=EPOCH, index=1)

    async def _applied(self, index: int, timeout: float) -> None:
        return None

    async def _call(self, peer: int, kind: int, payload: bytes, timeout: float) -> bytes:
        self.beats_under_way += 1
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(self.there_seconds)
                if self.is_lost_there:
                    await asyncio.sleep(3600)
                arrived_at = self.loop.time()
                beat = msgspec.msgpack.decode(payload, type=BrokerHeartbeat)
                self.liveness.heard(beat.broker_id, beat.broker_epoch, arrived_at, beat.answered_at)
                await asyncio.sleep(self.back_seconds)
                if self.is_lost_back:
                    await asyncio.sleep(3600)
        except TimeoutError:
            raise CallTimedOut("not in time") from None
        finally:
            self.beats_under_way -= 1
        return msgspec.msgpack.encode(HeartbeatAnswer(True, True, 1, arrived_at))

    @property
    def is_online_for_the_controller(self) -> bool:
        for change in self.liveness.changes(self.brokers, self.loop.time(), {}):
            self.status = change.status
        return self.status is BrokerStatus.ONLINE

    async def watch(self, seconds: float) -> list[tuple[float, bool, bool]]:
        """(time, whether the broker believes to be well, whether the controller does), again and again."""
        seen, until = [], self.loop.time() + seconds
        while self.loop.time() < until:
            minds = (not self.registration.is_fenced, self.is_online_for_the_controller)
            seen.append((self.loop.time(), *minds))
            await asyncio.sleep(LOOK_SECONDS)
        return seen


def tell(story: Callable[[World], Coroutine[Any, Any, None]], session_seconds: float = SESSION) -> None:
    loop = VirtualLoop()

    async def whole() -> None:
        world = World(loop, session_seconds)
        running = loop.create_task(world.registration.run())
        await world.registration.registered.wait()
        await story(world)
        running.cancel()

    loop.run(whole(), [])
    assert not loop.failures


@pytest.mark.parametrize("seconds", [0.3, 0.6, 0.9, 1.2])
def test_a_line_that_becomes_slow_leaves_both_of_one_mind(seconds: float) -> None:
    """An answer takes up to 2.4 s of a session of 3: there is always one that is new enough."""

    async def story(world: World) -> None:
        await world.watch(2 * SESSION)
        world.there_seconds = world.back_seconds = seconds
        assert {(serves, is_online) for _, serves, is_online in await world.watch(20 * SESSION)} == {(True, True)}

    tell(story)


def test_heartbeats_that_are_not_answered_are_bounded() -> None:
    async def story(world: World) -> None:
        world.is_lost_there = True
        await world.watch(10 * SESSION)
        beats_per_session = max(HEARTBEATS_PER_SESSION, SESSION / HEARTBEAT_SECONDS_MAX)
        assert beats_per_session - 1 <= world.beats_under_way <= beats_per_session + 1

    tell(story)


@pytest.mark.parametrize("session_seconds", [1.0, SESSION, 5.1, 30.0, 600.0])
def test_a_broker_that_is_answered_knows_that_nobody_replaces_it_however_long_a_session_is(
    session_seconds: float,
) -> None:
    async def story(world: World) -> None:
        until = world.loop.time() + 20.0
        while world.loop.time() < until:
            assert not world.registration.may_be_replaced
            await asyncio.sleep(LOOK_SECONDS)

    tell(story, session_seconds)


@pytest.mark.parametrize("is_answer_lost", [False, True])
def test_the_controller_never_gives_up_a_broker_that_still_serves(is_answer_lost: bool) -> None:
    """Whichever way is cut: first the broker finds out, then the controller; and both find back."""

    async def story(world: World) -> None:
        world.there_seconds = world.back_seconds = 0.4
        await world.watch(2 * SESSION)
        world.is_lost_there, world.is_lost_back = not is_answer_lost, is_answer_lost
        cut = await world.watch(5 * SESSION)
        world.is_lost_there = world.is_lost_back = False
        healed = await world.watch(2 * SESSION)
        assert not [at for at, serves, is_online in cut + healed[:-1] if serves and not is_online and at < healed[0][0]]
        assert cut[-1][1:] == (False, False), "a broker that serves nobody is not led to"
        assert healed[-1][1:] == (True, True)

    tell(story)


def test_a_broker_leaves_when_its_last_heartbeats_have_been_answered() -> None:
    async def story(world: World) -> None:
        world.there_seconds = world.back_seconds = 0.1
        await world.watch(SESSION)
        assert world.beats_under_way > 0
        await world.registration.leave()
        assert world.beats_under_way == 0
        await world.watch(SESSION / 2)
        assert world.beats_under_way == 0

    tell(story)


def test_a_broker_does_not_wait_long_for_answers_before_it_leaves() -> None:
    async def story(world: World) -> None:
        world.is_lost_there = True
        await world.watch(SESSION)
        began = world.loop.time()
        await world.registration.leave()
        assert world.loop.time() - began < 1.0

    tell(story)


def test_the_end_of_a_lease_is_told_once_and_in_time() -> None:
    async def story(world: World) -> None:
        ended: list[float] = []
        world.registration.when_fenced.append(lambda: ended.append(world.loop.time()))
        watching = world.loop.create_task(world.registration.watch_lease())
        await world.watch(3 * SESSION)
        assert ended == []
        world.is_lost_back = True
        cut_at = world.loop.time()
        await world.watch(3 * SESSION)
        (at,) = ended
        assert cut_at + SESSION * (1 - 2 / HEARTBEATS_PER_SESSION) <= at <= cut_at + SESSION * 1.02
        world.is_lost_back = False
        await world.watch(SESSION)
        world.is_lost_back = True
        await world.watch(2 * SESSION)
        assert len(ended) == 2
        watching.cancel()

    tell(story)


def test_a_broker_knows_when_it_may_have_been_replaced_for_a_port_that_refuses() -> None:
    """Not before it is so: the controller has to have missed it for as long, from when it was last heard."""

    async def story(world: World) -> None:
        assert not world.registration.may_be_replaced
        await world.watch(SESSION)
        assert not world.registration.may_be_replaced
        world.is_lost_back = True
        heard_last = None
        cut_at = world.loop.time()
        while not world.registration.may_be_replaced:
            heard_last = max(world.liveness._heard.values())
            await asyncio.sleep(LOOK_SECONDS)
        assert cut_at < world.loop.time() <= cut_at + GONE_SECONDS + LOOK_SECONDS
        assert heard_last is not None
        assert world.liveness.changes(world.brokers, world.loop.time() - LOOK_SECONDS, {BROKER: 60.0}) == []

    tell(story)


def test_broker_sends_a_heartbeat_when_it_reaches_the_controller_again() -> None:
    """It does not wait for the end of the heartbeat interval."""

    async def story(world: World) -> None:
        world.is_lost_there = True
        await world.watch(2 * SESSION)
        assert world.registration.lease_seconds < 0
        world.is_lost_there = False
        beats = world.beats_under_way
        world.registration.controller_reached(LEADER + 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.beats_under_way == beats, "another node is not the controller"
        world.registration.controller_reached(LEADER)
        await asyncio.sleep(HEARTBEAT_SECONDS_MAX / 100)
        assert world.registration.lease_seconds > 0

    tell(story)
