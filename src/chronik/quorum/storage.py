"""The Raft directory of a node: the log, the hard state and the snapshots.

    manifest               the start of the log and the snapshot that precedes it
    <number>.wal, synced   a write-ahead log of entries and hard states
    <index>.snapshot       the current snapshot, and the previous one while a peer may still receive it

A `Persist` is one append to the log and one sync. Only snapshots and compactions also write the manifest. The sections
of the class state where each method must be called: on the event loop, in the log thread, or in the snapshot thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from chronik.errors import DamagedDataError, check_invariant
from chronik.files import FileSystem, read_file, write_atomically
from chronik.histogram import Histogram
from chronik.quorum import snapshot_files
from chronik.quorum.snapshot_files import IncomingSnapshotFile, RaftSnapshotWriter
from chronik.quorum.stored_entries import (
    CACHE_BYTES,
    EntryPositions,
    RaftManifest,
    StoredEntries,
    decode_manifest,
    decode_record,
    encode_entry,
    encode_hard_state,
    encode_manifest,
)
from chronik.raft.entries import HardState, RaftEntry, RecoveredRaftState, SnapshotMetadata
from chronik.raft.events import Persist, SnapshotChunkRequest
from chronik.wal import log as wal
from chronik.wal.log import WriteAheadLog
from chronik.wal.records import HEADER_BYTES
from chronik.wal.snapshots import build_snapshot_path, read_snapshot

MANIFEST_NAME: Final = "manifest"

SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""The size in bytes at which a new segment of the Raft log is started. Compaction deletes whole segments."""


class LogCompaction(NamedTuple):
    """A compaction of the Raft log: the last compacted entry and the first segment to keep."""

    compacted_index: int
    compacted_term: int
    first_segment: int | None
    """The first segment of the log to keep, or None to keep only the active segment."""


class PendingWrite(msgspec.Struct):
    """A write of Raft state that is being executed in the log thread."""

    persist: Persist
    compaction: LogCompaction | None = None
    placement: EntryPositions | None = None


class RaftStorage:
    """The log, the hard state and the snapshots of a Raft node on disk."""

    def __init__(
        self, files: FileSystem, directory: str, log: WriteAheadLog, manifest: RaftManifest, recovery: _RaftRecovery
    ) -> None:
        self._files = files
        self._directory = directory
        self.recovered: Final = recovery.recovered
        # Accessed on the event loop:
        self._entries = recovery.entries
        # Accessed in the log thread:
        self._log = log
        self._manifest = manifest
        self._previous_snapshot = 0
        """The index of the previous snapshot, whose file is kept because a peer may be receiving it."""
        self._hard_state = self.recovered.hard_state
        self._segment = recovery.last_segment
        self._incoming = IncomingSnapshotFile(files, directory)

    @classmethod
    def open(cls, files: FileSystem, directory: str, *, cache_bytes: int = CACHE_BYTES) -> RaftStorage:
        """Open the Raft storage, which blocks. Raise DamagedDataError if synced data is missing or damaged."""
        for parent in files.make_directory(directory):
            files.sync_directory(parent)
        manifest = _read_manifest(files, directory)
        if manifest.snapshot.index:
            snapshot_files.verify_snapshot(files, directory, manifest.snapshot)
        log, records = WriteAheadLog.open(files, directory, after=manifest.obsolete_record)
        try:
            recovery = _RaftRecovery(files, directory, manifest, cache_bytes)
            recovery.replay(records)
            snapshot_files.remove_orphaned_files(files, directory, manifest.snapshot.index)
            return cls(files, directory, log, manifest, recovery)
        except BaseException:
            log.close()
            raise

    @property
    def sync_times(self) -> Histogram:
        """The histogram of the Raft log's sync durations. May be read in any thread."""
        return self._log.sync_times

    # --------------------------------------------------------------------------------------------- on the event loop

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[RaftEntry]:
        return self._entries.entries(first, end, bytes_max)

    def find_compaction_index(self, index: int, bytes_kept: int) -> int:
        """Return the index up to which the log may be compacted after a snapshot, keeping at most `bytes_kept`."""
        return self._entries.find_compaction_index(min(index, self._entries.last_index), bytes_kept)

    def prepare_write(self, persist: Persist) -> PendingWrite:
        through = persist.compact_through
        if through <= self._entries.compacted_index:
            return PendingWrite(persist)
        check_invariant(persist.install is None, "Raft storage: compaction together with a snapshot installation")
        floor_term = self._entries.entries(through, through + 1, 0)[0].term
        first_segment = (
            self._entries.find_segment_containing(through + 1) if through < self._entries.last_index else None
        )
        return PendingWrite(persist, LogCompaction(through, floor_term, first_segment))

    def complete_write(self, write: PendingWrite) -> None:
        """Update the positions of the stored entries after a write. Called before the Raft core is notified."""
        persist = write.persist
        if persist.install is not None:
            self._entries.reset(persist.install.index)
        if persist.entries:
            assert write.placement is not None
            self._entries.append(persist.entries, write.placement)
        if write.compaction is not None:
            self._entries.compact_through(write.compaction.compacted_index)

    # ----------------------------------------------------------------------------------------------- in the log thread

    def write(self, write: PendingWrite) -> None:
        """Write Raft state to disk and sync it. Raise StorageError on failure, after which the node must stop."""
        persist = write.persist
        if persist.chunks:
            for chunk in persist.chunks:
                self._incoming.store(chunk)
            self._incoming.sync()
        if persist.install is not None:
            self._install_snapshot(persist.install)
        segment = self._segment
        write.placement = self._append(persist.entries, persist.hard_state)
        if write.compaction is not None:
            self._compact_log(write.compaction, segment)

    def adopt_snapshot(self, snapshot: SnapshotMetadata) -> bool:
        """Make a locally taken snapshot the current one; return False if a newer one was received from the leader."""
        if snapshot.index <= self._manifest.snapshot.index:
            self._remove_old_snapshots()
            return False
        self._write_manifest(replace(self._manifest, snapshot=snapshot))
        return True

    def close(self) -> None:
        self._incoming.close()
        self._log.close()

    def _append(self, entries: Sequence[RaftEntry], hard_state: HardState | None) -> EntryPositions | None:
        payloads = [encode_entry(entry) for entry in entries]
        if hard_state is not None:
            payloads.append(encode_hard_state(hard_state))
        if not payloads:
            return None
        begin = self._log.segment_bytes
        self._log.append(payloads)
        self._log.sync()
        if hard_state is not None:
            self._hard_state = hard_state
        sizes = [HEADER_BYTES + len(payload) for payload in payloads[: len(entries)]]
        placement = EntryPositions(self._segment, _compute_entry_positions(begin, sizes), sizes)
        if self._log.segment_bytes >= SEGMENT_BYTES:
            self._start_new_segment()
        return placement

    def _start_new_segment(self) -> None:
        self._log.roll()
        self._segment = self._log.last_index + 1

    def _install_snapshot(self, snapshot: SnapshotMetadata) -> None:
        """Replace the log with a snapshot received from the Raft leader, atomically by writing the manifest."""
        self._incoming.finish(snapshot)
        self._start_new_segment()
        manifest = RaftManifest(
            obsolete_record=self._log.last_index,
            compacted_index=snapshot.index,
            compacted_term=snapshot.term,
            hard_state=self._hard_state,
            snapshot=snapshot,
        )
        self._write_manifest(manifest)

    def _compact_log(self, compaction: LogCompaction, segment: int) -> None:
        """Compact the log by writing a new manifest. `segment` was the active segment before the current write."""
        first_segment = compaction.first_segment if compaction.first_segment is not None else segment
        manifest = replace(
            self._manifest,
            obsolete_record=first_segment - 1,
            compacted_index=compaction.compacted_index,
            compacted_term=compaction.compacted_term,
            hard_state=self._hard_state,
        )
        self._write_manifest(manifest)

    def _write_manifest(self, manifest: RaftManifest) -> None:
        """Replace the manifest, then delete the segments and snapshots that it makes obsolete."""
        write_atomically(self._files, f"{self._directory}/{MANIFEST_NAME}", encode_manifest(manifest))
        if manifest.snapshot.index != self._manifest.snapshot.index:
            self._previous_snapshot = self._manifest.snapshot.index
        self._manifest = manifest
        self._log.delete_segments_through(manifest.obsolete_record)
        self._remove_old_snapshots()

    def _remove_old_snapshots(self) -> None:
        """Delete the snapshots that are older than the previous snapshot."""
        current = self._manifest.snapshot.index
        for index in snapshot_files.list_snapshot_indexes(self._files, self._directory):
            if index < current and index != self._previous_snapshot:
                self._files.remove(build_snapshot_path(self._directory, index))

    # ------------------------------------------------------------------------------------------ in the snapshot thread

    def create_snapshot_writer(self, index: int) -> RaftSnapshotWriter:
        """Return a writer for a new snapshot, whose methods are to be called in the snapshot thread."""
        return RaftSnapshotWriter(self._files, self._directory, index)

    def read_snapshot(self, index: int) -> Iterator[bytes]:
        """Yield the chunks of a stored snapshot. Raise DamagedDataError if the snapshot is damaged."""
        return read_snapshot(self._files, self._directory, index)

    def read_chunk(self, wanted: SnapshotChunkRequest, snapshot: SnapshotMetadata | None) -> bytes | None:
        """Read a chunk of a snapshot that is sent to a peer, or return None if the snapshot was deleted.

        Before the first chunk, the whole `snapshot` is verified: a damaged one would be sent and rejected repeatedly.
        """
        if wanted.offset == 0 and snapshot is not None:
            snapshot_files.verify_snapshot(self._files, self._directory, snapshot)
        return snapshot_files.read_chunk(self._files, self._directory, wanted.index, wanted.offset, wanted.bytes_max)


class _RaftRecovery:
    """The recovery of the Raft log's entries and the hard state from the write-ahead log at startup."""

    def __init__(self, files: FileSystem, directory: str, manifest: RaftManifest, cache_bytes: int) -> None:
        names = [name for name in files.list_directory(directory) if name.endswith(wal.SEGMENT_SUFFIX)]
        self._segment_starts = {int(name.removesuffix(wal.SEGMENT_SUFFIX)) for name in names}
        self.last_segment = max(self._segment_starts)
        self.entries = StoredEntries(files, directory, manifest.compacted_index, cache_bytes)
        self._manifest = manifest
        self._hard_state = manifest.hard_state

    def replay(self, records: Sequence[wal.WalEntry]) -> None:
        segment = position = 0
        for record in records:
            if record.index in self._segment_starts:
                segment, position = record.index, 0
            check_invariant(segment > 0, "Raft storage: first record is not at the start of a segment")
            size = HEADER_BYTES + len(record.payload)
            decoded = decode_record(record.payload)
            if isinstance(decoded, HardState):
                self._hard_state = decoded
            else:
                self._take(decoded, EntryPositions(segment, (position,), (size,)))
            position += size

    def _take(self, entry: RaftEntry, placement: EntryPositions) -> None:
        """Record the position of a Raft entry found in the write-ahead log at startup.

        An entry after a gap is skipped, because a later record replaces it: the entries before it were replaced and
        then compacted. The write-ahead log itself guarantees that no record is missing.
        """
        entries = self.entries
        if entry.index > entries.last_index + 1:
            return
        if entry.index <= entries.compacted_index:
            entries.truncate_after(entries.compacted_index)
        else:
            entries.recover(entry.index, placement)

    @property
    def recovered(self) -> RecoveredRaftState:
        manifest = self._manifest
        last_index = self.entries.last_index
        if self._hard_state.commit > max(last_index, manifest.snapshot.index):
            raise DamagedDataError(
                f"Raft log ends at index {last_index}, before commit index {self._hard_state.commit}"
            )
        return RecoveredRaftState(
            hard_state=self._hard_state,
            snapshot=manifest.snapshot,
            compacted_index=manifest.compacted_index,
            compacted_term=manifest.compacted_term,
            last_index=last_index,
        )


def _read_manifest(files: FileSystem, directory: str) -> RaftManifest:
    """Read the Raft manifest, or create it if the directory is empty."""
    path = f"{directory}/{MANIFEST_NAME}"
    data = read_file(files, path)
    if data is not None:
        return decode_manifest(data)
    if any(name.endswith(wal.SEGMENT_SUFFIX) for name in files.list_directory(directory)):
        raise DamagedDataError(f"Raft manifest {path} is missing")
    manifest = RaftManifest()
    write_atomically(files, path, encode_manifest(manifest))
    return manifest


def _compute_entry_positions(begin: int, sizes: Sequence[int]) -> list[int]:
    positions = []
    for size in sizes:
        positions.append(begin)
        begin += size
    return positions


class RaftLogWriter:
    """The component that executes the Raft core's `Persist` instructions in the log thread, one at a time.

    It calls `on_written` with the sequence of each durable `Persist`, or `on_failure` with an error.
    """

    def __init__(
        self,
        storage: RaftStorage,
        thread: Executor,
        on_written: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._thread = thread
        self._written = on_written
        self._failed = on_failure
        self._pending_write: asyncio.Future[None] | None = None

    def write(self, persist: Persist) -> None:
        check_invariant(self._pending_write is None, "Raft log: a write is already in progress")
        write = self._storage.prepare_write(persist)
        self._pending_write = asyncio.get_running_loop().run_in_executor(self._thread, self._storage.write, write)
        self._pending_write.add_done_callback(partial(self._on_write_done, write))

    async def stop(self) -> None:
        """Wait until the current write is complete."""
        if self._pending_write is not None:
            await asyncio.gather(self._pending_write, return_exceptions=True)

    def _on_write_done(self, write: PendingWrite, pending_write: asyncio.Future[None]) -> None:
        self._pending_write = None
        error = pending_write.exception()
        if error is not None:
            self._failed(error)
        else:
            self._storage.complete_write(write)
            self._written(write.persist.sequence)
