"""ISR changes are proposed until their outcome is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.partitions import SetPartitionLeader, UpdateISR
from chronik.metadata.records import ApplyResult
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.replication.isr_manager import IsrManager
from tests.replication.rig import FOLLOWER, OTHER, TOPIC_ID, FakeFollower, Rig

Outcome = Callable[[Command], ApplyResult]


class IsrManagerHarness:
    """The ISR manager of a leader whose follower has left the ISR, caught up, and may join again."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.proposed: list[UpdateISR] = []
        self.fates: list[Outcome] = []
        rig.store.propose = self._propose  # type: ignore[method-assign, assignment]
        self._keeper = IsrManager(1, rig.store, rig.replicas, rig.configs, rig.clock, lambda: rig.epoch_of(1))

    async def _propose(self, command: Command) -> ApplyResult:
        assert isinstance(command, UpdateISR)
        self.proposed.append(command)
        await asyncio.sleep(0.01)
        return (self.fates.pop(0) if self.fates else self.decide)(command)

    def decide(self, command: Command) -> ApplyResult:
        result = self.rig.consensus.command(command)
        self.rig.store._apply(1)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    async def start(self, *, is_follower_running: bool = True) -> None:
        rig = self.rig
        rig.append()
        await rig.replica().syncer.wait_until_synced()
        await FakeFollower(rig, OTHER).fetch(rig.at(1, last_epoch=0))
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        if is_follower_running:
            rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        assert rig.partition().isr == (1, OTHER)
        assert rig.replica().high_watermark == 1
        asyncio.ensure_future(self._keeper.run())  # noqa: RUF006 - cancelled with the loop
        await asyncio.sleep(0)
        await FakeFollower(rig).fetch(rig.at(1, last_epoch=0))
        replica, follower = rig.progress[-1]
        self._keeper.on_follower_progress(replica, follower)


def unknown_outcome(command: Command) -> ApplyResult:
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the outcome is unknown")


def test_caught_up_follower_joins_isr() -> None:
    async def scenario(rig: Rig) -> None:
        keeping = IsrManagerHarness(rig)
        await keeping.start()
        await asyncio.sleep(0.1)
        assert rig.partition().isr == (1, FOLLOWER, OTHER)
        change = keeping.proposed[0].changes[0]
        epochs = {member.broker_id: member.broker_epoch for member in change.isr}
        assert epochs[FOLLOWER] == rig.epoch_of(FOLLOWER)
        assert len(keeping.proposed) == 1

    Rig().run(scenario)


def test_change_with_unknown_outcome_is_retried_and_follower_counts() -> None:
    async def scenario(rig: Rig) -> None:
        keeping = IsrManagerHarness(rig)
        keeping.fates = [unknown_outcome, unknown_outcome]
        await keeping.start()
        rig.append()
        replica = rig.replica()
        await replica.syncer.wait_until_synced()
        await FakeFollower(rig, OTHER).fetch(rig.at(2, last_epoch=0))
        await asyncio.sleep(0.1)
        assert len(keeping.proposed) == 1
        assert replica.isr_state is not None
        assert replica.isr_state.proposed is not None
        assert replica.high_watermark == 1, "the follower that may already be in sync lacks the record"
        await asyncio.sleep(1.0)
        assert len(keeping.proposed) == 3
        assert rig.partition().isr == (1, FOLLOWER, OTHER)

    Rig().run(scenario)


def test_high_watermark_advances_after_rejected_change() -> None:
    async def scenario(rig: Rig) -> None:
        keeping = IsrManagerHarness(rig)
        replica = rig.replica()

        def refuse(command: Command) -> ApplyResult:
            rig.consensus.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
            rig.store._apply(1)
            return keeping.decide(command)

        keeping.fates = [refuse]
        await keeping.start()
        rig.append()
        await replica.syncer.wait_until_synced()
        await FakeFollower(rig, OTHER).fetch(rig.at(2, last_epoch=0))
        await asyncio.sleep(0.1)
        assert rig.partition().isr == (1, OTHER)
        assert replica.isr_state is not None
        assert replica.isr_state.proposed is None
        assert replica.high_watermark == 2

    Rig().run(scenario)


def test_restarted_follower_does_not_join_isr() -> None:
    async def scenario(rig: Rig) -> None:
        keeping = IsrManagerHarness(rig)

        def restart_first(command: Command) -> ApplyResult:
            rig.command(RegisterBroker(FOLLOWER, "host", 9092, None, b"n" * 16, b"another disk".ljust(16)))
            return keeping.decide(command)

        keeping.fates = [restart_first]
        await keeping.start()
        await asyncio.sleep(0.1)
        assert len(keeping.proposed) == 1
        assert rig.partition().isr == (1, OTHER)

    Rig().run(scenario)


def test_change_is_abandoned_at_end_of_term() -> None:
    async def scenario(rig: Rig) -> None:
        keeping = IsrManagerHarness(rig)

        def lose(command: Command) -> ApplyResult:
            rig.command(SetPartitionLeader(TOPIC_ID, 0, OTHER))
            return unknown_outcome(command)

        keeping.fates = [lose]
        await keeping.start()
        await asyncio.sleep(2.0)
        assert len(keeping.proposed) == 1
        assert rig.partition().leader == OTHER

    Rig().run(scenario)


def test_follower_caught_up_while_fenced_joins_when_unfenced() -> None:
    async def scenario(rig: Rig) -> None:
        keeping = IsrManagerHarness(rig)
        await keeping.start(is_follower_running=False)
        await asyncio.sleep(1.0)
        assert not keeping.proposed
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        await asyncio.sleep(0.1)
        assert rig.partition().isr == (1, FOLLOWER, OTHER)

    Rig().run(scenario)
