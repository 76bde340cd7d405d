"""One partition on this node: its log, its high watermark, and who waits for it to move."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from chronik.broker.flusher import Flusher
from chronik.broker.incoming import Incoming, IncomingRules
from chronik.errors import invariant
from chronik.log.partition import AppendInfo, PartitionLog
from chronik.log.sync import SyncTicket
from chronik.log.synced import SyncedOffsets
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from chronik.broker.purgatory import RecordsArrived

ANY_EPOCH = -1


class Replica:
    """Consumers never read above the high watermark. On a single node that is what is synced (`flush = "group"`), or
    what is written (`flush = "os"`)."""

    __slots__ = (
        "_bytes_announced",
        "_bytes_appended",
        "_commit_waiters",
        "_flush_each_append",
        "_flusher",
        "_log",
        "_open_log",
        "_sync_waiters",
        "_synced_offsets",
        "_syncing_waiters",
        "abandoned",
        "compaction",
        "high_watermark",
        "index",
        "leader_epoch",
        "leads",
        "rules",
        "topic_id",
        "topic_name",
        "watchers",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        rules: IncomingRules,
        open_log: Callable[[Replica], PartitionLog],
        synced_offsets: SyncedOffsets,
        flusher: Flusher,
        *,
        flush_each_append: bool,
    ) -> None:
        self.topic_name = topic.name
        self.topic_id = topic.id
        self.index = index
        self.leader_epoch = topic.partitions[index].leader_epoch
        self.leads = False
        """Whether this node may write and serve the partition."""
        self.rules = rules
        self.high_watermark = 0
        self.watchers: dict[RecordsArrived, None] = {}
        self._open_log = open_log
        self._log: PartitionLog | None = None
        self._synced_offsets = synced_offsets
        self._flusher = flusher
        self._flush_each_append = flush_each_append
        self._commit_waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self._sync_waiters: list[asyncio.Future[None]] = []  # for the next sync to begin
        self._syncing_waiters: list[asyncio.Future[None]] = []  # for the one under way
        self._bytes_appended = 0
        self._bytes_announced = 0
        self.abandoned = False
        self.compaction: asyncio.Future[None] | None = None
        """The compaction under way, which reads and writes files of the log."""

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    def open(self) -> None:
        """Opens the log, unless it is: thousands of partitions must not hold up the start of a node."""
        if self._log is None:
            self._log = self._open_log(self)
            self._log.assign_epoch(self.leader_epoch, self._log.log_end_offset)
            self.high_watermark = self._committed_end(self._log)

    @property
    def log(self) -> PartitionLog:
        invariant(self._log is not None, f"{self} is used before it is opened")
        assert self._log is not None
        return self._log

    @property
    def opened_log(self) -> PartitionLog | None:
        return self._log

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    # Leading

    def check_epoch(self, claimed: int) -> None:
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH when client and broker disagree about who leads."""
        if claimed in (ANY_EPOCH, self.leader_epoch):
            return
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if claimed < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )

    def lead(self, leader_epoch: int) -> None:
        """From now on batches are written under this epoch."""
        self.leader_epoch = leader_epoch
        if self._log is not None:
            self._log.assign_epoch(leader_epoch, self._log.log_end_offset)

    def append(self, incoming: Incoming) -> AppendInfo:
        info = self.log.append(incoming.buffer, incoming.headers, self.leader_epoch)
        if not info.duplicate:
            self._bytes_appended += len(incoming.buffer)
            if self._flush_each_append:
                self._flusher.request(self)
            else:
                self._advance()
        return info

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> memoryview:
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        # Between the high watermark and the log's end there is nothing to see yet, but the offset is not wrong.
        return log.read(offset, max_bytes, self.high_watermark, min_one_batch=min_one_batch)

    async def delete_records_before(self, offset: int) -> int:
        """Moves the start of the log; returns it when it is durable."""
        self.log.delete_records_before(offset)
        log_start_offset = self.log.log_start_offset
        await self.make_durable()
        return log_start_offset

    # Waiting

    @property
    def unsynced_bytes(self) -> int:
        return self._bytes_appended - self._bytes_announced

    def is_committed(self, offset: int) -> bool:
        """Whether everything below `offset` is as safe as it will be acknowledged to be."""
        return offset <= self.high_watermark

    def when_committed(self, offset: int, callback: Callable[[], None]) -> None:
        self._commit_waiters.append((offset, callback))

    async def make_durable(self) -> None:
        """Returns when everything that the log holds now is synced: a sync that began later has ended."""
        if self.log.needs_sync:
            waiter = asyncio.get_running_loop().create_future()
            self._sync_waiters.append(waiter)
            self._flusher.request(self)
            await waiter

    def sync_soon(self) -> None:
        if self._log is not None and self._log.needs_sync and not self.abandoned:
            self._flusher.request(self)

    def begin_sync(self) -> SyncTicket | None:
        if self._log is None or self.abandoned:
            return None
        ticket = self._log.begin_sync()
        self._syncing_waiters, self._sync_waiters = self._sync_waiters, []
        if ticket is None:
            self._end_waits()
        return ticket

    def complete_sync(self, ticket: SyncTicket) -> None:
        if self._log is None:
            return
        self._log.complete_sync(ticket)
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

    def _committed_end(self, log: PartitionLog) -> int:
        return log.synced_offset if self._flush_each_append else log.log_end_offset

    def _advance(self) -> None:
        committed = self._committed_end(self.log)
        if committed <= self.high_watermark:
            return
        self.high_watermark = committed
        while self._commit_waiters and self._commit_waiters[0][0] <= committed:
            self._commit_waiters.popleft()[1]()
        arrived = self._bytes_appended - self._bytes_announced
        self._bytes_announced = self._bytes_appended
        for watcher in list(self.watchers):
            watcher.arrived(arrived)

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
        for _, callback in self._commit_waiters:
            callback()
        self._commit_waiters.clear()
        for waiter in (*self._sync_waiters, *self._syncing_waiters):
            if not waiter.done():
                waiter.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self._sync_waiters, self._syncing_waiters = [], []
        self.stop_waiting()

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
