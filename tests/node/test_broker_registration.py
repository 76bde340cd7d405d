"""Registration of a broker, its lease, and its log lines.

Broker lease and controller liveness depend on the same heartbeats, so they agree despite network delays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from chronik.clock import Clock, SystemClock
from chronik.controller.controller import Controller
from chronik.controller.heartbeats import BrokerHeartbeat, BrokerHeartbeatResponse
from chronik.controller.liveness import DOWN_SECONDS, BrokerLiveness
from chronik.errors import ConfigError
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult, Broker
from chronik.metadata.stores.raft_store import RaftStore
from chronik.node.registration import HEARTBEAT_SECONDS_MAX, HEARTBEATS_PER_SESSION, BrokerRegistration
from chronik.peers.calls import CallTimedOut
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.outcomes import CommittedPosition
from tests.peers.helpers import run, until
from tests.quorum.cluster import running_cluster
from tests.replication.virtual_loop import VirtualLoop

SESSION = 3.0
BROKER, LEADER, EPOCH = 1, 2, 7
LOOK_SECONDS = 0.05

MESSAGE = "broker 3 supports chronik.version 1 to 1, and the cluster is at 2: start it with a newer version of Chronik"


class World:
    """A broker and the heartbeat tracking of a controller, connected by a simulated network."""

    features: Mapping[str, int] = MappingProxyType({})

    def __init__(self, loop: VirtualLoop, session_seconds: float) -> None:
        self.loop = loop
        self.request_seconds = self.response_seconds = 0.0
        self.is_request_lost = self.is_response_lost = False
        self.liveness = BrokerLiveness(session_seconds)
        self.status = BrokerStatus.ONLINE
        self.heartbeats_in_flight = 0
        clock = cast(Clock, SimpleNamespace(monotonic=loop.time, now_ms=lambda: int(loop.time() * 1000)))
        calls = SimpleNamespace(call=self._call)
        driver = SimpleNamespace(
            leader=LEADER,
            transport=SimpleNamespace(calls=calls),
            wait_applied=self._applied,
            status=SimpleNamespace(term=1),
        )
        store = SimpleNamespace(
            image=self, propose=self._propose, incarnation=bytes(16), format_position=lambda index: ""
        )
        self.registration = BrokerRegistration(
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
        self.heartbeats_in_flight += 1
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(self.request_seconds)
                if self.is_request_lost:
                    await asyncio.sleep(3600)
                arrived_at = self.loop.time()
                beat = msgspec.msgpack.decode(payload, type=BrokerHeartbeat)
                self.liveness.record_heartbeat(beat.broker_id, beat.broker_epoch, arrived_at, beat.answered_at)
                await asyncio.sleep(self.response_seconds)
                if self.is_response_lost:
                    await asyncio.sleep(3600)
        except TimeoutError:
            raise CallTimedOut("not in time") from None
        finally:
            self.heartbeats_in_flight -= 1
        return msgspec.msgpack.encode(BrokerHeartbeatResponse(True, True, 1, arrived_at))

    @property
    def is_online_at_controller(self) -> bool:
        for change in self.liveness.status_changes(self.brokers, self.loop.time(), {}):
            self.status = change.status
        return self.status is BrokerStatus.ONLINE

    async def watch(self, seconds: float) -> list[tuple[float, bool, bool]]:
        """Return samples of (time, whether the broker is not fenced, whether the controller considers it online)."""
        seen, until = [], self.loop.time() + seconds
        while self.loop.time() < until:
            states = (not self.registration.is_fenced, self.is_online_at_controller)
            seen.append((self.loop.time(), *states))
            await asyncio.sleep(LOOK_SECONDS)
        return seen


def run_scenario(scenario: Callable[[World], Coroutine[Any, Any, None]], session_seconds: float = SESSION) -> None:
    loop = VirtualLoop()

    async def run_world() -> None:
        world = World(loop, session_seconds)
        running = loop.create_task(world.registration.run())
        await world.registration.registered.wait()
        await scenario(world)
        running.cancel()

    loop.run(run_world(), [])
    assert not loop.failures


@pytest.mark.parametrize("seconds", [0.3, 0.6, 0.9, 1.2])
def test_slow_network_fences_no_broker(seconds: float) -> None:
    """A round trip takes up to 2.4 s of the session timeout of 3 s, so a recent response is always available."""

    async def scenario(world: World) -> None:
        await world.watch(2 * SESSION)
        world.request_seconds = world.response_seconds = seconds
        assert {(serves, is_online) for _, serves, is_online in await world.watch(20 * SESSION)} == {(True, True)}

    run_scenario(scenario)


def test_unanswered_heartbeats_in_flight_are_limited() -> None:
    async def scenario(world: World) -> None:
        world.is_request_lost = True
        await world.watch(10 * SESSION)
        beats_per_session = max(HEARTBEATS_PER_SESSION, SESSION / HEARTBEAT_SECONDS_MAX)
        assert beats_per_session - 1 <= world.heartbeats_in_flight <= beats_per_session + 1

    run_scenario(scenario)


@pytest.mark.parametrize("session_seconds", [1.0, SESSION, 5.1, 30.0, 600.0])
def test_acknowledged_broker_is_not_replaceable_for_any_session_timeout(
    session_seconds: float,
) -> None:
    async def scenario(world: World) -> None:
        until = world.loop.time() + 20.0
        while world.loop.time() < until:
            assert not world.registration.may_be_replaced
            await asyncio.sleep(LOOK_SECONDS)

    run_scenario(scenario, session_seconds)


@pytest.mark.parametrize("is_answer_lost", [False, True])
def test_broker_fences_itself_before_controller_marks_it_offline(is_answer_lost: bool) -> None:
    """Whichever direction is interrupted, the broker fences itself before the controller does, and both recover."""

    async def scenario(world: World) -> None:
        world.request_seconds = world.response_seconds = 0.4
        await world.watch(2 * SESSION)
        world.is_request_lost, world.is_response_lost = not is_answer_lost, is_answer_lost
        interrupted = await world.watch(5 * SESSION)
        world.is_request_lost = world.is_response_lost = False
        restored = await world.watch(2 * SESSION)
        assert not [
            at
            for at, serves, is_online in interrupted + restored[:-1]
            if serves and not is_online and at < restored[0][0]
        ]
        assert interrupted[-1][1:] == (False, False), "both consider the broker fenced"
        assert restored[-1][1:] == (True, True)

    run_scenario(scenario)


def test_leaving_broker_waits_for_responses_to_last_heartbeats() -> None:
    async def scenario(world: World) -> None:
        world.request_seconds = world.response_seconds = 0.1
        await world.watch(SESSION)
        assert world.heartbeats_in_flight > 0
        await world.registration.stop_heartbeats()
        assert world.heartbeats_in_flight == 0
        await world.watch(SESSION / 2)
        assert world.heartbeats_in_flight == 0

    run_scenario(scenario)


def test_leaving_broker_waits_for_lost_heartbeats_only_briefly() -> None:
    async def scenario(world: World) -> None:
        world.is_request_lost = True
        await world.watch(SESSION)
        began = world.loop.time()
        await world.registration.stop_heartbeats()
        assert world.loop.time() - began < 1.0

    run_scenario(scenario)


def test_lease_expiry_calls_back_once_per_expiry() -> None:
    async def scenario(world: World) -> None:
        ended: list[float] = []
        world.registration.fencing_callbacks.append(lambda: ended.append(world.loop.time()))
        watching = world.loop.create_task(world.registration.watch_lease())
        await world.watch(3 * SESSION)
        assert ended == []
        world.is_response_lost = True
        cut_at = world.loop.time()
        await world.watch(3 * SESSION)
        (at,) = ended
        assert cut_at + SESSION * (1 - 2 / HEARTBEATS_PER_SESSION) <= at <= cut_at + SESSION * 1.02
        world.is_response_lost = False
        await world.watch(SESSION)
        world.is_response_lost = True
        await world.watch(2 * SESSION)
        assert len(ended) == 2
        watching.cancel()

    run_scenario(scenario)


def test_broker_is_replaceable_after_missed_heartbeats() -> None:
    """It must not be earlier: the controller counts from the last heartbeat that it received."""

    async def scenario(world: World) -> None:
        assert not world.registration.may_be_replaced
        await world.watch(SESSION)
        assert not world.registration.may_be_replaced
        world.is_response_lost = True
        heard_last = None
        cut_at = world.loop.time()
        while not world.registration.may_be_replaced:
            heard_last = max(world.liveness._heard.values())
            await asyncio.sleep(LOOK_SECONDS)
        assert cut_at < world.loop.time() <= cut_at + DOWN_SECONDS + LOOK_SECONDS
        assert heard_last is not None
        assert world.liveness.status_changes(world.brokers, world.loop.time() - LOOK_SECONDS, {BROKER: 60.0}) == []

    run_scenario(scenario)


def test_broker_sends_a_heartbeat_when_it_reaches_the_controller_again() -> None:
    """It does not wait for the next heartbeat interval."""

    async def scenario(world: World) -> None:
        world.is_request_lost = True
        await world.watch(2 * SESSION)
        assert world.registration.lease_seconds < 0
        world.is_request_lost = False
        beats = world.heartbeats_in_flight
        world.registration.on_peer_reached(LEADER + 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.heartbeats_in_flight == beats, "a node that is not the controller triggers no heartbeat"
        world.registration.on_peer_reached(LEADER)
        await asyncio.sleep(HEARTBEAT_SECONDS_MAX / 100)
        assert world.registration.lease_seconds > 0

    run_scenario(scenario)


class LateAnswerStore(RaftStore):
    """A store that returns the result of a command after leadership has moved to another node, in a later term."""

    def __init__(self, driver: RaftDriver, successor: int) -> None:
        super().__init__(driver.node_id)
        self._driver = driver
        self._successor = successor
        self.committed: CommittedPosition | None = None

    async def propose(self, *_: Any, **__: Any) -> ApplyResult:
        self.committed = await self._driver.propose(b"a registration")
        await self._driver.transfer_leadership(self._successor)
        await until(lambda: self._driver.leader == self._successor, "the transfer")
        return ApplyResult(value=7, index=self.committed.index)


def test_registration_logs_term_of_its_entry_after_leader_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            successor = next(node_id for node_id in cluster.nodes if node_id != leader.node_id)
            store = LateAnswerStore(leader.driver, successor)
            command = RegisterBroker(leader.node_id, "localhost", 9092, None, bytes(16), bytes(16))
            registration = BrokerRegistration(
                store, leader.driver, cast(Controller, None), SystemClock(), command, session_seconds=3.0
            )
            await registration._register_broker()
            assert store.committed is not None
            assert leader.driver.status.term > store.committed.term
            expected = f"epoch=7 term={store.committed.term} index={store.committed.index}"
            assert f"registered broker {leader.node_id}: {expected}" in caplog.text

    run(scenario())


def test_registration_with_unsupported_level_raises_config_error() -> None:
    proposals = []

    async def propose(command: RegisterBroker) -> Any:
        proposals.append(command)
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, MESSAGE)

    async def scenario() -> None:
        store = cast(RaftStore, SimpleNamespace(propose=propose, incarnation=bytes(16), image=Image()))
        command = RegisterBroker(3, "localhost", 9092, None, bytes(16), bytes(16))
        unused = cast(Any, None)
        await BrokerRegistration(store, unused, unused, SystemClock(), command, 3.0).run()

    with pytest.raises(ConfigError) as stopped:
        asyncio.run(asyncio.wait_for(scenario(), 60))
    assert str(stopped.value) == MESSAGE
    assert [command.broker_id for command in proposals] == [3]
