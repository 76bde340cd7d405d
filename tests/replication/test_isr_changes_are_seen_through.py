"""A change of an ISR is proposed until it is known what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.partitions import SetPartitionLeader, UpdateISR
from chronik.metadata.records import Result
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.replication.isr_keeper import IsrKeeper

from .rig import FOLLOWER, OTHER, TOPIC_ID, PlayedFollower, Rig

Fate = Callable[[Command], Result]


class Keeping:
    """The keeper of a leader whose follower has left the ISR, caught up, and may join again."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.proposed: list[UpdateISR] = []
        self.fates: list[Fate] = []
        rig.store.propose = self._propose  # type: ignore[method-assign, assignment]
        self._keeper = IsrKeeper(1, rig.store, rig.replicas, rig.configs, rig.clock, lambda: rig.epoch_of(1))

    async def _propose(self, command: Command) -> Result:
        assert isinstance(command, UpdateISR)
        self.proposed.append(command)
        await asyncio.sleep(0.01)
        return (self.fates.pop(0) if self.fates else self.decide)(command)

    def decide(self, command: Command) -> Result:
        result = self.rig.consensus.command(command)
        self.rig.store._apply(1)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    async def begin(self, *, comes_back: bool = True) -> None:
        rig = self.rig
        rig.append()
        await rig.replica().syncs.all_synced()
        await PlayedFollower(rig, OTHER).fetch(rig.at(1, last_epoch=0))
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
        if comes_back:
            rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        assert rig.partition().isr == (1, OTHER)
        assert rig.replica().high_watermark == 1
        asyncio.ensure_future(self._keeper.run())  # noqa: RUF006 - it is ended with the loop
        await asyncio.sleep(0)
        await PlayedFollower(rig).fetch(rig.at(1, last_epoch=0))
        replica, follower = rig.progress[-1]
        self._keeper.progressed(replica, follower)


def unknown(command: Command) -> Result:
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the outcome is unknown")


def test_a_follower_that_has_caught_up_joins() -> None:
    async def story(rig: Rig) -> None:
        keeping = Keeping(rig)
        await keeping.begin()
        await asyncio.sleep(0.1)
        assert rig.partition().isr == (1, FOLLOWER, OTHER)
        change = keeping.proposed[0].changes[0]
        epochs = {member.broker_id: member.broker_epoch for member in change.isr}
        assert epochs[FOLLOWER] == rig.epoch_of(FOLLOWER)
        assert len(keeping.proposed) == 1

    Rig().run(story)


def test_while_the_outcome_is_unknown_the_follower_counts_and_the_change_is_proposed_again() -> None:
    async def story(rig: Rig) -> None:
        keeping = Keeping(rig)
        keeping.fates = [unknown, unknown]
        await keeping.begin()
        rig.append()
        replica = rig.replica()
        await replica.syncs.all_synced()
        await PlayedFollower(rig, OTHER).fetch(rig.at(2, last_epoch=0))
        await asyncio.sleep(0.1)
        assert len(keeping.proposed) == 1
        assert replica.leading is not None
        assert replica.leading.proposed is not None
        assert replica.high_watermark == 1, "the one that may be in sync by now does not have it"
        await asyncio.sleep(1.0)
        assert len(keeping.proposed) == 3
        assert rig.partition().isr == (1, FOLLOWER, OTHER)

    Rig().run(story)


def test_a_change_that_is_refused_lets_the_high_watermark_go_on() -> None:
    async def story(rig: Rig) -> None:
        keeping = Keeping(rig)
        replica = rig.replica()

        def refuse(command: Command) -> Result:
            rig.consensus.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.OFFLINE))
            rig.store._apply(1)
            return keeping.decide(command)

        keeping.fates = [refuse]
        await keeping.begin()
        rig.append()
        await replica.syncs.all_synced()
        await PlayedFollower(rig, OTHER).fetch(rig.at(2, last_epoch=0))
        await asyncio.sleep(0.1)
        assert rig.partition().isr == (1, OTHER)
        assert replica.leading is not None
        assert replica.leading.proposed is None
        assert replica.high_watermark == 2

    Rig().run(story)


def test_a_follower_that_has_restarted_since_it_caught_up_is_not_taken_in() -> None:
    async def story(rig: Rig) -> None:
        keeping = Keeping(rig)

        def restart_first(command: Command) -> Result:
            rig.command(RegisterBroker(FOLLOWER, "host", 9092, None, b"n" * 16, b"another disk".ljust(16)))
            return keeping.decide(command)

        keeping.fates = [restart_first]
        await keeping.begin()
        await asyncio.sleep(0.1)
        assert len(keeping.proposed) == 1
        assert rig.partition().isr == (1, OTHER)

    Rig().run(story)


def test_a_change_is_let_go_of_when_the_term_ends() -> None:
    async def story(rig: Rig) -> None:
        keeping = Keeping(rig)

        def lose(command: Command) -> Result:
            rig.command(SetPartitionLeader(TOPIC_ID, 0, OTHER))
            return unknown(command)

        keeping.fates = [lose]
        await keeping.begin()
        await asyncio.sleep(2.0)
        assert len(keeping.proposed) == 1
        assert rig.partition().leader == OTHER

    Rig().run(story)


def test_a_follower_that_caught_up_while_it_was_taken_for_dead_joins_when_it_is_heard_of_again() -> None:
    async def story(rig: Rig) -> None:
        keeping = Keeping(rig)
        await keeping.begin(comes_back=False)
        await asyncio.sleep(1.0)
        assert not keeping.proposed
        rig.command(UpdateBrokerStatus(FOLLOWER, BrokerStatus.ONLINE))
        await asyncio.sleep(0.1)
        assert rig.partition().isr == (1, FOLLOWER, OTHER)

    Rig().run(story)
