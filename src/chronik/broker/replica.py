"""One partition on this node: its log, its role, its high watermark, and who waits for it to move.

A leader writes what clients send and tells its followers; a follower writes what its leader sends. Which of the two it
is, and in which epoch, the image says. Whoever waits for something that only the leader of an epoch can give is told at
once when that epoch ends here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from chronik.broker.continuation import continued_at, first_offset
from chronik.broker.flusher import Flusher
from chronik.broker.in_sync import Follower, FollowerLife, InSync
from chronik.broker.incoming import Incoming, IncomingRules
from chronik.broker.purgatory import RecordsArrived
from chronik.broker.recent import RecentBatches, RecentRoom
from chronik.errors import InvariantBroken, invariant
from chronik.files import Buffer
from chronik.log.partition import AppendInfo, PartitionLog
from chronik.log.sync import SyncTicket
from chronik.log.synced import SyncedOffsets
from chronik.metadata.commands import NO_LEADER
from chronik.metadata.records import Partition, Topic
from chronik.news import News
from chronik.protocol.errors import ErrorCode, KafkaError

ANY_EPOCH = -1

UNCOUNTED_BYTES = 2**31
"""As many as any fetch can wait for."""

WhenSafe = Callable[[ErrorCode], None]
"""Told NONE, or why nobody can promise that the records are safe."""


class Reader(Protocol):
    """A follower's interest in a partition."""

    def appended(self) -> None:
        """There are more records."""

    def moved(self, *, is_urgent: bool) -> None:
        """The high watermark or the log's start has moved; `is_urgent` when somebody waits for followers to know."""

    def gone(self) -> None:
        """This node does not lead any more, or not in that epoch."""


class Replica:
    """Consumers never read above the high watermark: what every in-sync replica has made durable. Durable is what is
    synced (`flush = "group"`), or what is written (`flush = "os"`)."""

    __slots__ = (
        "_bytes_appended",
        "_bytes_readable",
        "_bytes_synced",
        "_bytes_syncing",
        "_commit_waiters",
        "_durable_waiters",
        "_flush_each_append",
        "_flusher",
        "_learnt",
        "_log",
        "_marks",
        "_node_id",
        "_open_log",
        "_recent",
        "_starts",
        "_sync_waiters",
        "_synced_offsets",
        "_syncing_waiters",
        "_told_high_watermark",
        "abandoned",
        "compaction",
        "durable_end",
        "high_watermark",
        "index",
        "is_in_isr",
        "leader",
        "leader_epoch",
        "leading",
        "readers",
        "rules",
        "topic_id",
        "topic_name",
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
        self.topic_name = topic.name
        self.topic_id = topic.id
        self.index = index
        self.leader = NO_LEADER
        self.leader_epoch = ANY_EPOCH
        self.is_in_isr = False
        self.was_out_of_isr = False
        """At some time since the node started. If it leads and has lost its log all the same, an operator wanted it."""
        self.leading: InSync | None = None
        """What it knows of its followers, while this node leads the partition."""
        self.rules = rules
        self.high_watermark = topic.partitions[index].high_watermark
        self._learnt = 0
        self._told_high_watermark = 0
        self.durable_end = 0
        """How far this node's own log is as safe as one node can make it."""
        self.watchers: dict[RecordsArrived, None] = {}
        self.readers: dict[Reader, None] = {}
        self._node_id = node_id
        self._open_log = open_log
        self._log: PartitionLog | None = None
        self._synced_offsets = synced_offsets
        self._flusher = flusher
        self._flush_each_append = flush_each_append
        self._recent = RecentBatches(recent_room)
        self._commit_waiters: deque[tuple[int, WhenSafe]] = deque()
        self._durable_waiters: deque[tuple[int, WhenSafe]] = deque()
        self._sync_waiters: list[asyncio.Future[None]] = []  # for the next sync to begin
        self._syncing_waiters: list[asyncio.Future[None]] = []  # for the one under way
        self._starts = News()  # of where the followers' logs start, or who of them is alive
        self._bytes_appended = 0
        self._bytes_readable = 0  # of those appended
        self._marks: deque[tuple[int, int]] = deque()  # (end offset, bytes appended) of what is not readable yet
        self._bytes_syncing = 0
        self._bytes_synced = 0
        self.abandoned = False
        self.compaction: asyncio.Future[None] | None = None
        """The compaction under way, which reads and writes files of the log."""

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    def open(self) -> None:
        """Opens the log, unless it is: thousands of partitions must not hold up the start of a node."""
        if self._log is None:
            log = self._log = self._open_log(self)
            self.durable_end = self._durable_end_of(log)
            # What the cluster last wrote down of it; a leader finds out more from its followers.
            self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))
            self._learnt = min(self._learnt, log.log_end_offset)
            if self.leading is not None:
                self._begin_term(self.leading)

    @property
    def log(self) -> PartitionLog:
        log = self._log
        if log is None:  # spelled out: it is asked for so often that the message alone would cost one percent
            raise InvariantBroken(f"{self} is used before it is opened")
        return log

    @property
    def opened_log(self) -> PartitionLog | None:
        return self._log

    @property
    def committed_end(self) -> int:
        """Up to where this very log holds what is committed. What the cluster wrote down holds for the leader's log;
        a follower's may end in a tail that nobody committed, until its leader has taken it for a part of its own."""
        return self.high_watermark if self.leading is not None else self._learnt

    def lag(self, written_down: int) -> int:
        """Records that are committed, as its leader last said or the cluster wrote down, and that it does not hold."""
        if self.leading is not None:
            return 0
        return max(0, max(self._told_high_watermark, written_down) - self.log.log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

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
        """From now on batches are written under this epoch."""
        leading.epoch_start_offset = self.log.log_end_offset
        self.log.assign_epoch(self.leader_epoch, self.log.log_end_offset)
        self._marks.clear()
        self._bytes_readable = self._bytes_appended
        self._advance()

    def _end_term(self, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """What is written here may be cut off by the next leader: nobody may be told that it is safe."""
        self._learnt = self.committed_end
        self.leading = None
        waiters = [*self._commit_waiters, *self._durable_waiters]
        self._commit_waiters.clear()
        self._durable_waiters.clear()
        for _, when_safe in waiters:
            when_safe(code)
        for reader in list(self.readers):
            reader.gone()
        self.readers.clear()
        self._recent.clear()
        self._starts.tell()
        self.stop_waiting()

    def end_waits(self) -> None:
        """Others may believe that this node is gone, and lead the partition: who waits for followers waits in vain."""
        waiters = list(self._commit_waiters)
        self._commit_waiters.clear()
        for _, when_safe in waiters:
            when_safe(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.stop_waiting()

    def refuse_if_lost(self) -> None:
        """Raises KAFKA_STORAGE_ERROR: to serve nothing from its old end on would look like an empty partition."""
        if self._log is not None and self._log.missing_from is not None and self._log.is_lost:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {self.damage}")

    @property
    def damage(self) -> str | None:
        """What this disk has lost of it, as was found when it was opened."""
        log = self._log
        if log is None or log.missing_from is None:
            return None
        return f"offsets {log.missing_from} to {log.missing_end - 1} were synced once and are gone from this disk"

    def begin_anew(self) -> int:
        """An operator has given up what this disk has lost: the log goes on where it ended. Returns that offset.

        Raises KAFKA_STORAGE_ERROR when others are in sync, who have it all. Waits for the disk."""
        leading, log = self.leading, self.log
        if leading is None or any(member != self._node_id for member in leading.isr):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: others are in sync")
        log.truncate_fully_and_start_at(log.log_end_offset)
        self._was_cut(log)
        self._begin_term(leading)
        return log.log_start_offset

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

    def append(self, incoming: Incoming) -> AppendInfo:
        info = self.log.append(incoming.buffer, incoming.headers, self.leader_epoch)
        if not info.duplicate:
            self._marks.append((info.last_offset + 1, self._bytes_appended + len(incoming.buffer)))
            if self.readers:
                self._recent.add(info.base_offset, info.last_offset + 1, incoming.buffer)
            self._appended(len(incoming.buffer))
            for reader in self.readers:
                reader.appended()
        return info

    def _appended(self, size: int) -> None:
        self._bytes_appended += size
        if self._flush_each_append:
            self._flusher.request(self)
        else:
            self._advance()

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        # Between the high watermark and the log's end there is nothing to see yet, but the offset is not wrong.
        return log.read(offset, max_bytes, self.high_watermark, min_one_batch=min_one_batch)

    async def delete_records_before(self, offset: int) -> int:
        """Moves the start of the log; returns it when it is durable."""
        self.log.delete_records_before(offset)
        self._tell_readers(is_urgent=True)
        log_start_offset = self.log.log_start_offset
        await self.make_durable()
        return log_start_offset

    def apply_retention(self, now_ms: int) -> None:
        """Files go, and the start of the log with them, once that is durable."""
        if self._log is not None:
            if self._log.apply_retention(now_ms, self.committed_end):
                self._tell_readers()
            self.sync_soon()

    async def low_watermark_reaches(self, offset: int, is_alive: Callable[[int], bool]) -> int:
        """Returns the offset from which on every living replica has its records, once it is `offset` or more.

        Raises NOT_LEADER_OR_FOLLOWER.
        """
        while self.leading is not None:
            seen = self._starts.count
            low_watermark = self.leading.low_watermark(self.log.log_start_offset, is_alive)
            if low_watermark >= offset:
                return low_watermark
            await self._starts.since(seen)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def isr_change_refused(self) -> None:
        """Whom it would have brought in does not count any more: the others may have more than that one."""
        if self.leading is not None:
            self.leading.refused()
            self._advance()

    def brokers_changed(self) -> None:
        """Whoever waits for a follower has to look whether it is still alive."""
        self._starts.tell()
        for watcher in list(self.watchers):
            watcher.brokers_changed()

    # What followers ask of their leader

    def divergence(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """Where a follower's log that ends at `offset`, in `last_epoch`, is not this one: the largest epoch that both
        may have, and its end here. None when all it has is what this log has, as far as it goes.

        Raises UNKNOWN_LEADER_EPOCH."""
        if last_epoch < 0:
            return None  # it has nothing
        epoch, end_offset = self.log.epoch_end_offset(last_epoch)
        if epoch < 0:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if epoch == last_epoch and end_offset >= offset:
            return None
        return epoch, end_offset

    def has(self, offset: int) -> bool:
        """Whether a log that ends at `offset` can be continued with this one."""
        return self.log.log_start_offset <= offset <= self.log.log_end_offset

    def follower_fetched(self, broker_id: int, offset: int, log_start_offset: int, life: FollowerLife) -> Follower:
        """A follower whose log is this one, as far as it goes, has everything below `offset`."""
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
        """Up to the log's end, for followers have to have what is not committed yet; in pieces that follow each other.
        """
        recent = self._recent.read(offset, max_bytes)
        if recent:
            return recent
        log = self.log
        records = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=min_one_batch)
        return [records] if records else []

    # Following

    @property
    def last_epoch(self) -> int:
        """The epoch that wrote the last batch; -1 when there is none."""
        return self.log.epochs.latest_epoch

    def append_from_leader(self, records: Buffer) -> bool:
        """Raises CorruptRecords. Whether there was anything."""
        invariant(self.leading is None, f"{self} follows and leads at once")
        if self.log.append_as_follower(continued_at(records, self.log.log_end_offset)) is None:
            return False
        self._appended(len(records))
        return True

    def has_to_begin_earlier(self, records: Buffer) -> bool:
        """It has nothing, and was told to begin where the leader's log does: inside of a batch, as it turns out.

        Raises CorruptRecords."""
        log = self.log
        return log.log_start_offset == log.log_end_offset > first_offset(records)

    def learn(self, high_watermark: int, leader_start: int) -> None:
        """What the leader says of the log they share."""
        log = self.log
        self._told_high_watermark = high_watermark
        self.high_watermark = max(self.high_watermark, min(high_watermark, log.log_end_offset))
        self._learnt = max(self._learnt, min(high_watermark, log.log_end_offset))
        start = min(leader_start, log.log_end_offset)
        if start > log.log_start_offset:
            log.delete_records_before(start)
            self.high_watermark = max(self.high_watermark, start)
            self.sync_soon()

    def truncate_to(self, offset: int) -> None:
        """Cuts off what the leader does not have. No sync may be under way. Waits for the disk."""
        log = self.log
        if offset < log.log_start_offset:
            log.truncate_fully_and_start_at(offset)
        else:
            log.truncate_to(offset)
        self._was_cut(log)

    def restart_at(self, offset: int) -> None:
        """Nothing that this log holds is in the leader's any more. No sync may be under way. Waits for the disk."""
        self.log.truncate_fully_and_start_at(offset)
        self._was_cut(self.log)

    def _was_cut(self, log: PartitionLog) -> None:
        self.durable_end = self._durable_end_of(log)
        self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))
        self._learnt = min(self._learnt, log.log_end_offset)

    async def settled(self) -> None:
        """Returns when no sync is under way."""
        await self._flusher.settled(self)

    # Waiting

    @property
    def unsynced_bytes(self) -> int:
        return self._bytes_appended - self._bytes_synced

    def is_committed(self, offset: int) -> bool:
        """Whether everything below `offset` is as safe as it will be acknowledged to be."""
        return offset <= self.high_watermark

    def is_durable(self, offset: int) -> bool:
        return offset <= self.durable_end

    @property
    def is_all_durable(self) -> bool:
        return self.durable_end == self.log.log_end_offset

    def when_committed(self, offset: int, when_safe: WhenSafe) -> None:
        """Every in-sync replica has everything below `offset`."""
        _enlist(self._commit_waiters, offset, when_safe)

    def when_durable(self, offset: int, when_safe: WhenSafe) -> None:
        """This node has everything below `offset`."""
        _enlist(self._durable_waiters, offset, when_safe)

    async def make_durable(self) -> None:
        """Returns when everything that the log holds now is synced: by a sync that begins now, or by one that is under
        way, if nothing was written since.

        Raises UNKNOWN_TOPIC_OR_PARTITION when the partition goes away."""
        if self.abandoned:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.needs_sync:
            self._sync_waiters.append(waiter)
            self._flusher.request(self)
        elif self.log.is_syncing:
            self._syncing_waiters.append(waiter)
        else:
            return
        await waiter

    def sync_soon(self) -> None:
        if self._log is not None and self._log.needs_sync and not self.abandoned:
            self._flusher.request(self)

    def begin_sync(self) -> SyncTicket | None:
        if self._log is None or self.abandoned:
            return None
        ticket = self._log.begin_sync()
        self._bytes_syncing = self._bytes_appended
        self._syncing_waiters, self._sync_waiters = self._sync_waiters, []
        if ticket is None:
            self._end_waits()
        return ticket

    def complete_sync(self, ticket: SyncTicket) -> None:
        if self._log is None:
            return
        self._log.complete_sync(ticket)
        self._bytes_synced = self._bytes_syncing
        if self.abandoned:
            return
        self._synced_offsets.record(self.topic_id, self.index, self._log.synced_offset)
        self._end_waits()
        self._advance()

    def _end_waits(self) -> None:
        for waiter in self._syncing_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._syncing_waiters = []

    def _durable_end_of(self, log: PartitionLog) -> int:
        return log.synced_offset if self._flush_each_append else log.log_end_offset

    def _advance(self) -> None:
        durable = self.durable_end = self._durable_end_of(self.log)
        while self._durable_waiters and self._durable_waiters[0][0] <= durable:
            self._durable_waiters.popleft()[1](ErrorCode.NONE)
        if self.leading is not None:
            self._commit(self.leading.high_watermark(durable))

    def _commit(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        self._recent.drop_below(high_watermark)
        if self._commit_waiters:
            enough = self.has_enough_replicas
            code = ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            while self._commit_waiters and self._commit_waiters[0][0] <= high_watermark:
                self._commit_waiters.popleft()[1](code)
        before = self._bytes_readable
        while self._marks and self._marks[0][0] <= high_watermark:
            self._bytes_readable = self._marks.popleft()[1]
        # What an earlier leader wrote has no marks, but it is there: whoever waits has to look.
        arrived = self._bytes_readable - before or UNCOUNTED_BYTES
        for watcher in list(self.watchers):
            watcher.arrived(arrived)
        self._tell_readers()

    def _tell_readers(self, *, is_urgent: bool = False) -> None:
        for reader in self.readers:
            reader.moved(is_urgent=is_urgent)

    # Ending

    def close(self) -> None:
        """Syncs and closes the log, so that the next start finds everything as it is."""
        if self._log is not None:
            self._log.close()
            self._synced_offsets.record(self.topic_id, self.index, self._log.synced_offset)
            self._log = None

    def abandon(self) -> None:
        """The topic was deleted: whoever waits for this partition looks again, and finds that out.

        A sync may still be under way: the files are let go of when it has ended (`release`).
        """
        self.abandoned = True
        self._end_term(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for waiter in (*self._sync_waiters, *self._syncing_waiters):
            if not waiter.done():
                waiter.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self._sync_waiters, self._syncing_waiters = [], []

    def stop_waiting(self) -> None:
        """Fetches that wait for records look again."""
        for watcher in list(self.watchers):
            watcher.wake()

    async def release(self) -> None:
        """Lets go of the files of an abandoned partition, so that they can be removed."""
        await self._flusher.settled(self)
        if self.compaction is not None:
            await asyncio.wait([self.compaction])
        self._log = None


def _enlist(waiters: deque[tuple[int, WhenSafe]], offset: int, when_safe: WhenSafe) -> None:
    """The lowest offset first: a batch that is sent again lies below others that came after it."""
    place = len(waiters)
    while place and waiters[place - 1][0] > offset:
        place -= 1
    waiters.insert(place, (offset, when_safe))
