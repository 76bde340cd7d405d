"""A partition replica on this node: its log, role and high watermark, and the requests that wait for it.

A leader appends records from clients and notifies its followers; a follower appends records from its leader. The
metadata image determines the role and the leader epoch. When the leader epoch ends, all requests that wait for the
leader are completed with an error immediately.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from chronik.broker.flusher import Flusher, LogSyncer
from chronik.broker.isr_state import Follower, FollowerBroker, IsrState
from chronik.broker.recent_batches import RecentBatchBudget, RecentBatches
from chronik.broker.requests.delayed_fetch import DelayedFetch
from chronik.broker.requests.produced_records import ProduceRules, ValidatedRecords, build_marker_batch
from chronik.broker.uncommitted import NodeUncommittedBytes, UncommittedBytes
from chronik.errors import InvariantError
from chronik.files import Buffer
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import AppendInfo, AppendOrigin, PartitionLog
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Partition, Topic
from chronik.notifier import Notifier
from chronik.protocol.batch import build_batch, parse_header
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, KafkaError

ANY_EPOCH = -1

UNKNOWN_BYTE_COUNT = 2**31
"""Placeholder for an unknown number of new bytes in a partition, which completes any waiting fetch."""

OffsetCallback = Callable[[ErrorCode], None]
"""A callback that is called when a partition reaches an offset, or fails to.

It receives NONE, or an error code if the records may be lost.
"""


class FollowerListener(Protocol):
    """The interface through which a replica notifies a follower's fetch session of changes to the partition."""

    def on_append(self) -> None:
        """Handle newly appended records of the partition."""

    def on_offsets_changed(self, *, is_urgent: bool) -> None:
        """Handle a change of the partition's high watermark or log start offset.

        `is_urgent` is True if a request waits for followers.
        """

    def on_leadership_lost(self) -> None:
        """Handle the end of this node's leadership of the partition."""


class OffsetWaiters:
    """A sorted list of callbacks that wait until a partition reaches an offset.

    It is truthy if it contains callbacks.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # Created with the first callback: an empty deque takes 600 bytes, and most partitions are idle.
        self._waiting: deque[tuple[int, OffsetCallback]] | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, when_safe: OffsetCallback) -> None:
        """Insert a callback that waits for an offset.

        The offset of a retried batch may be lower than that of later batches.
        """
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = deque()
        position = len(waiting)
        while position and waiting[position - 1][0] > offset:
            position -= 1
        waiting.insert(position, (offset, when_safe))

    def complete_callbacks_up_to(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Call and remove the callbacks that wait for `offset` or a lower offset of the partition."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            waiting.popleft()[1](code)

    def fail_all(self, code: ErrorCode) -> None:
        """Call and remove all callbacks with an error code.

        A callback may register with another partition.
        """
        if self._waiting:
            waiting = list(self._waiting)
            self._waiting.clear()
            for _, when_safe in waiting:
                when_safe(code)


class Replica:
    """A partition's replica on this node, with its log and its role of leader or follower.

    Consumers read up to the high watermark, the offset up to which the records are durable on every in-sync replica.
    Durable means synced with `flush = "group"` and written with `flush = "os"`. A new replica has the recorded high
    watermark until it is updated.
    """

    __slots__ = (
        "_confirmed_offset",
        "_flush_each_append",
        "_leader_high_watermark",
        "_log",
        "_node_id",
        "_open_log",
        "_recent",
        "_starts",
        "_synced_offsets",
        "commit_waiters",
        "compaction",
        "delayed_fetches",
        "durability_waiters",
        "durable_end_offset",
        "follower_listeners",
        "has_been_out_of_isr",
        "high_watermark",
        "index",
        "is_hidden",
        "is_in_isr",
        "isr_state",
        "leader",
        "leader_epoch",
        "produce_rules",
        "syncer",
        "topic_id",
        "topic_name",
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
        self.topic_name = topic.name
        self.topic_id = topic.id
        self.index = index
        self.high_watermark = topic.partitions[index].high_watermark
        self._confirmed_offset = 0
        """The offset up to which a leader has confirmed that this log is identical to its own and committed.

        Later records may be uncommitted even if the recorded high watermark is higher.
        """
        self._leader_high_watermark = 0
        self.durable_end_offset = 0
        """The offset up to which the log is durable on this node."""
        self.syncer = LogSyncer(flusher, self._on_synced)
        self.compaction: asyncio.Future[None] | None = None
        """The compaction in progress, which reads and writes files of the log."""
        self._open_log = open_log
        self._log: PartitionLog | None = None
        self._synced_offsets = synced_offsets
        self._flush_each_append = flush_each_append
        self.leader = NO_LEADER
        self.leader_epoch = ANY_EPOCH
        self.is_in_isr = False
        self.is_hidden = topic.importing
        """Whether the topic is being imported.

        Its partitions are invisible to clients, and retention does not delete records.
        """
        self.has_been_out_of_isr = False
        """Whether the replica has been out of the ISR since the node started.

        If it becomes the leader although its log is lost, an operator has requested an unclean election.
        """
        self.isr_state: IsrState | None = None
        """The ISR and follower offsets while this node leads the partition, otherwise None."""
        self.produce_rules = rules
        self.delayed_fetches: dict[DelayedFetch, None] = {}
        self.follower_listeners: dict[FollowerListener, None] = {}
        self._node_id = node_id
        self._recent = RecentBatches(recent_room)
        self.commit_waiters = OffsetWaiters()
        """Callbacks of callers that wait until all in-sync replicas have the records below an offset."""
        self.durability_waiters = OffsetWaiters()
        """Callbacks of callers that wait until the records below an offset are durable on this node."""
        self._starts = Notifier()  # notifies of the followers' log start offsets and liveness
        self.uncommitted = UncommittedBytes(node_uncommitted)

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    def open(self) -> None:
        """Open the replica's log if it is closed.

        Logs are opened lazily so that a node with many partitions starts quickly.
        """
        if self._log is None:
            log = self._log = self.syncer.log = self._open_log(self)
            self._update_end_offsets(log)
            if self.isr_state is not None:
                self._start_leader_epoch(self.isr_state)

    def require_open_log(self) -> None:
        """Open the replica's log if it is closed, and raise an error if the disk has lost all its records.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if the disk has lost the log; it must not look like an empty partition.
        """
        log = self._log
        if log is None:
            self.open()
            log = self.log
        if log.missing_start_offset is not None and log.has_lost_all_records:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {self.damage_description}")

    @property
    def log(self) -> PartitionLog:
        log = self._log
        if log is None:  # not `invariant`: formatting its message would cost one percent, because this is called often
            raise InvariantError(f"{self} is used before its log was opened")
        return log

    @property
    def log_if_open(self) -> PartitionLog | None:
        return self._log

    @property
    def is_abandoned(self) -> bool:
        """Whether the topic was deleted or the replica was moved to another node."""
        return self.syncer.is_abandoned

    @property
    def damage_description(self) -> str | None:
        """A description of the synced records that the replica's disk has lost, or None."""
        log = self._log
        if log is None or log.missing_start_offset is None:
            return None
        return (
            f"offsets {log.missing_start_offset} to {log.missing_end_offset - 1} were synced but are missing on "
            "this node's disk"
        )

    # Offsets

    @property
    def committed_end_offset(self) -> int:
        """The offset below which this log is known to contain only committed records.

        The recorded high watermark applies to the leader's log; a follower's log may have an uncommitted tail.
        """
        return self.high_watermark if self.isr_state is not None else self._confirmed_offset

    @property
    def last_stable_offset(self) -> int:
        """The partition's last stable offset, below which consumers with `read_committed` may read."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_end_offset(self, *, committed_only: bool) -> int:
        """Return the end offset of the records that a consumer may read.

        It is the last stable offset if `committed_only` is set, otherwise the high watermark.
        """
        return self.last_stable_offset if committed_only else self.high_watermark

    def lag(self, written_down: int) -> int:
        """Return the number of committed records that this replica has not replicated yet.

        The leader's last reported high watermark counts, or the recorded one if that is higher.
        """
        if self.isr_state is not None:
            return 0
        return max(0, max(self._leader_high_watermark, written_down) - self.log.log_end_offset)

    def _update_end_offsets(self, log: PartitionLog) -> None:
        """Update the replica's durable end offset and high watermark after the log end offset has changed."""
        self.durable_end_offset = self._get_durable_end_offset(log)
        self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))
        self._confirmed_offset = min(self._confirmed_offset, log.log_end_offset)

    # Roles

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition."""
        return self.isr_state is not None

    def assume_role(self, partition: Partition, now: float) -> None:
        """Become the partition's leader or follower, as the metadata image specifies."""
        self.leader = partition.leader
        self.is_in_isr = self._node_id in partition.isr
        self.has_been_out_of_isr = self.has_been_out_of_isr or not self.is_in_isr
        if self.isr_state is not None and self.leader_epoch == partition.leader_epoch:
            self.isr_state.update(partition, now)
            self._starts.notify()
            if self._log is not None:
                self._advance_durable_end_offset()
        elif self.leader_epoch != partition.leader_epoch:
            if self.leader_epoch != ANY_EPOCH:  # a new replica has no term to end, and there may be 10,000
                self._end_leader_epoch()
            self.leader_epoch = partition.leader_epoch
            if partition.leader == self._node_id:
                self.isr_state = IsrState(self._node_id, partition, now)
            if self._log is not None:
                if self.isr_state is not None:
                    self._start_leader_epoch(self.isr_state)
                else:
                    self._log.remove_empty_epochs()

    def _start_leader_epoch(self, leading: IsrState) -> None:
        """Start a leader epoch at the log end offset. Later batches are stored with this epoch."""
        leading.epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(self.leader_epoch, self.log.log_end_offset)
        self.uncommitted.clear()
        self._advance_durable_end_offset()

    def _end_leader_epoch(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
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
        """Fail the requests that wait for followers, because another broker may have become the leader."""
        self.commit_waiters.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake_fetches()

    def restart_after_data_loss(self) -> int:
        """Restart a log that has lost its records at its end offset, and return that offset.

        Called after an operator has abandoned the lost records.

        Blocks on the disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if other replicas are in sync and have the records.
        """
        leading, log = self.isr_state, self.log
        if leading is None or any(member != self._node_id for member in leading.isr):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: other in-sync replicas have the lost records")
        self.restart_log_as_leader_at(log.log_end_offset)
        return log.log_start_offset

    def restart_log_as_leader_at(self, offset: int) -> None:
        """Delete all records of the log, and continue as the leader from `offset`.

        No sync may be in progress. Blocks on the disk.
        """
        self.restart_at(offset)
        if self.isr_state is not None:
            self._start_leader_epoch(self.isr_state)

    def check_leader_epoch(self, claimed: int) -> None:
        """Validate the leader epoch in a client's request.

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
        """Append validated records to the log as the partition's leader, and notify the followers."""
        info = self.log.append(incoming.buffer, incoming.headers, self.leader_epoch, origin=origin)
        if not info.is_duplicate:
            self.uncommitted.append(info.last_offset + 1, len(incoming.buffer))
            if self.follower_listeners:
                self._recent.add(info.base_offset, info.last_offset + 1, incoming.buffer)
            self._handle_appended_bytes(len(incoming.buffer))
            for reader in self.follower_listeners:
                reader.on_append()
        return info

    def append_marker(self, producer_id: int, producer_epoch: int, marker: TransactionMarker, now_ms: int) -> int:
        """Append a transaction's commit or abort marker to the log, and return the offset after the marker.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        if self.isr_state is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        incoming = build_marker_batch(producer_id, producer_epoch, marker, now_ms)
        return self.append(incoming, AppendOrigin.COORDINATOR).last_offset + 1

    def append_imported(self, records: Buffer, leader_epoch: int) -> None:
        """Append record batches from an import unchanged to the log, as the partition's leader.

        Raises:
            CorruptRecords: The batches are damaged or do not continue the log.
        """
        if self.log.append_imported(records, leader_epoch) is not None:
            self._handle_appended_bytes(len(records))

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
        """Return record batches from `offset` on, up to the high watermark."""
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
        """Wait until the low watermark reaches `offset`, and return the low watermark.

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
        """Discard the proposed ISR that the controller has rejected.

        The follower that it would have added no longer counts for the high watermark.
        """
        if self.isr_state is not None:
            self.isr_state.drop_proposed_isr()
            self._advance_durable_end_offset()

    def on_brokers_changed(self) -> None:
        """Wake the requests that wait for followers, after a broker was fenced or has returned.

        They check whether the followers are still alive.
        """
        self._starts.notify()
        for watcher in list(self.delayed_fetches):
            watcher.on_brokers_changed()

    # Fetches of followers

    def find_log_divergence(
        self, offset: int, last_epoch: int, unknown: ErrorCode = ErrorCode.UNKNOWN_LEADER_EPOCH
    ) -> tuple[int, int] | None:
        """Return the epoch and end offset at which a follower's log diverges from this log, or None.

        The other log ends at `offset`, in the leader epoch `last_epoch`.

        The result is the largest epoch that both logs may have, and its end offset in this log.

        Raises:
            KafkaError: `unknown`, if this log has no epoch to compare with.
        """
        if last_epoch < 0:
            return None  # the other log is empty
        epoch, end_offset = self.log.find_end_offset_for_epoch(last_epoch)
        if epoch < 0:
            raise KafkaError(unknown)
        if epoch == last_epoch and end_offset >= offset:
            return None
        return epoch, end_offset

    def can_extend_follower_from(self, offset: int) -> bool:
        """Return whether this log's records can extend a follower's log that ends at `offset`."""
        return self.log.log_start_offset <= offset <= self.log.log_end_offset

    def record_follower_fetch(
        self, broker_id: int, offset: int, log_start_offset: int, life: FollowerBroker
    ) -> Follower:
        """Record that a follower has replicated all records below `offset`, and update the high watermark."""
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
        """Return record batches for a follower, up to the log end offset and in consecutive chunks.

        They include uncommitted batches.
        """
        recent = self._recent.read(offset, max_bytes)
        if recent:
            return recent
        log = self.log
        records = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=min_one_batch)
        return [records] if records else []

    # Follower

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, or -1."""
        return self.log.epochs.latest_epoch

    def append_from_leader(self, records: Buffer) -> bool:
        """Append record batches that were fetched from the leader, and return whether any batch was new.

        Raises:
            CorruptRecords: The batches are damaged or do not continue the log.
        """
        if self.isr_state is not None:  # not `invariant`: formatting its message would cost more
            raise InvariantError(f"{self}: a leader cannot append records from another leader")
        if self.log.append_as_follower(trim_first_batch(records, self.log.log_end_offset)) is None:
            return False
        self._handle_appended_bytes(len(records))
        return True

    def must_restart_at_lower_offset(self, records: Buffer) -> bool:
        """Return whether this follower's empty log must restart at the lower offset of the leader's batches.

        The leader's log start offset may lie inside a batch.

        Raises:
            CorruptRecords: The batch header is invalid.
        """
        log = self.log
        return log.log_start_offset == log.log_end_offset > first_base_offset(records)

    def update_from_leader(self, high_watermark: int, leader_start: int) -> None:
        """Update the follower's high watermark and log start offset to those of the leader."""
        log = self.log
        self._leader_high_watermark = high_watermark
        self.high_watermark = max(self.high_watermark, min(high_watermark, log.log_end_offset))
        self._confirmed_offset = max(self._confirmed_offset, min(high_watermark, log.log_end_offset))
        start = min(leader_start, log.log_end_offset)
        if start > log.log_start_offset:
            log.delete_records_before(start)
            self.high_watermark = max(self.high_watermark, start)
            self.syncer.request_sync_if_needed()

    def truncate_to(self, offset: int) -> None:
        """Truncate the records that the leader's log does not contain.

        No sync may be in progress. Blocks on the disk.
        """
        log = self.log
        if offset < log.log_start_offset:
            log.truncate_fully_and_start_at(offset)
        else:
            log.truncate_to(offset)
        self._update_end_offsets(log)

    def restart_at(self, offset: int) -> None:
        """Delete all records of the log, and restart the log at `offset`.

        No sync may be in progress. Blocks on the disk.
        """
        self.log.truncate_fully_and_start_at(offset)
        self._update_end_offsets(self.log)

    # Progress

    def is_durable(self, offset: int) -> bool:
        return offset <= self.durable_end_offset

    @property
    def is_fully_durable(self) -> bool:
        return self.durable_end_offset == self.log.log_end_offset

    def is_committed(self, offset: int) -> bool:
        """Return whether all records below `offset` are committed, as acks=all promises."""
        return offset <= self.high_watermark

    def _get_durable_end_offset(self, log: PartitionLog) -> int:
        return log.synced_offset if self._flush_each_append else log.log_end_offset

    def _handle_appended_bytes(self, size: int) -> None:
        self.syncer.record_appended_bytes(size)
        if self._flush_each_append:
            self.syncer.request_sync()
        else:
            self._advance_durable_end_offset()

    def _on_synced(self, log: PartitionLog) -> None:
        self._synced_offsets.record(self.topic_id, self.index, log.synced_offset)
        self._advance_durable_end_offset()

    def _advance_durable_end_offset(self) -> None:
        durable = self.durable_end_offset = self._get_durable_end_offset(self.log)
        if self.durability_waiters:
            self.durability_waiters.complete_callbacks_up_to(durable)
        if self.isr_state is not None:
            self._commit(self.isr_state.high_watermark(durable))

    def _commit(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        high_watermark_before, self.high_watermark = self.high_watermark, high_watermark
        self._recent.remove_batches_below(high_watermark)
        # Batches of an earlier leader are not counted, but fetches wait for them as well.
        arrived = self.uncommitted.commit(high_watermark) or UNKNOWN_BYTE_COUNT
        if self.commit_waiters:
            enough = self.has_enough_replicas
            self.commit_waiters.complete_callbacks_up_to(
                high_watermark, ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )
        if self.delayed_fetches:
            stable = arrived
            if self.log.producers.transactions.has_undecided_transactions:
                stable = self._count_stable_bytes(high_watermark_before, arrived)
            for watcher in list(self.delayed_fetches):
                watcher.add_readable_bytes(stable if watcher.committed_only else arrived)
        self._notify_followers()

    def _count_stable_bytes(self, high_watermark_before: int, arrived: int) -> int:
        """Return the number of bytes that consumers with `read_committed` can read since the last advance.

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

    def wake_fetches(self) -> None:
        """Wake the fetches that wait for records of this partition."""
        for watcher in list(self.delayed_fetches):
            watcher.wake()

    # Closing

    def abandon(self) -> None:
        """Stop serving a partition that was deleted or moved to another node, and fail its waiting requests.

        A sync may still be in progress; `release` closes the files afterwards.
        """
        self.syncer.fail_waiters()
        self._end_leader_epoch(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def release(self) -> None:
        """Close the log files of an abandoned replica, so that the files can be deleted."""
        await self.syncer.wait_until_idle()
        if self.compaction is not None:
            await asyncio.wait([self.compaction])
        self._log = self.syncer.log = None

    def close(self) -> None:
        """Sync and close the log, and record its synced offset."""
        if self._log is not None:
            self._log.close()
            self._synced_offsets.record(self.topic_id, self.index, self._log.synced_offset)
            self._log = self.syncer.log = None


def first_base_offset(records: Buffer) -> int:
    """Return the base offset of the first batch.

    Raises:
        CorruptRecords: The batch header is invalid.
    """
    return parse_header(records).base_offset


def trim_first_batch(records: Buffer, offset: int) -> Buffer:
    """Trim an empty first batch so that it starts at `offset`. Return other batches unchanged.

    The leader reads complete batches, and compaction covers removed offsets with an empty batch, which may start before
    the follower's log end offset. The log itself rejects batches that do not continue it.

    Raises:
        CorruptRecords: The batch header is invalid.
    """
    header = parse_header(records)
    if not header.base_offset < offset < header.next_offset or header.record_count > 0:
        return records
    rest = header._replace(base_offset=offset, last_offset_delta=header.next_offset - offset - 1)
    return build_batch(rest, b"") + bytes(memoryview(records)[header.size :])
