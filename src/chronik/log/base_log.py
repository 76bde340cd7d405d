"""The state of a partition log: how it is opened, synced and closed. See `partition_log` for its operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from chronik.clock import Clock
from chronik.errors import InvariantError, check_invariant
from chronik.files import FileCache, FileSystem
from chronik.log.config import LogConfig
from chronik.log.files import names
from chronik.log.files.checkpoints import LogCheckpoints, OffsetCheckpointFile
from chronik.log.producer_snapshots import ProducerStateStore
from chronik.log.producer_state import ProducerLimit, ProducerStateManager
from chronik.log.recovery import RecoveredLog, recover_log
from chronik.log.segments import LogSegments
from chronik.log.sync import PendingSync, SyncTask


def _reject_lowering(offset: int) -> None:
    raise InvariantError("truncation below the synced offset of a log that was opened without lower_recovery_point")


class BaseLog:
    """The base class of `PartitionLog`: the state of a log, and how it is opened, synced and closed."""

    __slots__ = (
        "_cache",
        "_checkpoints",
        "_clock",
        "_files",
        "_lower_recovery_point",
        "_producers",
        "_segments",
        "_sync_task",
        "_truncations",
        "_unsynced",
        "config",
        "directory",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "missing_end_offset",
        "missing_start_offset",
        "synced_offset",
    )

    def __init__(
        self,
        files: FileSystem,
        cache: FileCache,
        directory: str,
        config: LogConfig,
        clock: Clock,
        lower_recovery_point: Callable[[int], None],
        recovered: RecoveredLog,
        producer_limit: ProducerLimit | None = None,
    ) -> None:
        """Create a log from its recovered state; use `open` instead."""
        self.directory = directory
        self.config = config
        """The topic's storage configs. May be replaced; the new configs apply to later operations."""
        self.epochs = recovered.epochs
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.synced_offset = recovered.log_end_offset
        self.missing_start_offset = recovered.missing_start_offset
        """The start of an offset range that the disk had lost when the log was opened, or None. The range stays empty
        unless the log is truncated there and replicated again."""
        self.missing_end_offset = recovered.log_end_offset
        self._files = files
        self._cache = cache
        self._clock = clock
        self._lower_recovery_point = lower_recovery_point
        self._unsynced = PendingSync(cache, clock)
        self._segments = LogSegments(cache, directory, self._unsynced, recovered.segments)
        self._producers = ProducerStateStore(
            cache, directory, clock, self._unsynced, recovered.file_names, producer_limit
        )
        self._checkpoints = LogCheckpoints(
            recovered.start_checkpoint,
            OffsetCheckpointFile(files, f"{directory}/{names.COMPACTED}"),
            recovered.log_start_offset,
        )
        self._sync_task: SyncTask | None = None
        self._truncations = 0

    @classmethod
    def open(
        cls,
        files: FileSystem,
        cache: FileCache,
        directory: str,
        config: LogConfig,
        clock: Clock,
        recovery_point: int = 0,
        *,
        lower_recovery_point: Callable[[int], None] = _reject_lowering,
        producer_limit: ProducerLimit | None = None,
    ) -> Self:
        """Recover the directory and return its log. A directory that does not exist is an empty log.

        Args:
            recovery_point: The last recorded synced offset (see `SyncedOffsets`).
            lower_recovery_point: Durably records a lower synced offset before a truncation.
            producer_limit: A limit that several logs share; by default the log has its own.
        """
        recovered = recover_log(files, cache, directory, recovery_point, config.index_interval_bytes)
        log = cls(files, cache, directory, config, clock, lower_recovery_point, recovered, producer_limit)
        if recovered.file_names:
            log._checkpoints.load(log.log_start_offset, log.log_end_offset)
            log._reload_producers()
        return log

    def _reload_producers(self) -> None:
        """Rebuild the producer state and transactions up to the log end offset."""
        compacted_offset = self._checkpoints.compacted_offset  # deleted records count as compacted
        self._producers.reload(self._segments.all, self.epochs, self.log_end_offset, compacted_offset)
        self.producers.transactions.aborted.delete_before(self.log_start_offset)

    @property
    def has_lost_all_records(self) -> bool:
        """Whether no records are left although some were synced: the directory or all segments are missing."""
        return self.missing_start_offset is not None and self.log_start_offset == self.log_end_offset

    @property
    def size(self) -> int:
        return self._segments.size

    @property
    def segment_count(self) -> int:
        return len(self._segments.all)

    @property
    def producers(self) -> ProducerStateManager:
        return self._producers.manager

    # -- syncing ------------------------------------------------------------------------------------------------------

    @property
    def needs_sync(self) -> bool:
        return bool(self._unsynced or self._segments.swaps or self._pending_checkpoints())

    @property
    def is_syncing(self) -> bool:
        return self._sync_task is not None

    def begin_sync(self) -> SyncTask | None:
        """Return a sync task, or None if everything is synced. At most one task may be in progress."""
        self._segments.preallocate_active(self.config.segment_bytes)
        return self._begin_sync()

    def _begin_sync(self) -> SyncTask | None:
        if not self.needs_sync:
            return None
        check_invariant(self._sync_task is None, "a sync of this log is already in progress")
        self._sync_task = self._unsynced.create_task(self.log_end_offset, self._pending_checkpoints())
        self._segments.swaps.record_sync_start()
        return self._sync_task

    def complete_sync(self, task: SyncTask) -> None:
        """Record that a sync task has run: everything it covers is durable."""
        check_invariant(self._sync_task is task, "the completed sync task is not the one in progress")
        self._sync_task = None
        self._unsynced.complete_task(task)
        self.synced_offset = max(self.synced_offset, task.end_offset)
        self._segments.swaps.advance(self.config.file_delete_delay_ms)
        self._segments.delete_before(
            self._checkpoints.start_checkpoint.stored_offset or 0, self.config.file_delete_delay_ms
        )

    def sync(self) -> None:
        """Sync everything. Blocks on the disk."""
        task = self._begin_sync()
        if task is not None:
            task.run()
            self.complete_sync(task)

    def close(self) -> None:
        """Sync and close the log, and take a snapshot for a fast restart. No sync task may be in progress."""
        if self._segments.all:
            self._segments.all[-1].index.flush()
            self._segments.trim_active()
            self._producers.take_snapshot(self.log_end_offset)
        while self.needs_sync:
            self.sync()
        self._segments.close()

    def _pending_checkpoints(self) -> list[tuple[OffsetCheckpointFile, int]]:
        segments = self._segments
        first = segments.all[0].base_offset if segments.all else None
        return self._checkpoints.pending_checkpoints(self.log_start_offset, first, has_swaps=bool(segments.swaps))
