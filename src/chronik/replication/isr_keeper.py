"""What leaders want their ISRs to be, proposed to the cluster: many partitions in one command.

A change is proposed until its outcome is known. One that is given up without knowing could still come into force
later, when the high watermark has moved on without the follower that it brings in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from chronik.broker.in_sync import Follower, InSync
from chronik.broker.replica import Replica
from chronik.broker.replicas import REPLICAS_PER_TURN, Replicas
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import (
    IsrChange,
    IsrMember,
    PartitionKey,
    ReportLostRecords,
    SetPartitionLeader,
    UpdateISR,
)
from chronik.metadata.delta import Change, Delta
from chronik.metadata.records import Broker, Partition
from chronik.metadata.stores.store import MetadataStore
from chronik.news import News
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.replication")

CHANGES_PER_COMMAND_MAX: Final = 200
"""Changes applied in one turn of the loop, on every node, at some 40 µs each: a returning node causes thousands."""

RETRY_SECONDS: Final = 0.2
"""The pause between two attempts at a proposal whose outcome is unknown, or that was refused."""

LOOKS_PER_LAG: Final = 4
"""How often to look: a lagging follower is found too late by at most a quarter of the time that it may lag."""

LOGGED_MAX: Final = 3
"""How many partitions of one command are named in the node's log: a node that comes back changes hundreds."""

DECIDED: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.INVALID_REQUEST)
"""Errors that say for certain that nothing was changed, and will not be."""


class _Proposal(msgspec.Struct):
    replica: Replica
    leading: InSync
    change: IsrChange
    is_doubtful: bool = False
    """Whether an attempt at it ended without an answer: that one may still be applied."""


class IsrKeeper:
    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        replicas: Replicas,
        configs: ConfigResolver,
        clock: Clock,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._replicas = replicas
        self._configs = configs
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._to_look_at: dict[Replica, None] = {}
        self._is_all_to_look_at = False
        self._news = News()
        store.subscribe(self._follow)
        replicas.damage_listeners.append(self._look_at)

    def _follow(self, delta: Delta) -> None:
        """Looks at followers that are heard from again: one that caught up while it was taken for dead may join, and
        need not say again that it has everything."""
        came = [change.new.id for change in delta.brokers if change.new is not None and _has_come(change)]
        if any(map(self._store.image.replica_count, came)):
            self._is_all_to_look_at = True
            self._news.tell()

    def progressed(self, replica: Replica, follower: Follower) -> None:
        leading = replica.leading
        if leading is None or leading.proposed is not None:
            return
        if leading.may_join(follower, replica.high_watermark) or leading.has_lost_something(
            follower, replica.high_watermark
        ):
            self._look_at(replica)

    def _look_at(self, replica: Replica) -> None:
        self._to_look_at[replica] = None
        self._news.tell()

    async def run(self) -> None:
        looked_at, heard = self._clock.monotonic(), 0
        while True:
            interval = self._lag_seconds_max / LOOKS_PER_LAG
            await self._news.since(heard, max(looked_at + interval - self._clock.monotonic(), 0.01))
            heard = self._news.count
            replicas = list(self._to_look_at)
            if self._is_all_to_look_at or self._clock.monotonic() - looked_at >= interval:
                looked_at = self._clock.monotonic()
                replicas = list(self._replicas)
            self._is_all_to_look_at = False
            self._to_look_at.clear()
            await self._mend(replicas)

    @property
    def _lag_seconds_max(self) -> float:
        return self._configs.broker_int("replica.lag.time.max.ms") / 1000

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._store.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    async def _mend(self, replicas: Sequence[Replica]) -> None:
        proposals: list[_Proposal] = []
        damaged: list[Replica] = []
        for first in range(0, len(replicas), REPLICAS_PER_TURN):
            if first:
                await asyncio.sleep(0)
            some = replicas[first : first + REPLICAS_PER_TURN]
            proposals += self._proposals(some)
            damaged += filter(_is_damaged, some)
        for replica in filter(_was_elected_without_its_log, damaged):
            await self._pass_on(replica)
        await self._report_lost([replica for replica in damaged if self._has_to_leave(replica)])
        for first in range(0, len(proposals), CHANGES_PER_COMMAND_MAX):
            await self._agree(proposals[first : first + CHANGES_PER_COMMAND_MAX])
        for proposal in proposals:
            self._look_at(proposal.replica)  # followers that came up meanwhile

    def _has_to_leave(self, replica: Replica) -> bool:
        """Whether this disk has lost records that others in sync still have: one of them has to lead, and the others
        must not count on it. Not if they are all away, and it still has some: then those are served."""
        if not replica.is_in_isr or not _is_damaged(replica) or _was_elected_without_its_log(replica):
            return False
        partition = self._own_partition(replica)
        if partition is None:
            return False
        if replica.log.is_lost or not replica.leads:
            return len(partition.replicas) > 1
        return any(self._is_alive(member) for member in partition.isr if member != self._node_id)

    def _own_partition(self, replica: Replica) -> Partition | None:
        """Returns None when the image has moved it to other nodes already: replicas follow bit by bit."""
        topic = self._store.image.held_topics.get(replica.topic_id)
        partition = None if topic is None else topic.partitions[replica.index]
        return partition if partition is not None and self._node_id in partition.replicas else None

    async def _pass_on(self, replica: Replica) -> None:
        """Passes the lead on: an operator wants a leader, whatever it lacks, and this one lacks everything. Those after
        it in the order of the replicas may have more; the last of them begins anew."""
        partition = self._own_partition(replica)
        if partition is None:
            return
        behind = partition.replicas[partition.replicas.index(self._node_id) + 1 :]
        heir = next(filter(self._is_alive, behind), None)
        try:
            if heir is None:
                logger.warning("%r begins anew at offset %d: no replica has its records", replica, replica.begin_anew())
            else:
                key = replica.topic_id, replica.index
                await self._store.propose(SetPartitionLeader(*key, heir, replica.leader_epoch, unclean=True))
                logger.warning("%r: nothing of it is here, broker %d leads instead", replica, heir)
        except KafkaError as error:
            logger.info("%r, of which nothing is here, is not passed on yet: %s", replica, error)

    async def _report_lost(self, damaged: Sequence[Replica]) -> None:
        for first in range(0, len(damaged), CHANGES_PER_COMMAND_MAX):
            some = damaged[first : first + CHANGES_PER_COMMAND_MAX]
            keys = tuple(PartitionKey(replica.topic_id, replica.index) for replica in some)
            try:
                result = await self._store.propose(ReportLostRecords(self._node_id, self._broker_epoch(), keys))
            except KafkaError as error:
                logger.info("%d partitions of which this disk has lost records are not left yet: %s", len(keys), error)
                await asyncio.sleep(RETRY_SECONDS)
                for replica in some:
                    self._look_at(replica)
                continue
            logger.error("%s: left to others, for this disk has lost records (index %d)", list(some), result.index)

    def _proposals(self, replicas: Sequence[Replica]) -> Iterator[_Proposal]:
        now, lag_seconds_max = self._clock.monotonic(), self._lag_seconds_max
        for replica in replicas:
            leading, log = replica.leading, replica.opened_log
            if leading is None or log is None or log.is_lost:  # a replica that has lost its log does not judge others
                continue
            isr = leading.change(replica.high_watermark, log.log_end_offset, now, lag_seconds_max, self._is_alive)
            if isr is not None:
                leading.propose(isr)
                yield _Proposal(replica, leading, self._change(replica, leading, isr))

    def _change(self, replica: Replica, leading: InSync, isr: tuple[IsrMember, ...]) -> IsrChange:
        return IsrChange(replica.topic_id, replica.index, leading.leader_epoch, leading.partition_epoch, isr)

    async def _agree(self, proposals: Sequence[_Proposal]) -> None:
        while proposals := [each for each in proposals if _is_open(each)]:
            changes = tuple(each.change for each in proposals)
            try:
                result = await self._store.propose(UpdateISR(self._node_id, self._broker_epoch(), changes))
            except KafkaError as error:
                logger.info("%d changes of ISRs are not decided: %s", len(proposals), error)
                for proposal in proposals:
                    if error.code in DECIDED:
                        self._refused(proposal, str(error))
                    else:
                        proposal.is_doubtful = True
                await asyncio.sleep(RETRY_SECONDS)
                continue
            failures = {failure.item: failure.message for failure in result.failures}
            for item, message in failures.items():
                self._refused(proposals[item], message)
            _log_agreed([each for item, each in enumerate(proposals) if item not in failures], result.index)
            if failures:
                await asyncio.sleep(RETRY_SECONDS)

    def _refused(self, proposal: _Proposal, reason: str) -> None:
        """Gives the change up, unless an earlier attempt may still be under way somewhere. Then the ISR is proposed as
        it is: that raises the partition's epoch, and whatever was proposed before can never be applied."""
        logger.debug("%r: the ISR stays as it is: %s", proposal.replica, reason)
        if not _is_open(proposal):
            return
        if not proposal.is_doubtful:
            proposal.replica.isr_change_refused()
            return
        leading = proposal.leading
        unchanged = tuple(IsrMember(member, NO_EPOCH) for member in leading.isr)
        proposal.change = self._change(proposal.replica, leading, unchanged)


def _has_come(change: Change[Broker]) -> bool:
    was_away = change.old is None or change.old.fenced
    return was_away and change.new is not None and not change.new.fenced


def _is_damaged(replica: Replica) -> bool:
    log = replica.opened_log
    return log is not None and log.missing_from is not None and not replica.abandoned


def _was_elected_without_its_log(replica: Replica) -> bool:
    return replica.leads and replica.was_out_of_isr and replica.log.is_lost


def _is_open(proposal: _Proposal) -> bool:
    """Whether it still matters: the partition has not changed since."""
    leading = proposal.leading
    return (
        proposal.replica.leading is leading
        and leading.proposed is not None
        and leading.partition_epoch == proposal.change.partition_epoch
    )


def _log_agreed(proposals: Sequence[_Proposal], index: int) -> None:
    for proposal in proposals[:LOGGED_MAX]:
        isr = [member.broker_id for member in proposal.change.isr]
        logger.info("%r: ISR changed isr=%s index=%d", proposal.replica, isr, index)
    if len(proposals) > LOGGED_MAX:
        logger.info("%d more partitions: ISR changed index=%d", len(proposals) - LOGGED_MAX, index)
