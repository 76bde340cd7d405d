"""The controller's care for partitions: it elects leaders where there is none, others in place of those that are
drained, and now and then the preferred ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.controller.leader_balance import leaders_to_relieve, partitions_out_of_balance
from chronik.controller.leaderless import Leaderless, leaderless_partitions, may_be_elected_uncleanly
from chronik.metadata.commands.partitions import PARTITIONS_PER_COMMAND_MAX, ElectLeaders, PartitionKey
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.delta import Delta
from chronik.metadata.records import Topic
from chronik.metadata.stores.raft_store import RaftStore
from chronik.wording import counted

logger = logging.getLogger("chronik.controller")

RELIEVED_AT_ONCE_MAX: Final = 100
"""Leaders that are relieved in one look: each by a command of its own."""

LOST: Final = (
    "partition %s is offline, and stays so: the disk of its last in-sync replica is gone. Its replicas are brokers %s. "
    "To go on with what one of them holds, and lose the rest: chronik topics elect-leaders --unclean --topic %s "
    "--partition %d. It elects the first of them that is there; chronik topics reassign puts another first, as the one "
    "that was the last in sync, if its files are back. Or delete the topic."
)


class PartitionUpkeep:
    """Hears of every delta, and works on the Raft leader."""

    def __init__(self, store: RaftStore, configs: ConfigResolver, clock: Clock) -> None:
        self._store = store
        self._configs = configs
        self._clock = clock
        self._is_look_due = True
        self._may_relieve = True
        self._told: set[PartitionKey] = set()
        self._balanced_at = 0.0
        store.subscribe(self._follow)

    def begin(self) -> None:
        """Begins: this node leads from now on."""
        self._is_look_due = self._may_relieve = True
        self._told.clear()
        self._balanced_at = self._clock.monotonic()

    def _follow(self, delta: Delta) -> None:
        """Has all partitions looked at only after something happened to one that has, or had, no leader, or to what may
        give it one: topics that are created or configured one after the other are no reason."""
        if delta.brokers or delta.broker_configs or any(_has_leaderless(*change) for change in delta.topics):
            self._is_look_due = True
        if delta.brokers or delta.topics:
            self._may_relieve = True

    async def look(self) -> None:
        """Mends what can be mended. Raises KafkaError; then the next look tries again."""
        if self._is_look_due:
            self._is_look_due = False
            try:
                await self._mend_leaderless()
            except BaseException:
                self._is_look_due = True
                raise
        if self._may_relieve:
            await self._relieve()
        interval = self._configs.broker_int("leader.imbalance.check.interval.seconds")
        if self._clock.monotonic() - self._balanced_at >= interval:
            self._balanced_at = self._clock.monotonic()
            await self._balance()

    # Partitions without a leader

    async def _mend_leaderless(self) -> None:
        image = self._store.image
        found = list(leaderless_partitions(image))
        electable = [each for each in found if may_be_elected_uncleanly(image, each, self._may_lose_records)]
        for each in electable:
            logger.warning("partition %s gets a leader that may lack records: its topic allows it", each)
        self._tell_of_lost([each for each in found if each.is_lost and each not in electable])
        await self._elect([each.key for each in electable], unclean=True)

    def _may_lose_records(self, topic: Topic) -> bool:
        return self._configs.topic(topic.configs, "unclean.leader.election.enable").strip().lower() == "true"

    def _tell_of_lost(self, lost: Sequence[Leaderless]) -> None:
        """Logs it once: a person has to act, and needs no reminder at every look."""
        for each in lost:
            if each.key not in self._told:
                logger.warning(LOST, each, list(each.partition.replicas), each.topic.name, each.index)
        self._told = {each.key for each in lost}

    # Drained leaders

    async def _relieve(self) -> None:
        """What a command changes is a reason to look again."""
        self._may_relieve = False
        for command in leaders_to_relieve(self._store.image, RELIEVED_AT_ONCE_MAX):
            await self._store.propose(command, only_here=True)

    # Preferred leaders

    async def _balance(self) -> None:
        if not self._configs.broker_flag("auto.leader.rebalance.enable"):
            return
        percent = self._configs.broker_int("leader.imbalance.per.broker.percentage")
        keys = partitions_out_of_balance(self._store.image, percent)
        if keys:
            logger.info("preferred leaders restored: %s", counted(len(keys), "partition"))
            await self._elect(keys, unclean=False)

    async def _elect(self, keys: Sequence[PartitionKey], *, unclean: bool) -> None:
        for first in range(0, len(keys), PARTITIONS_PER_COMMAND_MAX):
            some = tuple(keys[first : first + PARTITIONS_PER_COMMAND_MAX])
            await self._store.propose(ElectLeaders(some, unclean), only_here=True)


def _has_leaderless(old: Topic | None, new: Topic | None) -> bool:
    return any(partition.leader == NO_LEADER for topic in (old, new) if topic for partition in topic.partitions)
