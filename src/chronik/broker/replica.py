"""A partition replica on this node: its log, role and high watermark, and the requests that wait for it.

A leader appends records from clients and notifies its followers; a follower appends records from its leader. The
metadata image determines the role and the leader epoch. When the leader epoch ends, all requests that wait for the
leader are completed with an error immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from chronik.broker.flusher import Flusher
from chronik.broker.held_log import HeldLog
from chronik.broker.in_sync import Follower, FollowerLife, InSync
from chronik.broker.promises import Promises
from chronik.broker.recent import RecentBatches, RecentRoom
from chronik.broker.requests.incoming import Incoming, IncomingRules, marker_batch
from chronik.broker.requests.purgatory import RecordsArrived
from chronik.broker.uncommitted import NodeUncommitted, Uncommitted
from chronik.errors import InvariantBroken
from chronik.files import Buffer
from chronik.log.appends import AppendInfo, AppendOrigin
from chronik.log.files.synced import SyncedOffsets
from chronik.log.partition import PartitionLog
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Partition, Topic
from chronik.news import News
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, KafkaError

ANY_EPOCH = -1

UNCOUNTED_BYTES = 2**31
"""More bytes than any fetch can wait for; used when the number of new bytes is unknown."""


class Reader(Protocol):
    """A follower session that is notified of changes of a partition."""

    def appended(self) -> None:
        """Handle newly appended records."""

    def moved(self, *, is_urgent: bool) -> None:
        """Handle a change of the high watermark or log start offset. `is_urgent` if a request waits for followers."""

    def gone(self) -> None:
        """Handle the end of this node's leader epoch."""


class Replica(HeldLog):
    """A partition replica and its role.

    Consumers read up to the high watermark, the offset up to which the records are durable on every in-sync replica.
    Durable means synced with `flush = "group"` and written with `flush = "os"`.
    """

    __slots__ = (
        "_node_id",
        "_recent",
        "_starts",
        "commits",
        "durables",
        "is_hidden",
        "is_in_isr",
        "leader",
        "leader_epoch",
        "leading",
        "readers",
        "rules",
        "uncommitted",
        "was_out_of_isr",
        "watchers",
    )

    def __init__(
        self,
        node_id: int,
        topic: Topic,
        index: int,
        rules: IncomingRules,
        open_log: Callable[[Replica], PartitionLog],
        synced_offsets: SyncedOffsets,
        flusher: Flusher,
        recent_room: RecentRoom,
        node_uncommitted: NodeUncommitted,
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
        self.was_out_of_isr = False
        """Whether the replica has been out of the ISR since the node started. If it is elected without its log
        nevertheless, an operator has requested that."""
        self.leading: InSync | None = None
        """The state of the followers while this node leads the partition, otherwise None."""
        self.rules = rules
        self.watchers: dict[RecordsArrived, None] = {}
        self.readers: dict[Reader, None] = {}
        self._node_id = node_id
        self._recent = RecentBatches(recent_room)
        self.commits = Promises()
        """Callbacks that wait until all in-sync replicas have all records below an offset."""
        self.durables = Promises()
        """Callbacks that wait until all records below an offset are durable on this node."""
        self._starts = News()  # notifies of the followers' log start offsets and liveness
        self.uncommitted = Uncommitted(node_uncommitted)

    def _opened(self) -> None:
        if self.leading is not None:
            self._begin_term(self.leading)

    @property
    def committed_end(self) -> int:
        """The offset up to which this log is known to contain committed records.

        The recorded high watermark applies to the leader's log; a follower's log may have an uncommitted tail.
        """
        return self.high_watermark if self.leading is not None else self._learnt

    def lag(self, written_down: int) -> int:
        """Return the number of committed records that this replica lacks.

        The leader's last reported high watermark counts, or the recorded one if that is higher.
        """
        if self.leading is not None:
            return 0
        return max(0, max(self._told_high_watermark, written_down) - self.log.log_end_offset)

    # Roles

    @property
    def leads(self) -> bool:
        """Whether this node leads the partition."""
        return self.leading is not None

    def assume(self, partition: Partition, now: float) -> None:
        """Assume the role that the metadata image gives this replica."""
        self.leader = partition.leader
        self.is_in_isr = self._node_id in partition.isr
        self.was_out_of_isr = self.was_out_of_isr or not self.is_in_isr
        if self.leading is not None and self.leader_epoch == partition.leader_epoch:
            self.leading.update(partition, now)
            self._starts.tell()
            if self._log is not None:
                self._advance()
        elif self.leader_epoch != partition.leader_epoch:
            if self.leader_epoch != ANY_EPOCH:  # a new replica has no term to end, and there may be 10,000
                self._end_term()
            self.leader_epoch = partition.leader_epoch
            if partition.leader == self._node_id:
                self.leading = InSync(self._node_id, partition, now)
            if self._log is not None:
                if self.leading is not None:
                    self._begin_term(self.leading)
                else:
                    self._log.forget_unused_epochs()

    def _begin_term(self, leading: InSync) -> None:
        """Start a leader epoch; later batches are appended with it."""
        leading.epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(self.leader_epoch, self.log.log_end_offset)
        self.uncommitted.clear()
        self._advance()

    def _end_term(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """End the leader epoch and fail all waiting requests, because the next leader may truncate their records."""
        self._learnt = self.committed_end
        self.leading = None
        self.commits.take_back(code)
        self.durables.take_back(code)
        for reader in list(self.readers):
            reader.gone()
        self.readers.clear()
        self._recent.clear()
        self.uncommitted.clear()
        self._starts.tell()
        self.stop_waiting()

    def end_waits(self) -> None:
        """Fail requests that wait for followers, because this node may have been fenced and replaced as the leader."""
        self.commits.take_back(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.stop_waiting()

    def begin_anew(self) -> int:
        """Restart an empty log at its end offset after an operator has abandoned the lost records. Return the offset.

        Blocks on the disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if other replicas are in sync and have the records.
        """
        leading, log = self.leading, self.log
        if leading is None or any(member != self._node_id for member in leading.isr):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: other in-sync replicas have the lost records")
        self.begin_at(log.log_end_offset)
        return log.log_start_offset

    def begin_at(self, offset: int) -> None:
        """Delete all records and lead the partition from `offset` on.

        No sync may be in progress. Blocks on the disk.
        """
        self.restart_at(offset)
        if self.leading is not None:
            self._begin_term(self.leading)

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
        leading = self.leading
        if leading is None:
            return False
        return len(leading.isr) >= min(self.rules.min_insync_replicas, len(leading.replicas))

    @property
    def has_followers(self) -> bool:
        return self.leading is not None and bool(self.leading.followers)

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the high watermark has reached the start of this leader epoch.

        Right after an election it may be lower than what consumers have already read.
        """
        return self.leading is not None and self.high_watermark >= self.leading.epoch_start_offset

    def append(self, incoming: Incoming, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendInfo:
        """Append validated records as the leader, and notify the followers."""
        info = self.log.append(incoming.buffer, incoming.headers, self.leader_epoch, origin=origin)
        if not info.duplicate:
            self.uncommitted.append(info.last_offset + 1, len(incoming.buffer))
            if self.readers:
                self._recent.add(info.base_offset, info.last_offset + 1, incoming.buffer)
            self._appended(len(incoming.buffer))
            for reader in self.readers:
                reader.appended()
        return info

    def append_marker(self, producer_id: int, producer_epoch: int, marker: TransactionMarker, now_ms: int) -> int:
        """Append a transaction marker, and return the offset after it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        if self.leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        incoming = marker_batch(producer_id, producer_epoch, marker, now_ms)
        return self.append(incoming, AppendOrigin.COORDINATOR).last_offset + 1

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
        """Return batches from `offset` on, up to the high watermark."""
        return self.log.read(offset, max_bytes, self.high_watermark, min_one_batch=min_one_batch)

    async def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset, and return it once it is durable."""
        self.log.delete_records_before(offset)
        self._notify_followers(is_urgent=True)
        log_start_offset = self.log.log_start_offset
        await self.syncs.all_synced()
        return log_start_offset

    def apply_retention(self, now_ms: int) -> None:
        """Advance the log start offset according to the retention configs. Files are deleted once it is durable."""
        if self._log is not None and not self.is_hidden:
            if self._log.apply_retention(now_ms, self.committed_end):
                self._notify_followers()
            self.syncs.request_if_needed()

    async def low_watermark_reaches(self, offset: int, is_alive: Callable[[int], bool]) -> int:
        """Wait until the low watermark reaches `offset`, and return it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        while self.leading is not None:
            seen = self._starts.count
            low_watermark = self.leading.low_watermark(self.log.log_start_offset, is_alive)
            if low_watermark >= offset:
                return low_watermark
            await self._starts.since(seen)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def isr_change_refused(self) -> None:
        """Drop a rejected ISR change; the follower that it would have added no longer counts."""
        if self.leading is not None:
            self.leading.refused()
            self._advance()

    def brokers_changed(self) -> None:
        """Wake requests that wait for followers, so that they check whether these are still alive."""
        self._starts.tell()
        for watcher in list(self.watchers):
            watcher.brokers_changed()

    # Follower fetches

    def divergence(
        self, offset: int, last_epoch: int, unknown: ErrorCode = ErrorCode.UNKNOWN_LEADER_EPOCH
    ) -> tuple[int, int] | None:
        """Return where another log, which ends at `offset` in `last_epoch`, diverges from this one, or None.

        The result is the largest epoch that both logs may have, and its end offset in this log.

        Raises:
            KafkaError: `unknown`, if this log has no epoch to compare with.
        """
        if last_epoch < 0:
            return None  # the other log is empty
        epoch, end_offset = self.log.epoch_end_offset(last_epoch)
        if epoch < 0:
            raise KafkaError(unknown)
        if epoch == last_epoch and end_offset >= offset:
            return None
        return epoch, end_offset

    def has(self, offset: int) -> bool:
        """Return whether a log that ends at `offset` can be continued with this one."""
        return self.log.log_start_offset <= offset <= self.log.log_end_offset

    def follower_fetched(self, broker_id: int, offset: int, log_start_offset: int, life: FollowerLife) -> Follower:
        """Record that a follower, whose log is a prefix of this one, has all records below `offset`."""
        leading = self.leading
        assert leading is not None
        follower = leading.followers[broker_id]
        starts_moved = follower.log_start_offset != log_start_offset
        follower.fetched(offset, log_start_offset, life, self.log.log_end_offset, life.fetched_at)
        self._commit(leading.high_watermark(self.durable_end))
        if starts_moved:
            self._starts.tell()
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
        if self.leading is not None:  # not `invariant`: formatting its message would cost more
            raise InvariantBroken(f"{self}: a leader cannot append records from another leader")
        return super().append_from_leader(records)

    # Progress

    def is_committed(self, offset: int) -> bool:
        """Return whether all records below `offset` are committed, as acks=all promises."""
        return offset <= self.high_watermark

    def _advance(self) -> None:
        durable = self.durable_end = self._durable_end_of(self.log)
        if self.durables:
            self.durables.reached(durable)
        if self.leading is not None:
            self._commit(self.leading.high_watermark(durable))

    def _commit(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        high_watermark_before, self.high_watermark = self.high_watermark, high_watermark
        self._recent.drop_below(high_watermark)
        # Batches of an earlier leader are not counted, but fetches wait for them as well.
        arrived = self.uncommitted.commit(high_watermark) or UNCOUNTED_BYTES
        if self.commits:
            enough = self.has_enough_replicas
            self.commits.reached(
                high_watermark, ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )
        if self.watchers:
            stable = arrived
            if self.log.producers.transactions.are_in_doubt:
                stable = self._count_stable_bytes(high_watermark_before, arrived)
            for watcher in list(self.watchers):
                watcher.arrived(stable if watcher.committed_only else arrived)
        self._notify_followers()

    def _count_stable_bytes(self, high_watermark_before: int, arrived: int) -> int:
        """Return how many bytes have become stable.

        A transaction marker is small, but may make all records stable that were appended during the transaction.
        """
        before, now = self.log.last_stable_offset(high_watermark_before), self.last_stable_offset
        if now == before:
            return 0
        is_all = before == high_watermark_before and now == self.high_watermark
        return arrived if is_all else UNCOUNTED_BYTES

    def _notify_followers(self, *, is_urgent: bool = False) -> None:
        for reader in self.readers:
            reader.moved(is_urgent=is_urgent)

    # Closing

    def abandon(self) -> None:
        """Fail all waiting requests of a replica whose topic was deleted or which moved to another node.

        A sync may still be in progress; `release` closes the files afterwards.
        """
        self.syncs.abandon()
        self._end_term(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def stop_waiting(self) -> None:
        """Wake fetches that wait for records, so that they check again."""
        for watcher in list(self.watchers):
            watcher.wake()
