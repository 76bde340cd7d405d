"""Maintenance of partition leaders by the controller: unclean elections, drained leaders and preferred leaders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.controller.leader_balance import find_unbalanced_partitions, replace_drained_leaders
from chronik.controller.leaderless_partitions import (
    LeaderlessPartition,
    can_elect_uncleanly,
    find_leaderless_partitions,
)
from chronik.metadata.commands.partitions import PARTITIONS_PER_COMMAND_MAX, ElectLeaders, PartitionKey
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.delta import Delta
from chronik.metadata.records import Topic
from chronik.metadata.stores.raft_store import RaftStore
from chronik.wording import pluralize

logger = logging.getLogger("chronik.controller")

REPLACED_PER_CHECK_MAX: Final = 100
"""Maximum number of drained leaders that are replaced per check, each by its own command."""

PARTITION_LOST: Final = (
    "partition %s is offline: the disk of its last in-sync replica is lost; replicas=%s. "
    "To elect another replica and lose the records that it lacks, run: chronik topics elect-leaders --unclean "
    "--topic %s --partition %d. This elects the first online replica; to prefer another one, for example the "
    "last in-sync replica after its files were recovered, run chronik topics reassign first. "
    "Otherwise, delete the topic."
)


class PartitionMaintenance:
    """Maintenance of partition leaders on the active controller, triggered by metadata changes."""

    def __init__(self, store: RaftStore, configs: ConfigResolver, clock: Clock) -> None:
        self._store = store
        self._configs = configs
        self._clock = clock
        self._is_check_due = True
        self._is_drain_check_due = True
        self._reported_lost: set[PartitionKey] = set()
        self._balanced_at = 0.0
        store.subscribe(self._on_delta)

    def start(self) -> None:
        """Start a new leadership of this node with a complete check."""
        self._is_check_due = self._is_drain_check_due = True
        self._reported_lost.clear()
        self._balanced_at = self._clock.monotonic()

    def _on_delta(self, delta: Delta) -> None:
        """Schedule a check after a change to brokers, broker configs or partitions without a leader.

        The creation and configuration of topics does not trigger a check of all partitions.
        """
        if delta.brokers or delta.broker_configs or any(_has_leaderless(*change) for change in delta.topics):
            self._is_check_due = True
        if delta.brokers or delta.topics:
            self._is_drain_check_due = True

    async def check(self) -> None:
        """Replace missing, drained and non-preferred leaders. Raises KafkaError; the next check retries."""
        if self._is_check_due:
            self._is_check_due = False
            try:
                await self._elect_missing_leaders()
            except BaseException:
                self._is_check_due = True
                raise
        if self._is_drain_check_due:
            await self._replace_drained_leaders()
        interval = self._configs.broker_int("leader.imbalance.check.interval.seconds")
        if self._clock.monotonic() - self._balanced_at >= interval:
            self._balanced_at = self._clock.monotonic()
            await self._restore_preferred_leaders()

    # -- partitions without a leader

    async def _elect_missing_leaders(self) -> None:
        image = self._store.image
        found = list(find_leaderless_partitions(image))
        electable = [each for each in found if can_elect_uncleanly(image, each, self._allows_unclean_election)]
        for each in electable:
            logger.warning("partition %s: unclean leader election: allowed by the topic; records may be lost", each)
        self._report_lost([each for each in found if each.is_lost and each not in electable])
        await self._elect([each.key for each in electable], unclean=True)

    def _allows_unclean_election(self, topic: Topic) -> bool:
        return self._configs.topic_value(topic.configs, "unclean.leader.election.enable").strip().lower() == "true"

    def _report_lost(self, lost: Sequence[LeaderlessPartition]) -> None:
        """Log each lost partition once, because an operator must act."""
        for each in lost:
            if each.key not in self._reported_lost:
                logger.warning(PARTITION_LOST, each, list(each.partition.replicas), each.topic.name, each.index)
        self._reported_lost = {each.key for each in lost}

    # -- drained leaders

    async def _replace_drained_leaders(self) -> None:
        """Replace drained leaders. The resulting metadata changes schedule the next check."""
        self._is_drain_check_due = False
        for command in replace_drained_leaders(self._store.image, REPLACED_PER_CHECK_MAX):
            await self._store.propose(command, local_only=True)

    # -- preferred leaders

    async def _restore_preferred_leaders(self) -> None:
        if not self._configs.broker_flag("auto.leader.rebalance.enable"):
            return
        percent = self._configs.broker_int("leader.imbalance.per.broker.percentage")
        keys = find_unbalanced_partitions(self._store.image, percent)
        if keys:
            logger.info("preferred leader election: %s", pluralize(len(keys), "partition"))
            await self._elect(keys, unclean=False)

    async def _elect(self, keys: Sequence[PartitionKey], *, unclean: bool) -> None:
        for first in range(0, len(keys), PARTITIONS_PER_COMMAND_MAX):
            batch = tuple(keys[first : first + PARTITIONS_PER_COMMAND_MAX])
            await self._store.propose(ElectLeaders(batch, unclean), local_only=True)


def _has_leaderless(old: Topic | None, new: Topic | None) -> bool:
    return any(partition.leader == NO_LEADER for topic in (old, new) if topic for partition in topic.partitions)
