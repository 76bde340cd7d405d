"""One partition on this node: its log, its role, its high watermark, and who waits for it to move.

A leader writes what clients send and tells its followers; a follower writes what its leader sends. Which of the two it
is, and in which epoch, the image says. Whoever waits for something that only the leader of an epoch can give is told at
once when that epoch ends here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from chronik.broker.flusher import Flusher
from chronik.broker.held_log import HeldLog
from chronik.broker.in_sync import Follower, FollowerLife, InSync
from chronik.broker.promises import Promises
from chronik.broker.recent import RecentBatches, RecentRoom
from chronik.broker.requests.incoming import Incoming, IncomingRules, marker_batch
from chronik.broker.requests.purgatory import RecordsArrived
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
"""More bytes than any fetch can wait for."""


class Reader(Protocol):
    """What a follower's session wants to hear of a partition."""

    def appended(self) -> None:
        """Is called when there are more records."""

    def moved(self, *, is_urgent: bool) -> None:
        """Is called when the high watermark or the log's start moves; `is_urgent` if somebody waits for followers."""

    def gone(self) -> None:
        """Is called when this node does not lead any more, or not in that epoch."""


class Replica(HeldLog):
    """Consumers never read above the high watermark: what every in-sync replica has made durable. Durable is what is
    synced (`flush = "group"`), or what is written (`flush = "os"`)."""

    __slots__ = (
        "_bytes_readable",
        "_marks",
        "_node_id",
        "_recent",
        "_starts",
        "bytes_appended",
        "commits",
        "durables",
        "is_hidden",
        "is_in_isr",
        "leader",
        "leader_epoch",
        "leading",
        "readers",
        "rules",
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
        *,
        flush_each_append: bool,
    ) -> None:
        """It has no role until `assume` gives it one."""
        super().__init__(topic, index, open_log, synced_offsets, flusher, flush_each_append=flush_each_append)
        self.leader = NO_LEADER
        self.leader_epoch = ANY_EPOCH
        self.is_in_isr = False
        self.is_hidden = topic.importing
        """Whether its topic is being imported: clients see nothing of it, and its log stays whole."""
        self.was_out_of_isr = False
        """At some time since the node started. If it leads without its log nevertheless, an operator wants that."""
        self.leading: InSync | None = None
        """What it knows of its followers, while this node leads the partition."""
        self.rules = rules
        self.watchers: dict[RecordsArrived, None] = {}
        self.readers: dict[Reader, None] = {}
        self._node_id = node_id
        self._recent = RecentBatches(recent_room)
        self.commits = Promises()
        """Those that wait until every in-sync replica has everything below an offset."""
        self.durables = Promises()
        """Those that wait until this node has it."""
        self._starts = News()  # of where the followers' logs start, or who of them is alive
        self.bytes_appended = 0
        self._bytes_readable = 0  # of those appended
        # (end offset, bytes appended) of batches that are not readable yet; created by the first append.
        self._marks: deque[tuple[int, int]] | None = None

    def _opened(self) -> None:
        if self.leading is not None:
            self._begin_term(self.leading)

    @property
    def committed_end(self) -> int:
        """How far this very log holds what is committed. What the cluster wrote down is true of the leader's log; a
        follower's may end in a tail that nobody committed."""
        return self.high_watermark if self.leading is not None else self._learnt

    def lag(self, written_down: int) -> int:
        """Returns how many committed records it lacks, as its leader last said or the cluster wrote down."""
        if self.leading is not None:
            return 0
        return max(0, max(self._told_high_watermark, written_down) - self.log.log_end_offset)

    # Roles

    @property
    def leads(self) -> bool:
        """Whether this node may write and serve the partition."""
        return self.leading is not None

    def assume(self, partition: Partition, now: float) -> None:
        """Takes the role that the image gives this node."""
        self.leader = partition.leader
        self.is_in_isr = self._node_id in partition.isr
        self.was_out_of_isr = self.was_out_of_isr or not self.is_in_isr
        if self.leading is not None and self.leader_epoch == partition.leader_epoch:
            self.leading.update(partition, now)
            self._starts.tell()
            if self._log is not None:
                self._advance()
        elif self.leader_epoch != partition.leader_epoch:
            if self.leader_epoch != ANY_EPOCH:  # a replica that is new has nothing to end, and there may be 10,000
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
        """Writes batches under this epoch from now on."""
        leading.epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(self.leader_epoch, self.log.log_end_offset)
        self._marks = None
        self._bytes_readable = self.bytes_appended
        self._advance()

    def _end_term(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Ends all waits: the next leader may cut off what is written here, so nobody may be told that it is safe."""
        self._learnt = self.committed_end
        self.leading = None
        self.commits.take_back(code)
        self.durables.take_back(code)
        for reader in list(self.readers):
            reader.gone()
        self.readers.clear()
        self._recent.clear()
        self._starts.tell()
        self.stop_waiting()

    def end_waits(self) -> None:
        """Ends waits for followers: others may believe that this node is gone, and lead the partition."""
        self.commits.take_back(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.stop_waiting()

    def begin_anew(self) -> int:
        """Goes on where the log ended, since an operator has given up what this disk has lost. Returns that offset.
        Raises KAFKA_STORAGE_ERROR when others are in sync, which have it all. Waits for the disk."""
        leading, log = self.leading, self.log
        if leading is None or any(member != self._node_id for member in leading.isr):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: others are in sync")
        self.begin_at(log.log_end_offset)
        return log.log_start_offset

    def begin_at(self, offset: int) -> None:
        """Drops all records, and leads on from `offset`. No sync may be under way. Waits for the disk."""
        self.restart_at(offset)
        if self.leading is not None:
            self._begin_term(self.leading)

    def check_epoch(self, claimed: int) -> None:
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH when client and broker disagree about who leads."""
        if claimed in (ANY_EPOCH, self.leader_epoch):
            return
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if claimed < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )

    # Leading

    @property
    def has_enough_replicas(self) -> bool:
        """Whether acks=all promises as many copies as the topic asks for (`min.insync.replicas`)."""
        leading = self.leading
        if leading is None:
            return False
        return len(leading.isr) >= min(self.rules.min_insync_replicas, len(leading.replicas))

    @property
    def knows_high_watermark(self) -> bool:
        """After an election it may be behind what consumers have seen, until it reaches where the epoch began."""
        return self.leading is not None and self.high_watermark >= self.leading.epoch_start_offset

    def append(self, incoming: Incoming, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendInfo:
        info = self.log.append(incoming.buffer, incoming.headers, self.leader_epoch, origin=origin)
        if not info.duplicate:
            self.bytes_appended += len(incoming.buffer)
            if self._marks is None:
                self._marks = deque()
            self._marks.append((info.last_offset + 1, self.bytes_appended))
            if self.readers:
                self._recent.add(info.base_offset, info.last_offset + 1, incoming.buffer)
            self._appended(len(incoming.buffer))
            for reader in self.readers:
                reader.appended()
        return info

    def append_marker(self, producer_id: int, producer_epoch: int, marker: TransactionMarker, now_ms: int) -> int:
        """Writes how the producer's transaction ended; returns the offset after it, which is to be committed.

        Raises NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED."""
        if self.leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        incoming = marker_batch(producer_id, producer_epoch, marker, now_ms)
        return self.append(incoming, AppendOrigin.COORDINATOR).last_offset + 1

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
        return self.log.read(offset, max_bytes, self.high_watermark, min_one_batch=min_one_batch)

    async def delete_records_before(self, offset: int) -> int:
        """Moves the start of the log; returns it when it is durable."""
        self.log.delete_records_before(offset)
        self._tell_readers(is_urgent=True)
        log_start_offset = self.log.log_start_offset
        await self.syncs.all_synced()
        return log_start_offset

    def apply_retention(self, now_ms: int) -> None:
        """Moves the start of the log as retention demands; files are removed once that is durable."""
        if self._log is not None and not self.is_hidden:
            if self._log.apply_retention(now_ms, self.committed_end):
                self._tell_readers()
            self.syncs.request_if_needed()

    async def low_watermark_reaches(self, offset: int, is_alive: Callable[[int], bool]) -> int:
        """Returns the offset from which on every living replica has its records, once it is `offset` or more. Raises
        NOT_LEADER_OR_FOLLOWER."""
        while self.leading is not None:
            seen = self._starts.count
            low_watermark = self.leading.low_watermark(self.log.log_start_offset, is_alive)
            if low_watermark >= offset:
                return low_watermark
            await self._starts.since(seen)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def isr_change_refused(self) -> None:
        """Takes back a proposed ISR: the follower that it would have brought in does not count any more."""
        if self.leading is not None:
            self.leading.refused()
            self._advance()

    def brokers_changed(self) -> None:
        """Wakes those who wait for a follower, to look whether it is still alive."""
        self._starts.tell()
        for watcher in list(self.watchers):
            watcher.brokers_changed()

    # What followers ask of their leader

    def divergence(
        self, offset: int, last_epoch: int, unknown: ErrorCode = ErrorCode.UNKNOWN_LEADER_EPOCH
    ) -> tuple[int, int] | None:
        """Returns where another log, which ends at `offset` in `last_epoch`, leaves this one: the largest epoch that
        both may have, and its end here. None when all of it is part of this log.

        Raises `unknown` when this log has no epoch to compare with."""
        if last_epoch < 0:
            return None  # it has nothing
        epoch, end_offset = self.log.epoch_end_offset(last_epoch)
        if epoch < 0:
            raise KafkaError(unknown)
        if epoch == last_epoch and end_offset >= offset:
            return None
        return epoch, end_offset

    def has(self, offset: int) -> bool:
        """Whether a log that ends at `offset` can be continued with this one."""
        return self.log.log_start_offset <= offset <= self.log.log_end_offset

    def follower_fetched(self, broker_id: int, offset: int, log_start_offset: int, life: FollowerLife) -> Follower:
        """Notes that a follower, whose log is a part of this one, has everything below `offset`."""
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
        """Reads up to the log's end, since followers need what is not committed yet; in consecutive pieces."""
        recent = self._recent.read(offset, max_bytes)
        if recent:
            return recent
        log = self.log
        records = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=min_one_batch)
        return [records] if records else []

    def append_from_leader(self, records: Buffer) -> bool:
        if self.leading is not None:  # spelled out: the message alone would cost more
            raise InvariantBroken(f"{self} follows and leads at once")
        return super().append_from_leader(records)

    # Moving on

    def is_committed(self, offset: int) -> bool:
        """Whether everything below `offset` is as safe as acks=all promises."""
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
        if self.commits:
            enough = self.has_enough_replicas
            self.commits.reached(
                high_watermark, ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            )
        before = self._bytes_readable
        marks = self._marks
        while marks and marks[0][0] <= high_watermark:
            self._bytes_readable = marks.popleft()[1]
        # What an earlier leader wrote has no marks, but it exists: those who wait have to look.
        arrived = self._bytes_readable - before or UNCOUNTED_BYTES
        if self.watchers:
            stable = arrived
            if self.log.producers.transactions.are_in_doubt:
                stable = self._stable_arrived(high_watermark_before, arrived)
            for watcher in list(self.watchers):
                watcher.arrived(stable if watcher.committed_only else arrived)
        self._tell_readers()

    def _stable_arrived(self, high_watermark_before: int, arrived: int) -> int:
        """Returns how many bytes more are decided. A marker, which is short, may decide all that was written while its
        transaction was open."""
        before, now = self.log.last_stable_offset(high_watermark_before), self.last_stable_offset
        if now == before:
            return 0
        is_all = before == high_watermark_before and now == self.high_watermark
        return arrived if is_all else UNCOUNTED_BYTES

    def _tell_readers(self, *, is_urgent: bool = False) -> None:
        for reader in self.readers:
            reader.moved(is_urgent=is_urgent)

    # Ending

    def abandon(self) -> None:
        """Wakes whoever waits for this partition, to find out that its topic was deleted.

        A sync may still be under way: the files are closed when it has ended (`release`).
        """
        self.syncs.abandon()
        self._end_term(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def stop_waiting(self) -> None:
        """Wakes fetches that wait for records, to look again."""
        for watcher in list(self.watchers):
            watcher.wake()
