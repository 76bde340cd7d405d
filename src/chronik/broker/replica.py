"""One partition on this node: its log, its high watermark, and who waits for it to move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from chronik.broker.flusher import Flusher, SyncTicket
from chronik.broker.incoming import Incoming, IncomingRules
from chronik.log.partition import AppendInfo, PartitionLog
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
        "_flusher",
        "_open_log",
        "_log",
        "high_watermark",
        "index",
        "leader_epoch",
        "rules",
        "topic_id",
        "topic_name",
        "watchers",
    )

    def __init__(
        self,
        topic_name: str,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        rules: IncomingRules,
        open_log: Callable[[Replica], PartitionLog],
        flusher: Flusher | None,
    ) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.rules = rules
        self.high_watermark = 0
        self.watchers: dict[RecordsArrived, None] = {}
        self._flusher = flusher  # None leaves syncing to the operating system
        self._open_log = open_log
        self._log: PartitionLog | None = None
        self._commit_waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self._bytes_appended = 0
        self._bytes_announced = 0

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    @property
    def log(self) -> PartitionLog:
        """Opened on first use: thousands of partitions must not hold up the start of a node."""
        if self._log is None:
            self._log = self._open_log(self)
            self.high_watermark = self._committed_end(self._log)
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
        if claimed == ANY_EPOCH or claimed == self.leader_epoch:
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
        log = self.log
        info = log.append(incoming.buffer, incoming.headers, self.leader_epoch)
        self._bytes_appended += len(incoming.buffer)
        if self._flusher is None:
            self._advance()
        else:
            self._flusher.request(self)
        return info

    def read(self, offset: int, max_bytes: int, *, min_one_batch: bool) -> bytes | memoryview:
        log = self.log
        if not log.log_start_offset <= offset <= self.high_watermark:
            # Between the high watermark and the log's end there is nothing to see yet, but the offset is not wrong.
            if self.high_watermark < offset <= log.log_end_offset:
                return b""
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset == self.high_watermark:
            return b""
        return log.read(offset, max_bytes, self.high_watermark, min_one_batch=min_one_batch)

    # Waiting

    def is_committed(self, offset: int) -> bool:
        """Whether everything below `offset` is as safe as it will be acknowledged to be."""
        return offset <= self.high_watermark

    def when_committed(self, offset: int, callback: Callable[[], None]) -> None:
        self._commit_waiters.append((offset, callback))

    def begin_sync(self) -> SyncTicket | None:
        return self._log.begin_sync() if self._log is not None else None

    def complete_sync(self, ticket: SyncTicket) -> None:
        if self._log is not None:
            self._log.complete_sync(ticket)
            self._advance()

    def _committed_end(self, log: PartitionLog) -> int:
        return log.log_end_offset if self._flusher is None else log.synced_offset

    def _advance(self) -> None:
        assert self._log is not None
        committed = self._committed_end(self._log)
        if committed <= self.high_watermark:
            return
        self.high_watermark = committed
        while self._commit_waiters and self._commit_waiters[0][0] <= committed:
            self._commit_waiters.popleft()[1]()
        arrived = self._bytes_appended - self._bytes_announced
        self._bytes_announced = self._bytes_appended
        for watcher in list(self.watchers):
            watcher.arrived(arrived)

    def abandon(self) -> None:
        """The partition is gone: whoever waits for it looks again, and finds that out."""
        for watcher in list(self.watchers):
            watcher.wake()
        self._log = None
