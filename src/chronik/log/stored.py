"""The state of one partition's log: opened from its folder, synced, closed. What is done with it is in `partition`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from chronik.clock import Clock
from chronik.errors import InvariantBroken, invariant
from chronik.files import FileCache, FileSystem
from chronik.log.config import LogConfig
from chronik.log.files import names
from chronik.log.files.offset_file import OffsetFile, OffsetMarks
from chronik.log.producers import ProducerLimit, ProducerStates
from chronik.log.recovery import Recovered, recover
from chronik.log.segments import Segments
from chronik.log.snapshots import ProducerMemory
from chronik.log.sync import SyncTicket, Unsynced


def _cannot_lower(offset: int) -> None:
    raise InvariantBroken("a log that was opened without lower_recovery_point is truncated below its synced offset")


class StoredLog:
    __slots__ = (
        "_cache",
        "_clock",
        "_files",
        "_lower_recovery_point",
        "_marks",
        "_producers",
        "_segments",
        "_ticket",
        "_truncations",
        "_unsynced",
        "config",
        "epochs",
        "folder",
        "log_end_offset",
        "log_start_offset",
        "missing_end",
        "missing_from",
        "synced_offset",
    )

    def __init__(
        self,
        files: FileSystem,
        cache: FileCache,
        folder: str,
        config: LogConfig,
        clock: Clock,
        lower_recovery_point: Callable[[int], None],
        recovered: Recovered,
        producer_limit: ProducerLimit | None = None,
    ) -> None:
        """Use `open`."""
        self.folder = folder
        self.config = config
        """May be replaced: the new one holds for what is written, deleted and compacted from then on."""
        self.epochs = recovered.epochs
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.synced_offset = recovered.log_end_offset
        self.missing_from = recovered.missing_from
        """The offset from which on the disk had lost synced records when the log was opened: those offsets stay empty,
        unless the log is cut there and filled again by replication."""
        self.missing_end = recovered.log_end_offset
        self._files = files
        self._cache = cache
        self._clock = clock
        self._lower_recovery_point = lower_recovery_point
        self._unsynced = Unsynced(cache, clock)
        self._segments = Segments(cache, folder, self._unsynced, recovered.segments)
        self._producers = ProducerMemory(cache, folder, clock, self._unsynced, recovered.names, producer_limit)
        self._marks = OffsetMarks(
            recovered.start_file, OffsetFile(files, f"{folder}/{names.COMPACTED}"), recovered.log_start_offset
        )
        self._ticket: SyncTicket | None = None
        self._truncations = 0

    @classmethod
    def open(
        cls,
        files: FileSystem,
        cache: FileCache,
        folder: str,
        config: LogConfig,
        clock: Clock,
        recovery_point: int = 0,
        *,
        lower_recovery_point: Callable[[int], None] = _cannot_lower,
        producer_limit: ProducerLimit | None = None,
    ) -> Self:
        """Recovers the folder and returns its log; a folder that does not exist is an empty log and costs nothing.

        `recovery_point` is the synced offset that was last recorded (see `SyncedOffsets`). `lower_recovery_point` must
        have recorded a lower one durably when it returns. Logs with the same `producer_limit` share it; without one the
        log has its own.
        """
        recovered = recover(files, cache, folder, recovery_point, config.index_interval_bytes)
        log = cls(files, cache, folder, config, clock, lower_recovery_point, recovered, producer_limit)
        if recovered.names:
            log._marks.load(log.log_start_offset, log.log_end_offset)
            log._reload_producers()
        return log

    def _reload_producers(self) -> None:
        """Finds out again what is known of producers and their transactions, now that the log ends where it does."""
        compacted_offset = self._marks.compacted_offset  # what is deleted counts as compacted
        self._producers.reload(self._segments.all, self.epochs, self.log_end_offset, compacted_offset)
        self.producers.transactions.aborted.forget_before(self.log_start_offset)

    @property
    def is_lost(self) -> bool:
        """Whether nothing is left of what was once synced: its folder is gone, or all segments in it."""
        return self.missing_from is not None and self.log_start_offset == self.log_end_offset

    @property
    def size(self) -> int:
        return self._segments.size

    @property
    def segment_count(self) -> int:
        return len(self._segments.all)

    @property
    def producers(self) -> ProducerStates:
        return self._producers.states

    # -- syncing ------------------------------------------------------------------------------------------------------

    @property
    def needs_sync(self) -> bool:
        return bool(self._unsynced or self._segments.swaps or self._marks_to_store())

    @property
    def is_syncing(self) -> bool:
        return self._ticket is not None

    def begin_sync(self) -> SyncTicket | None:
        """Returns what to sync now; None when everything is synced. One ticket at a time."""
        self._segments.reserve_room(self.config.segment_bytes)
        return self._begin_sync()

    def _begin_sync(self) -> SyncTicket | None:
        if not self.needs_sync:
            return None
        invariant(self._ticket is None, "a sync of this log is still under way")
        self._ticket = self._unsynced.begin(self.log_end_offset, self._marks_to_store())
        self._segments.swaps.sync_begins()
        return self._ticket

    def complete_sync(self, ticket: SyncTicket) -> None:
        """Takes back a ticket that has run: what it covers is on disk."""
        invariant(self._ticket is ticket, "a sync is completed that was not begun")
        self._ticket = None
        self._unsynced.complete(ticket)
        self.synced_offset = max(self.synced_offset, ticket.end_offset)
        self._segments.swaps.advance(self.config.file_delete_delay_ms)
        self._segments.drop_before(self._marks.start.stored or 0, self.config.file_delete_delay_ms)

    def sync(self) -> None:
        """Syncs everything, waiting for the disk."""
        ticket = self._begin_sync()
        if ticket is not None:
            ticket.run()
            self.complete_sync(ticket)

    def close(self) -> None:
        """Syncs, and leaves behind what makes the next start quick. No ticket may be under way."""
        if self._segments.all:
            self._segments.all[-1].index.flush()
            self._segments.release_room()
            self._producers.snapshot(self.log_end_offset)
        while self.needs_sync:
            self.sync()
        self._segments.close()

    def _marks_to_store(self) -> list[tuple[OffsetFile, int]]:
        segments = self._segments
        first = segments.all[0].base_offset if segments.all else None
        return self._marks.to_store(self.log_start_offset, first, is_exchanging=bool(segments.swaps))
