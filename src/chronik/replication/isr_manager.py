"""Proposal of ISR changes by partition leaders, many partitions per command.

A change is proposed until its outcome is known. An abandoned change with an unknown outcome could take effect later,
when the high watermark has advanced without the follower that it adds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from chronik.broker.isr_state import Follower, IsrState
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import REPLICAS_PER_ITERATION, ReplicaManager
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
from chronik.metadata.delta import Delta, RecordChange
from chronik.metadata.records import Broker, Partition
from chronik.metadata.stores.store import MetadataStore
from chronik.notifier import Notifier
from chronik.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("chronik.replication")

CHANGES_PER_COMMAND_MAX: Final = 200
"""Maximum number of ISR changes per metadata command, which every node applies in one event-loop iteration at 40 µs
each."""

RETRY_SECONDS: Final = 0.2
"""Delay in seconds before an ISR change is proposed again after a rejection or an unknown outcome."""

CHECKS_PER_LAG: Final = 4
"""Number of checks per `replica.lag.time.max.ms`. The detection of a lagging follower is delayed by at most a quarter
of it."""

LOGGED_PARTITIONS_MAX: Final = 3
"""Maximum number of partitions logged per command. The restart of a node changes hundreds of partitions."""

FINAL_ERRORS: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.INVALID_REQUEST)
"""Error codes that guarantee that the command was not and will not be applied."""


class _IsrProposal(msgspec.Struct):
    """A pending proposal to change the ISR of one partition."""

    replica: Replica
    leading: IsrState
    change: IsrChange
    is_doubtful: bool = False
    """Whether an earlier attempt to propose the change had an unknown outcome and may still be applied."""


class IsrManager:
    """A job that maintains the ISRs of the partitions that this node leads."""

    def __init__(
        self,
        node_id: int,
        store: MetadataStore,
        replicas: ReplicaManager,
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
        self._replicas_to_check: dict[Replica, None] = {}
        self._must_check_all = False
        self._changes = Notifier()
        store.subscribe(self._on_delta)
        replicas.damage_listeners.append(self._schedule_check)

    def _on_delta(self, delta: Delta) -> None:
        """Check all replicas after a broker is unfenced, because its replicas that have caught up may join the ISR."""
        unfenced = [change.new.id for change in delta.brokers if change.new is not None and _was_unfenced(change)]
        if any(map(self._store.image.replica_count, unfenced)):
            self._must_check_all = True
            self._changes.notify()

    def on_follower_progress(self, replica: Replica, follower: Follower) -> None:
        leading = replica.isr_state
        if leading is None or leading.proposed is not None:
            return
        if leading.can_join_isr(follower, replica.high_watermark) or leading.has_lost_records(
            follower, replica.high_watermark
        ):
            self._schedule_check(replica)

    def _schedule_check(self, replica: Replica) -> None:
        self._replicas_to_check[replica] = None
        self._changes.notify()

    async def run(self) -> None:
        last_full_check, seen_changes = self._clock.monotonic(), 0
        while True:
            interval = self._lag_seconds_max / CHECKS_PER_LAG
            await self._changes.wait(seen_changes, max(last_full_check + interval - self._clock.monotonic(), 0.01))
            seen_changes = self._changes.generation
            replicas = list(self._replicas_to_check)
            if self._must_check_all or self._clock.monotonic() - last_full_check >= interval:
                last_full_check = self._clock.monotonic()
                replicas = list(self._replicas)
            self._must_check_all = False
            self._replicas_to_check.clear()
            await self._update_isrs(replicas)

    @property
    def _lag_seconds_max(self) -> float:
        return self._configs.broker_int("replica.lag.time.max.ms") / 1000

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._store.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    async def _update_isrs(self, replicas: Sequence[Replica]) -> None:
        proposals: list[_IsrProposal] = []
        damaged: list[Replica] = []
        for first in range(0, len(replicas), REPLICAS_PER_ITERATION):
            if first:
                await asyncio.sleep(0)
            batch = replicas[first : first + REPLICAS_PER_ITERATION]
            proposals += self._build_proposals(batch)
            damaged += filter(_is_log_damaged, batch)
        for replica in filter(_was_elected_without_log, damaged):
            await self._transfer_leadership(replica)
        await self._report_lost_records([replica for replica in damaged if self._must_leave_isr(replica)])
        for first in range(0, len(proposals), CHANGES_PER_COMMAND_MAX):
            await self._commit_proposals(proposals[first : first + CHANGES_PER_COMMAND_MAX])
        for proposal in proposals:
            self._schedule_check(proposal.replica)  # for followers that caught up in the meantime

    def _must_leave_isr(self, replica: Replica) -> bool:
        """Return whether this replica must leave the ISR because its disk has lost records that another replica has.

        If all other in-sync replicas are offline, a leader that still has some records stays in the ISR and serves
        them.
        """
        if not replica.is_in_isr or not _is_log_damaged(replica) or _was_elected_without_log(replica):
            return False
        partition = self._get_own_partition(replica)
        if partition is None:
            return False
        if replica.log.has_lost_all_records or not replica.is_leader:
            return len(partition.replicas) > 1
        return any(self._is_alive(member) for member in partition.isr if member != self._node_id)

    def _get_own_partition(self, replica: Replica) -> Partition | None:
        """Return the partition from the image, or None if it was deleted or reassigned to other nodes."""
        topic = self._store.image.all_topics_by_id.get(replica.topic_id)
        partition = None if topic is None else topic.partitions[replica.index]
        return partition if partition is not None and self._node_id in partition.replicas else None

    async def _transfer_leadership(self, replica: Replica) -> None:
        """Transfer the leadership of a partition whose log is lost on this node.

        After an unclean election, later replicas in the assignment may have more records. The last replica starts an
        empty log.
        """
        partition = self._get_own_partition(replica)
        if partition is None:
            return
        later_replicas = partition.replicas[partition.replicas.index(self._node_id) + 1 :]
        successor = next(filter(self._is_alive, later_replicas), None)
        try:
            if successor is None:
                logger.warning(
                    "%r: log restarted empty because no online replica has records: offset=%d",
                    replica,
                    replica.restart_after_data_loss(),
                )
            else:
                key = replica.topic_id, replica.index
                await self._store.propose(SetPartitionLeader(*key, successor, replica.leader_epoch, unclean=True))
                logger.warning(
                    "%r: leadership transferred to broker %d: the log on this node is lost", replica, successor
                )
        except KafkaError as error:
            logger.info(
                "%r: leadership transfer failed after the log was lost on this node: %s; retrying", replica, error
            )

    async def _report_lost_records(self, damaged: Sequence[Replica]) -> None:
        for first in range(0, len(damaged), CHANGES_PER_COMMAND_MAX):
            batch = damaged[first : first + CHANGES_PER_COMMAND_MAX]
            keys = tuple(PartitionKey(replica.topic_id, replica.index) for replica in batch)
            try:
                result = await self._store.propose(ReportLostRecords(self._node_id, self._broker_epoch(), keys))
            except KafkaError as error:
                logger.info(
                    "reporting lost records to the controller failed: partitions=%d: %s; retrying", len(keys), error
                )
                await asyncio.sleep(RETRY_SECONDS)
                for replica in batch:
                    self._schedule_check(replica)
                continue
            logger.error("%s: removed from the ISR: records are lost on this disk: index=%d", list(batch), result.index)

    def _build_proposals(self, replicas: Sequence[Replica]) -> Iterator[_IsrProposal]:
        now, lag_seconds_max = self._clock.monotonic(), self._lag_seconds_max
        for replica in replicas:
            leading, log = replica.isr_state, replica.log_if_open
            if (
                leading is None or log is None or log.has_lost_all_records
            ):  # a leader without its log cannot compare followers
                continue
            isr = leading.compute_next_isr(
                replica.high_watermark, log.log_end_offset, now, lag_seconds_max, self._is_alive
            )
            if isr is not None:
                leading.set_proposed_isr(isr)
                yield _IsrProposal(replica, leading, self._build_isr_change(replica, leading, isr))

    def _build_isr_change(self, replica: Replica, leading: IsrState, isr: tuple[IsrMember, ...]) -> IsrChange:
        return IsrChange(replica.topic_id, replica.index, leading.leader_epoch, leading.partition_epoch, isr)

    async def _commit_proposals(self, proposals: Sequence[_IsrProposal]) -> None:
        while proposals := [each for each in proposals if _is_proposal_still_valid(each)]:
            changes = tuple(each.change for each in proposals)
            try:
                result = await self._store.propose(UpdateISR(self._node_id, self._broker_epoch(), changes))
            except KafkaError as error:
                logger.info("ISR changes not committed: changes=%d: %s; retrying", len(proposals), error)
                for proposal in proposals:
                    if error.code in FINAL_ERRORS:
                        self._on_proposal_rejected(proposal, str(error))
                    else:
                        proposal.is_doubtful = True
                await asyncio.sleep(RETRY_SECONDS)
                continue
            failures = {failure.item: failure.message for failure in result.failures}
            for item, message in failures.items():
                self._on_proposal_rejected(proposals[item], message)
            _log_committed_changes([each for item, each in enumerate(proposals) if item not in failures], result.index)
            if failures:
                await asyncio.sleep(RETRY_SECONDS)

    def _on_proposal_rejected(self, proposal: _IsrProposal, reason: str) -> None:
        """Abandon a rejected change, unless an earlier attempt may still be applied.

        In that case, the current ISR is proposed, which increments the partition epoch and invalidates all earlier
        proposals.
        """
        logger.debug("%r: ISR change rejected: %s", proposal.replica, reason)
        if not _is_proposal_still_valid(proposal):
            return
        if not proposal.is_doubtful:
            proposal.replica.drop_rejected_isr()
            return
        leading = proposal.leading
        unchanged = tuple(IsrMember(member, NO_EPOCH) for member in leading.isr)
        proposal.change = self._build_isr_change(proposal.replica, leading, unchanged)


def _was_unfenced(change: RecordChange[Broker]) -> bool:
    was_fenced = change.old is None or change.old.is_fenced
    return was_fenced and change.new is not None and not change.new.is_fenced


def _is_log_damaged(replica: Replica) -> bool:
    log = replica.log_if_open
    return log is not None and log.missing_start_offset is not None and not replica.is_abandoned


def _was_elected_without_log(replica: Replica) -> bool:
    return replica.is_leader and replica.has_been_out_of_isr and replica.log.has_lost_all_records


def _is_proposal_still_valid(proposal: _IsrProposal) -> bool:
    """Return whether the proposed ISR change still applies, that is, the partition has not changed since then."""
    leading = proposal.leading
    return (
        proposal.replica.isr_state is leading
        and leading.proposed is not None
        and leading.partition_epoch == proposal.change.partition_epoch
    )


def _log_committed_changes(proposals: Sequence[_IsrProposal], index: int) -> None:
    for proposal in proposals[:LOGGED_PARTITIONS_MAX]:
        isr = [member.broker_id for member in proposal.change.isr]
        logger.info("%r: ISR changed isr=%s index=%d", proposal.replica, isr, index)
    if len(proposals) > LOGGED_PARTITIONS_MAX:
        logger.info("ISR changed in %d more partitions: index=%d", len(proposals) - LOGGED_PARTITIONS_MAX, index)
