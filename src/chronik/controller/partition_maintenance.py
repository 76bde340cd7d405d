"""Maintenance of partition leaders by the controller: unclean elections, drained leaders and preferred leaders.

When a broker stops, other replicas become leaders and keep the leadership after it returns. Without balancing, a
restarted broker would only follow.

While a member of the ISR of a leaderless partition may return, waiting loses no records, so the controller waits unless
the topic's `unclean.leader.election.enable` is set. After the last in-sync disk is lost, an operator must decide.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.partitions import (
    PARTITIONS_PER_COMMAND_MAX,
    ElectLeaders,
    PartitionKey,
    SetPartitionLeader,
)
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.delta import Delta
from chronik.metadata.elections import elect, elect_unclean_leader
from chronik.metadata.image import Image
from chronik.metadata.names import META_TOPIC, SYSTEM_TOPICS
from chronik.metadata.records import Partition, Topic
from chronik.metadata.stores.raft_store import RaftStore
from chronik.wording import pluralize

logger = logging.getLogger("chronik.controller")

REPLACED_PER_CHECK_MAX: Final = 100
"""Maximum number of partition leaders on drained brokers that one check replaces."""

PARTITION_LOST: Final = (
    "partition %s is offline: the disk of its last in-sync replica is lost; replicas=%s. "
    "To elect another replica and lose the records that it lacks, run: chronik topics elect-leaders --unclean "
    "--topic %s --partition %d. This elects the first online replica; to prefer another one, for example the "
    "last in-sync replica after its files were recovered, run chronik topics reassign first. "
    "Otherwise, delete the topic."
)


def find_unbalanced_partitions(image: Image, imbalance_percent: int) -> list[PartitionKey]:
    """Return the partitions that should be led by their preferred leader again.

    Only brokers that do not lead more than `imbalance_percent` of their preferred partitions are considered. Partitions
    under reassignment are excluded, and so is `__meta`, which the Raft leader leads.
    """
    preferred: Counter[int] = Counter()
    not_leading: dict[int, list[tuple[PartitionKey, bool]]] = defaultdict(list)
    for topic in image.all_topics_by_id.values():
        if topic.name == META_TOPIC:
            continue
        for index, partition in enumerate(topic.partitions):
            broker_id = partition.replicas[0]
            preferred[broker_id] += 1
            if partition.leader != broker_id:
                can_lead = broker_id in partition.isr and not partition.is_reassigning
                not_leading[broker_id].append((PartitionKey(topic.id, index), can_lead))
    return [
        key
        for broker_id, partitions in sorted(not_leading.items())
        if _is_online(image, broker_id) and 100 * len(partitions) > imbalance_percent * preferred[broker_id]
        for key, can_lead in partitions
        if can_lead
    ]


def build_drained_leader_changes(image: Image, count_max: int) -> list[SetPartitionLeader]:
    """Return leader changes that move partition leaderships from drained brokers to in-sync replicas.

    When a broker is drained, it keeps the partitions for which no other replica is in sync at that time.
    """
    found: list[SetPartitionLeader] = []
    drained = {broker.id for broker in image.brokers.values() if broker.status is BrokerStatus.MAINTENANCE}
    for topic in {
        topic.id: topic for broker_id in sorted(drained) for topic in image.topics_on_broker(broker_id)
    }.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader in drained and len(found) < count_max:
                leader = elect(partition, partition.isr, image.brokers)
                if leader not in drained and leader != NO_LEADER:
                    found.append(SetPartitionLeader(topic.id, index, leader, partition.leader_epoch))
    return found


def _is_online(image: Image, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_online


class LeaderlessPartition(msgspec.Struct, frozen=True):
    """A partition that has no leader."""

    topic: Topic
    index: int
    partition: Partition

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic.id, self.index)

    @property
    def is_lost(self) -> bool:
        """Whether the ISR is empty: no remaining replica is known to have all acknowledged records."""
        return not self.partition.isr

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"


def find_leaderless_partitions(image: Image) -> Iterator[LeaderlessPartition]:
    """Yield the partitions without a leader, except those of system topics (see `system_topics`)."""
    for topic in image.leaderless_topics():
        if topic.name in SYSTEM_TOPICS:
            continue
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER:
                yield LeaderlessPartition(topic, index, partition)


def can_elect_uncleanly(image: Image, leaderless: LeaderlessPartition, is_allowed: Callable[[Topic], bool]) -> bool:
    return is_allowed(leaderless.topic) and elect_unclean_leader(leaderless.partition, image.brokers) != NO_LEADER


class PartitionMaintenance:
    """The active controller's replacement of missing, drained and non-preferred partition leaders."""

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
        """Schedule a check of all partitions when this node becomes the controller."""
        self._is_check_due = self._is_drain_check_due = True
        self._reported_lost.clear()
        self._balanced_at = self._clock.monotonic()

    def _on_delta(self, delta: Delta) -> None:
        """Schedule a check after a change to brokers, broker configs or partitions without a leader.

        The creation and configuration of topics does not trigger a check of all partitions.
        """
        if delta.brokers or delta.broker_configs or any(_has_leaderless_partition(*change) for change in delta.topics):
            self._is_check_due = True
        if delta.brokers or delta.topics:
            self._is_drain_check_due = True

    async def check(self) -> None:
        """Replace missing, drained and non-preferred leaders. After a KafkaError, the next check retries."""
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
            logger.warning(
                "partition %s: no in-sync replica online: electing an out-of-sync leader; records may be lost", each
            )
        self._report_lost_partitions([each for each in found if each.is_lost and each not in electable])
        await self._elect_leaders([each.key for each in electable], unclean=True)

    def _allows_unclean_election(self, topic: Topic) -> bool:
        return self._configs.topic_value(topic.configs, "unclean.leader.election.enable").strip().lower() == "true"

    def _report_lost_partitions(self, lost: Sequence[LeaderlessPartition]) -> None:
        """Log a warning, once per partition, for partitions whose ISR is empty, because an operator must act."""
        for each in lost:
            if each.key not in self._reported_lost:
                logger.warning(PARTITION_LOST, each, list(each.partition.replicas), each.topic.name, each.index)
        self._reported_lost = {each.key for each in lost}

    # -- drained leaders

    async def _replace_drained_leaders(self) -> None:
        """Move partition leaderships away from drained brokers."""
        self._is_drain_check_due = False
        for command in build_drained_leader_changes(self._store.image, REPLACED_PER_CHECK_MAX):
            await self._store.propose(command, local_only=True)

    # -- preferred leaders

    async def _restore_preferred_leaders(self) -> None:
        if not self._configs.broker_flag("auto.leader.rebalance.enable"):
            return
        percent = self._configs.broker_int("leader.imbalance.per.broker.percentage")
        keys = find_unbalanced_partitions(self._store.image, percent)
        if keys:
            logger.info("preferred leader election started: %s", pluralize(len(keys), "partition"))
            await self._elect_leaders(keys, unclean=False)

    async def _elect_leaders(self, keys: Sequence[PartitionKey], *, unclean: bool) -> None:
        for first in range(0, len(keys), PARTITIONS_PER_COMMAND_MAX):
            batch = tuple(keys[first : first + PARTITIONS_PER_COMMAND_MAX])
            await self._store.propose(ElectLeaders(batch, unclean), local_only=True)


def _has_leaderless_partition(old: Topic | None, new: Topic | None) -> bool:
    return any(partition.leader == NO_LEADER for topic in (old, new) if topic for partition in topic.partitions)
