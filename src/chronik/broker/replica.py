"""A partition replica on this node: its log, role and high watermark, and the requests that wait for it.

A leader appends records from clients and notifies its followers; a follower appends records from its leader. The
metadata image determines the role and the leader epoch. When the leader epoch ends, all requests that wait for the
leader are completed with an error immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from chronik.broker.flusher import Flusher
from chronik.broker.isr_state import Follower, FollowerBroker, IsrState
from chronik.broker.offset_waiters import OffsetWaiters
from chronik.broker.recent_batches import RecentBatchBudget, RecentBatches
from chronik.broker.replica_log import ReplicaLog
from chronik.broker.requests.delayed_fetch import DelayedFetch
from chronik.broker.requests.produced_records import ProduceRules, ValidatedRecords, build_marker_batch
from chronik.broker.uncommitted import NodeUncommittedBytes, UncommittedBytes
from chronik.errors import InvariantError
from chronik.files import Buffer
from chronik.log.append_info import AppendInfo, AppendOrigin
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Partition, Topic
from chronik.notifier import Notifier
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, KafkaError

ANY_EPOCH = -1

UNKNOWN_BYTE_COUNT = 2**31
"""More bytes than any fetch can wait for; used when the number of new bytes is unknown."""


class FollowerListener(Protocol):
    """A follower session that is notified of changes of a partition."""

    def on_append(self) -> None:
        """Handle newly appended records."""

    def on_offsets_changed(self, *, is_urgent: bool) -> None:
        """Handle a change of the high watermark or log start offset. `is_urgent` if a request waits for followers."""

    def on_leadership_lost(self) -> None:
        """Handle the end of this node's leader epoch."""


class Replica(ReplicaLog):
    """A partition replica and its role.

    Consumers read up to the high watermark, the offset up to which the records are durable on every in-sync replica.
    Durable means synced with `flush = "group"` and written with `flush = "os"`.
    """

    __slots__ = (
        "_node_id",
        "_recent",
        "_starts",
        "commit_waiters",
        "delayed_fetches",
        "durability_waiters",
        "follower_listeners",
        "has_been_out_of_isr",
        "is_hidden",
        "is_in_isr",
        "isr_state",
        "leader",
        "leader_epoch",
        "produce_rules",
        "uncommitted",
    )

    def __init__(
        self,
        node_id: int,
        topic: Topic,
        index: int,
        rules: ProduceRules,
        open_log: Callable[[Replica], PartitionLog],
        synced_offsets: SyncedOffsets,
        flusher: Flusher,
        recent_room: RecentBatchBudget,
        node_uncommitted: NodeUncommittedBytes,
        *,
        flush_each_append: bool,
    ) -> None:
        """Create a replica without a role; `assume_role` sets it."""
        super().__init__(topic, index, open_log, synced_offsets, flusher, flush_each_append=flush_each_append)
        self.leader = NO_LEADER
        self.leader_epoch = ANY_EPOCH
        self.is_in_isr = False
        self.is_hidden = topic.importing
        """Whether the topic is being imported: clients cannot see it, and no records are deleted."""
        self.has_been_out_of_isr = False
        """Whether the replica has been out of the ISR since the node started. If it is elected without its log
        nevertheless, an operator has requested that."""
        self.isr_state: IsrState | None = None
        """The state of the followers while this node leads the partition, otherwise None."""
        self.produce_rules = rules
        self.delayed_fetches: dict[DelayedFetch, None] = {}
        self.follower_listeners: dict[FollowerListener, None] = {}
        self._node_id = node_id
        self._recent = RecentBatches(recent_room)
        self.commit_waiters = OffsetWaiters()
        """Callbacks that wait until all in-sync replicas have all records below an offset."""
        self.durability_waiters = OffsetWaiters()
        """Callbacks that wait until all records below an offset are durable on this node."""
        self._starts = Notifier()  # notifies of the followers' log start offsets and liveness
        self.uncommitted = UncommittedBytes(node_uncommitted)

    def _on_opened(self) -> None:
        if self.isr_state is not None:
            self._start_leader_epoch(self.isr_state)

    @property
    def committed_end_offset(self) -> int:
        """The offset up to which this log is known to contain committed records.

        The recorded high watermark applies to the leader's log; a follower's log may have an uncommitted tail.
        """
        return self.high_watermark if self.isr_state is not None else self._confirmed_offset

    def lag(self, written_down: int) -> int:
        """Return the number of committed records that this replica lacks.

        The leader's last reported high watermark counts, or the recorded one if that is higher.
        """
        if self.isr_state is not None:
            return 0
        return max(0, max(self._leader_high_watermark, written_down) - self.log.log_end_offset)

    # Roles

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition."""
        return self.isr_state is not None

    def assume_role(self, partition: Partition, now: float) -> None:
        """Assume the role that the metadata image gives this replica."""
        self.leader = partition.leader
        self.is_in_isr = self._node_id in partition.isr
        self.has_been_out_of_isr = self.has_been_out_of_isr or not self.is_in_isr
        if self.isr_state is not None and self.leader_epoch == partition.leader_epoch:
            self.isr_state.update(partition, now)
            self._starts.notify()
            if self._log is not None:
                self._advance()
        elif self.leader_epoch != partition.leader_epoch:
            if self.leader_epoch != ANY_EPOCH:  # a new replica has no term to end, and there may be 10,000
                self._end_term()
            self.leader_epoch = partition.leader_epoch
            if partition.leader == self._node_id:
                self.isr_state = IsrState(self._node_id, partition, now)
            if self._log is not None:
                if self.isr_state is not None:
                    self._start_leader_epoch(self.isr_state)
                else:
                    self._log.remove_empty_epochs()

    def _start_leader_epoch(self, leading: IsrState) -> None:
        """Start a leader epoch; later batches are appended with it."""
        leading.epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(self.leader_epoch, self.log.log_end_offset)
        self.uncommitted.clear()
        self._advance()

    def _end_term(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """End the leader epoch and fail all waiting requests, because the next leader may truncate their records."""
        self._confirmed_offset = self.committed_end_offset
        self.isr_state = None
        self.commit_waiters.fail_all(code)
        self.durability_waiters.fail_all(code)
        for reader in list(self.follower_listeners):
            reader.on_leadership_lost()
        self.follower_listeners.clear()
        self._recent.clear()
        self.uncommitted.clear()
        self._starts.notify()
        self.wake_fetches()

    def fail_waiters(self) -> None:
        """Fail requests that wait for followers, because this node may have been fenced and replaced as the leader."""
        self.commit_waiters.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake_fetches()

    def restart_after_data_loss(self) -> int:
        """Restart an empty log at its end offset after an operator has abandoned the lost records. Return the offset.

        Blocks on the disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if other replicas are in sync and have the records.
        """
        leading, log = self.isr_state, self.log
        if leading is None or any(member != self._node_id for member in leading.isr):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: other in-sync replicas have the lost records")
        self.restart_as_leader_at(log.log_end_offset)
        return log.log_start_offset

    def restart_as_leader_at(self, offset: int) -> None:
        """Delete all records and lead the partition from `offset` on.

        No sync may be in progress. Blocks on the disk.
        """
        self.restart_at(offset)
        if self.isr_state is not None:
            self._start_leader_epoch(self.isr_state)

    def check_epoch(self, claimed: int) -> None:
        """Check the leader epoch that a client claims.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if it differs from the current leader epoch.
        """
        if claimed in (ANY_EPOCH, self.leader_epoch):
            return
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if claimed < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )

    # Leader

    @property
    def has_enough_replicas(self) -> bool:
        """Whether the ISR has at least `min.insync.replicas` members, as acks=all requires."""
        leading = self.isr_state
        if leading is None:
            return False
        return len(leading.isr) >= min(self.produce_rules.min_insync_replicas, len(leading.replicas))

    @property
    def has_followers(self) -> bool:
        return self.isr_state is not None and bool(self.isr_state.followers)

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether the high watermark has reached the start of this leader epoch.

        Right after an election it may be lower than what consumers have already read.
        """
        return self.isr_state is not None and self.high_watermark >= self.isr_state.epoch_start_offset

    def append(self, incoming: ValidatedRecords, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendInfo:
        """Append validated records as the leader, and notify the followers."""
        info = self.log.append(incoming.buffer, incoming.headers, self.leader_epoch, origin=origin)
        if not info.is_duplicate:
            self.uncommitted.append(info.last_offset + 1, len(incoming.buffer))
            if self.follower_listeners:
                self._recent.add(info.base_offset, info.last_offset + 1, incoming.buffer)
            self._on_appended(len(incoming.buffer))
            for reader in self.follower_listeners:
                reader.on_append()
        return info

    def append_marker(self, producer_id: int, producer_epoch: int, marker: TransactionMarker, now_ms: int) -> int:
        """Append a transaction marker, and return the offset after it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        if self.isr_state is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        incoming = build_marker_batch(producer_id, producer_epoch, marker, now_ms)
        return self.append(incoming, AppendOrigin.COORDINATOR).last_offset + 1

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
        """Return batches from `offset` on, up to the high watermark."""
        return self.log.read(offset, max_bytes, self.high_watermark, min_one_batch=min_one_batch)

    async def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset, and return it once it is durable."""
        self.log.delete_records_before(offset)
        self._notify_followers(is_urgent=True)
        log_start_offset = self.log.log_start_offset
        await self.syncer.wait_until_synced()
        return log_start_offset

    def apply_retention(self, now_ms: int) -> None:
        """Advance the log start offset according to the retention configs. Files are deleted once it is durable."""
        if self._log is not None and not self.is_hidden:
            if self._log.apply_retention(now_ms, self.committed_end_offset):
                self._notify_followers()
            self.syncer.request_sync_if_needed()

    async def wait_for_low_watermark(self, offset: int, is_alive: Callable[[int], bool]) -> int:
        """Wait until the low watermark reaches `offset`, and return it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        while self.isr_state is not None:
            seen = self._starts.generation
            low_watermark = self.isr_state.low_watermark(self.log.log_start_offset, is_alive)
            if low_watermark >= offset:
                return low_watermark
            await self._starts.wait(seen)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def drop_rejected_isr(self) -> None:
        """Drop a rejected ISR change; the follower that it would have added no longer counts."""
        if self.isr_state is not None:
            self.isr_state.drop_proposed()
            self._advance()

    def on_brokers_changed(self) -> None:
        """Wake requests that wait for followers, so that they check whether these are still alive."""
        self._starts.notify()
        for watcher in list(self.delayed_fetches):
            watcher.on_brokers_changed()

    # Follower fetches

    def find_divergence(
        self, offset: int, last_epoch: int, unknown: ErrorCode = ErrorCode.UNKNOWN_LEADER_EPOCH
    ) -> tuple[int, int] | None:
        """Return where another log, which ends at `offset` in `last_epoch`, diverges from this one, or None.

        The result is the largest epoch that both logs may have, and its end offset in this log.

        Raises:
            KafkaError: `unknown`, if this log has no epoch to compare with.
        """
        if last_epoch < 0:
            return None  # the other log is empty
        epoch, end_offset = self.log.end_offset_for_epoch(last_epoch)
        if epoch < 0:
            raise KafkaError(unknown)
        if epoch == last_epoch and end_offset >= offset:
            return None
        return epoch, end_offset

    def can_continue_from(self, offset: int) -> bool:
        """Return whether a log that ends at `offset` can be continued with this one."""
        return self.log.log_start_offset <= offset <= self.log.log_end_offset

    def record_follower_fetch(
        self, broker_id: int, offset: int, log_start_offset: int, life: FollowerBroker
    ) -> Follower:
        """Record that a follower, whose log is a prefix of this one, has all records below `offset`."""
        leading = self.isr_state
        assert leading is not None
        follower = leading.followers[broker_id]
        starts_moved = follower.log_start_offset != log_start_offset
        follower.record_fetch(offset, log_start_offset, life, self.log.log_end_offset, life.fetched_at)
        self._commit(leading.high_watermark(self.durable_end_offset))
        if starts_moved:
            self._starts.notify()
        return follower

    def read_for_follower(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> list[memoryview]:
        """Return batches up to the log end offset, including uncommitted ones, in consecutive chunks."""
        recent = self._recent.read(offset, max_bytes)
        if recent:
            return recent
        log = self.log
        records = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=min_one_batch)
        return [records] if records else []

    def append_from_leader(self, records: Buffer) -> bool:
        if self.isr_state is not None:  # not `invariant`: formatting its message would cost more
            raise InvariantError(f"{self}: a leader cannot append records from another leader")
        return super().append_from_leader(records)

    # Progress

    def is_committed(self, offset: int) -> bool:
        """Return whether all records below `offset` are committed, as acks=all promises."""
        return offset <= self.high_watermark

    def _advance(self) -> None:
        durable = self.durable_end_offset = self._durable_end_of(self.log)
        if self.durability_waiters:
            self.durability_waiters.complete_up_to(durable)
        if self.isr_state is not None:
            self._commit(self.isr_state.high_watermark(durable))

    def _commit(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        high_watermark_before, self.high_watermark = self.high_watermark, high_watermark
        self._recent.remove_below(high_watermark)
        # Batches of an earlier leader are not counted, but fetches wait for them as well.
        arrived = self.uncommitted.commit(high_watermark) or UNKNOWN_BYTE_COUNT
        if self.commit_waiters:
            enough = self.has_enough_replicas
            self.commit_waiters.complete_up_to(
                high_watermark, ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )
        if self.delayed_fetches:
            stable = arrived
            if self.log.producers.transactions.has_undecided:
                stable = self._count_stable_bytes(high_watermark_before, arrived)
            for watcher in list(self.delayed_fetches):
                watcher.add_bytes(stable if watcher.committed_only else arrived)
        self._notify_followers()

    def _count_stable_bytes(self, high_watermark_before: int, arrived: int) -> int:
        """Return how many bytes have become stable.

        A transaction marker is small, but may make all records stable that were appended during the transaction.
        """
        before, now = self.log.last_stable_offset(high_watermark_before), self.last_stable_offset
        if now == before:
            return 0
        is_all = before == high_watermark_before and now == self.high_watermark
        return arrived if is_all else UNKNOWN_BYTE_COUNT

    def _notify_followers(self, *, is_urgent: bool = False) -> None:
        for reader in self.follower_listeners:
            reader.on_offsets_changed(is_urgent=is_urgent)

    # Closing

    def abandon(self) -> None:
        """Fail all waiting requests of a replica whose topic was deleted or which moved to another node.

        A sync may still be in progress; `release` closes the files afterwards.
        """
        self.syncer.abandon()
        self._end_term(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def wake_fetches(self) -> None:
        """Wake fetches that wait for records, so that they check again."""
        for watcher in list(self.delayed_fetches):
            watcher.wake()
