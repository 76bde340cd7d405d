"""The log of a replica, independent of its role: lazy opening, syncing, replication from a leader, truncation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from chronik.broker.flusher import Flusher
from chronik.broker.log_syncer import LogSyncer
from chronik.broker.replicated_batches import first_base_offset, trim_first_batch
from chronik.errors import InvariantError
from chronik.files import Buffer
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError


class ReplicaLog:
    """The log of a replica, independent of its role.

    The high watermark is the last recorded one until it is updated.
    """

    __slots__ = (
        "_confirmed_offset",
        "_flush_each_append",
        "_leader_high_watermark",
        "_log",
        "_open_log",
        "_synced_offsets",
        "compaction",
        "durable_end_offset",
        "high_watermark",
        "index",
        "syncer",
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
        self._confirmed_offset = 0
        """The offset up to which a leader has confirmed that this log is equal to its own and committed. Later records
        may be uncommitted, whatever high watermark the metadata has recorded."""
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

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    def open(self) -> None:
        """Open the log unless it is open. Logs are opened lazily so that a node with many partitions starts quickly."""
        if self._log is None:
            log = self._log = self.syncer.log = self._open_log(self)
            self._update_end_offsets(log)
            self._on_opened()

    def _on_opened(self) -> None:
        """Run after the log was opened; a hook for subclasses."""

    def _update_end_offsets(self, log: PartitionLog) -> None:
        """Update the durable offset and high watermark after the log end offset has changed."""
        self.durable_end_offset = self._durable_end_of(log)
        self.high_watermark = max(log.log_start_offset, min(self.high_watermark, log.log_end_offset))
        self._confirmed_offset = min(self._confirmed_offset, log.log_end_offset)

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

    # Readable offsets

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that `read_committed` consumers may read."""
        return self.log.last_stable_offset(self.high_watermark)

    def readable_end_offset(self, *, committed_only: bool) -> int:
        """Return the offset up to which consumers may read: the last stable offset, or the high watermark."""
        return self.last_stable_offset if committed_only else self.high_watermark

    # Durability

    def is_durable(self, offset: int) -> bool:
        return offset <= self.durable_end_offset

    @property
    def is_fully_durable(self) -> bool:
        return self.durable_end_offset == self.log.log_end_offset

    def _durable_end_of(self, log: PartitionLog) -> int:
        return log.synced_offset if self._flush_each_append else log.log_end_offset

    def _on_appended(self, size: int) -> None:
        self.syncer.record_append(size)
        if self._flush_each_append:
            self.syncer.request_sync()
        else:
            self._advance()

    def _on_synced(self, log: PartitionLog) -> None:
        self._synced_offsets.record(self.topic_id, self.index, log.synced_offset)
        self._advance()

    def _advance(self) -> None:
        self.durable_end_offset = self._durable_end_of(self.log)

    # Data loss

    def open_or_raise(self) -> None:
        """Open the log.

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
    def damage_description(self) -> str | None:
        """A description of the records that the disk has lost, or None."""
        log = self._log
        if log is None or log.missing_start_offset is None:
            return None
        return (
            f"offsets {log.missing_start_offset} to {log.missing_end_offset - 1} were synced but are missing on "
            "this node's disk"
        )

    # Replication from a leader

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, or -1."""
        return self.log.epochs.latest_epoch

    def append_from_leader(self, records: Buffer) -> bool:
        """Append batches from the leader. Return False if there are none.

        Raises:
            CorruptRecords: The batches are damaged or do not continue the log.
        """
        if self.log.append_as_follower(trim_first_batch(records, self.log.log_end_offset)) is None:
            return False
        self._on_appended(len(records))
        return True

    def append_imported(self, records: Buffer, leader_epoch: int) -> None:
        """Append batches of an imported log unchanged, as the leader in this epoch.

        Raises:
            CorruptRecords: The batches are damaged or do not continue the log.
        """
        if self.log.append_imported(records, leader_epoch) is not None:
            self._on_appended(len(records))

    def must_restart_earlier(self, records: Buffer) -> bool:
        """Return whether the batches start before this empty log, whose start was set to the leader's log start offset.

        The leader's log start offset may lie inside a batch.

        Raises:
            CorruptRecords: The batch header is invalid.
        """
        log = self.log
        return log.log_start_offset == log.log_end_offset > first_base_offset(records)

    def update_from_leader(self, high_watermark: int, leader_start: int) -> None:
        """Apply the leader's high watermark and log start offset."""
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
        """Truncate records that the leader does not have. No sync may be in progress. Blocks on the disk."""
        log = self.log
        if offset < log.log_start_offset:
            log.truncate_fully_and_start_at(offset)
        else:
            log.truncate_to(offset)
        self._update_end_offsets(log)

    def restart_at(self, offset: int) -> None:
        """Delete all records and restart the log at `offset`. No sync may be in progress. Blocks on the disk."""
        self.log.truncate_fully_and_start_at(offset)
        self._update_end_offsets(self.log)

    # Closing

    def close(self) -> None:
        """Sync and close the log, and record its synced offset."""
        if self._log is not None:
            self._log.close()
            self._synced_offsets.record(self.topic_id, self.index, self._log.synced_offset)
            self._log = self.syncer.log = None

    async def release(self) -> None:
        """Close the files of an abandoned replica, so that they can be deleted."""
        await self.syncer.wait_until_idle()
        if self.compaction is not None:
            await asyncio.wait([self.compaction])
        self._log = self.syncer.log = None
