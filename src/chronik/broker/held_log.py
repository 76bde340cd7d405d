"""The log of one partition as this node holds it, whoever leads: opened late, synced, continued by a leader, cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from chronik.broker.continuation import continued_at, first_offset
from chronik.broker.flusher import Flusher
from chronik.broker.syncs import Syncs
from chronik.errors import InvariantBroken
from chronik.files import Buffer
from chronik.log.files.synced import SyncedOffsets
from chronik.log.partition import PartitionLog
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError


class HeldLog:
    """Its high watermark is what the cluster last wrote down, until more is known of it."""

    __slots__ = (
        "_flush_each_append",
        "_learnt",
        "_log",
        "_open_log",
        "_synced_offsets",
        "_told_high_watermark",
        "compaction",
        "durable_end",
        "high_watermark",
        "index",
        "syncs",
        "topic_id",
        "topic_name",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        open_log: Callable[[Any], PartitionLog],
        synced_offsets: SyncedOffsets,
        flusher: Flusher,
        *,
        flush_each_append: bool,
    ) -> None:
        self.topic_name = topic.name
        self.topic_id = topic.id
        self.index = index
        self.high_watermark = topic.partitions[index].high_watermark
        self._learnt = 0
        """How far a leader has found this very log equal to its own, and committed it. A tail after it may be one that
        nobody committed, whatever the cluster wrote down."""
        self._told_high_watermark = 0
        self.durable_end = 0
        """How far the log is as safe as one node can make it."""
        self.syncs = Syncs(flusher, self._synced)
        self.compaction: asyncio.Future[None] | None = None
        """The compaction under way, which reads and writes files of the log."""
        self._open_log = open_log
        self._log: PartitionLog | None = None
        self._synced_offsets = synced_offsets
        self._flush_each_append = flush_each_append

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    def open(self) -> None:
        """Opens the log, unless it is open: thousands of partitions must not hold up the start of a node."""
        if self._log is None:
            log = self._log = self.syncs.log = self._open_log(self)
            self._find_ends(log)
            self._opened()

    def _opened(self) -> None:
        """Is called when the log is opened, for subclasses."""

    def _find_ends(self, log: PartitionLog) -> None:
        """Takes over the ends of the log, which have changed."""
        self.durable_end = self._durable_end_of(log)
        self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))
        self._learnt = min(self._learnt, log.log_end_offset)

    @property
    def log(self) -> PartitionLog:
        log = self._log
        if log is None:  # no `invariant`: this is called so often that making the message would cost one percent
            raise InvariantBroken(f"{self} is used before it is opened")
        return log

    @property
    def opened_log(self) -> PartitionLog | None:
        return self._log

    @property
    def abandoned(self) -> bool:
        """Whether the topic was deleted, or this node no longer holds it."""
        return self.syncs.is_abandoned

    # What is readable

    @property
    def last_stable_offset(self) -> int:
        """Where those stop who read only what was committed."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_end(self, *, committed_only: bool) -> int:
        """Returns the offset up to which consumers read: all that is committed, or only where all is decided."""
        return self.last_stable_offset if committed_only else self.high_watermark

    # What is durable

    def is_durable(self, offset: int) -> bool:
        return offset <= self.durable_end

    @property
    def is_all_durable(self) -> bool:
        return self.durable_end == self.log.log_end_offset

    def _durable_end_of(self, log: PartitionLog) -> int:
        return log.synced_offset if self._flush_each_append else log.log_end_offset

    def _appended(self, size: int) -> None:
        self.syncs.appended(size)
        if self._flush_each_append:
            self.syncs.request()
        else:
            self._advance()

    def _synced(self, log: PartitionLog) -> None:
        self._synced_offsets.record(self.topic_id, self.index, log.synced_offset)
        self._advance()

    def _advance(self) -> None:
        self.durable_end = self._durable_end_of(self.log)

    # What this disk has lost

    def open_unless_lost(self) -> None:
        """Raises KAFKA_STORAGE_ERROR if the log is lost: to serve nothing would look like an empty partition."""
        log = self._log
        if log is None:
            self.open()
            log = self.log
        if log.missing_from is not None and log.is_lost:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {self.damage}")

    @property
    def damage(self) -> str | None:
        """What this disk has lost of the log, as was found when it was opened."""
        log = self._log
        if log is None or log.missing_from is None:
            return None
        return f"offsets {log.missing_from} to {log.missing_end - 1} were synced once and are gone from this disk"

    # Following a leader

    @property
    def last_epoch(self) -> int:
        """The epoch that wrote the last batch; -1 when there is none."""
        return self.log.epochs.latest_epoch

    def append_from_leader(self, records: Buffer) -> bool:
        """Returns whether there was anything to append. Raises CorruptRecords."""
        if self.log.append_as_follower(continued_at(records, self.log.log_end_offset)) is None:
            return False
        self._appended(len(records))
        return True

    def append_imported(self, records: Buffer, leader_epoch: int) -> None:
        """Writes batches of another store's log, as they stand there, as the leader in this epoch. Raises
        CorruptRecords."""
        if self.log.append_imported(records, leader_epoch) is not None:
            self._appended(len(records))

    def has_to_begin_earlier(self, records: Buffer) -> bool:
        """Whether this empty log was told to begin where the leader's does, which turns out to be inside a batch.

        Raises CorruptRecords."""
        log = self.log
        return log.log_start_offset == log.log_end_offset > first_offset(records)

    def learn(self, high_watermark: int, leader_start: int) -> None:
        """Takes in what the leader says of the log that both share."""
        log = self.log
        self._told_high_watermark = high_watermark
        self.high_watermark = max(self.high_watermark, min(high_watermark, log.log_end_offset))
        self._learnt = max(self._learnt, min(high_watermark, log.log_end_offset))
        start = min(leader_start, log.log_end_offset)
        if start > log.log_start_offset:
            log.delete_records_before(start)
            self.high_watermark = max(self.high_watermark, start)
            self.syncs.request_if_needed()

    def truncate_to(self, offset: int) -> None:
        """Cuts off what the leader does not have. No sync may be under way. Waits for the disk."""
        log = self.log
        if offset < log.log_start_offset:
            log.truncate_fully_and_start_at(offset)
        else:
            log.truncate_to(offset)
        self._find_ends(log)

    def restart_at(self, offset: int) -> None:
        """Drops all records and begins again at `offset`. No sync may be under way. Waits for the disk."""
        self.log.truncate_fully_and_start_at(offset)
        self._find_ends(self.log)

    # Ending

    def close(self) -> None:
        """Syncs and closes the log, so that the next start finds everything as it is."""
        if self._log is not None:
            self._log.close()
            self._synced_offsets.record(self.topic_id, self.index, self._log.synced_offset)
            self._log = self.syncs.log = None

    async def release(self) -> None:
        """Closes the files of an abandoned partition, so that they can be removed."""
        await self.syncs.settled()
        if self.compaction is not None:
            await asyncio.wait([self.compaction])
        self._log = self.syncs.log = None
