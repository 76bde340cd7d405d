"""The Raft folder of a node: log, hard state and snapshots, and what was found of them at a start.

    manifest               where the log begins, and which snapshot it continues
    <number>.wal, synced   a write-ahead log of entries and hard states
    <index>.snapshot       the snapshot, and the one before while a peer may still be reading it

A `Persist` is one append to the log and one sync, whatever it holds; only a snapshot and a compaction write the
manifest too. Each method says where it may be called: on the event loop, in the log's thread, or in the snapshots'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from chronik.errors import DataDamaged, invariant
from chronik.files import FileSystem, read_file, write_atomically
from chronik.meters import Histogram
from chronik.quorum import snapshot_files
from chronik.quorum.disk_records import (
    Manifest,
    decode_manifest,
    decode_record,
    encode_entry,
    encode_hard_state,
    encode_manifest,
)
from chronik.quorum.snapshot_files import IncomingFile, SnapshotWriter
from chronik.quorum.stored_entries import CACHE_BYTES, Placement, StoredEntries
from chronik.raft.entries import Entry, HardState, Recovered, SnapshotMetadata
from chronik.raft.events import Persist, SnapshotChunkWanted
from chronik.wal import log as wal
from chronik.wal.log import WriteAheadLog
from chronik.wal.records import HEADER_BYTES
from chronik.wal.snapshots import read_snapshot, snapshot_path

MANIFEST_NAME: Final = "manifest"

SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""The log is removed by whole segments: one that is partly needed stays. A new one costs two syncs."""


class Compaction(NamedTuple):
    floor_index: int
    floor_term: int
    first_segment: int | None
    """The first segment that is still needed; None for the one being written."""


class Write(msgspec.Struct):
    """One `Persist` on its way: begun on the loop, written in the log's thread, finished on the loop."""

    persist: Persist
    compaction: Compaction | None = None
    placement: Placement | None = None


class RaftStorage:
    """Create it with `open`."""

    def __init__(
        self, files: FileSystem, folder: str, log: WriteAheadLog, manifest: Manifest, recovery: _Recovery
    ) -> None:
        self._files = files
        self._folder = folder
        self.recovered: Final = recovery.recovered
        # Used on the loop:
        self._entries = recovery.entries
        # Used in the log's thread:
        self._log = log
        self._manifest = manifest
        self._previous_snapshot = 0
        """The previous snapshot, which stays until the next one comes: a peer may have received half of it."""
        self._hard_state = self.recovered.hard_state
        self._segment = recovery.last_segment
        self._incoming = IncomingFile(files, folder)

    @classmethod
    def open(cls, files: FileSystem, folder: str, *, cache_bytes: int = CACHE_BYTES) -> RaftStorage:
        """Is called in a thread. Raises DataDamaged when something that was synced is not as it was written."""
        for parent in files.make_folder(folder):
            files.sync_folder(parent)
        manifest = _read_manifest(files, folder)
        if manifest.snapshot.index:
            snapshot_files.verify(files, folder, manifest.snapshot)
        log, records = WriteAheadLog.open(files, folder, after=manifest.log_after)
        try:
            recovery = _Recovery(files, folder, manifest, cache_bytes)
            recovery.replay(records)
            snapshot_files.remove_leftovers(files, folder, manifest.snapshot.index)
            return cls(files, folder, log, manifest, recovery)
        except BaseException:
            log.close()
            raise

    @property
    def sync_times(self) -> Histogram:
        """How long syncs of its log took; may be read anywhere."""
        return self._log.sync_times

    # ---------------------------------------------------------------------------------------------------- on the loop

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[Entry]:
        return self._entries.entries(first, end, bytes_max)

    def compaction_point(self, index: int, bytes_kept: int) -> int:
        """Returns how far the log may be removed after a snapshot at `index`, if `bytes_kept` before it are kept."""
        return self._entries.index_keeping(min(index, self._entries.last_index), bytes_kept)

    def begin(self, persist: Persist) -> Write:
        through = persist.compact_through
        if through <= self._entries.floor_index:
            return Write(persist)
        invariant(persist.install is None, "a log that is replaced is not compacted")
        floor_term = self._entries.entries(through, through + 1, 0)[0].term
        first_segment = self._entries.segment_of(through + 1) if through < self._entries.last_index else None
        return Write(persist, Compaction(through, floor_term, first_segment))

    def finish(self, write: Write) -> None:
        """Is called after `write` has returned, and before the core hears of it."""
        persist = write.persist
        if persist.install is not None:
            self._entries.begin_anew(persist.install.index)
        if persist.entries:
            assert write.placement is not None
            self._entries.append(persist.entries, write.placement)
        if write.compaction is not None:
            self._entries.compact_through(write.compaction.floor_index)

    # --------------------------------------------------------------------------------------------- in the log's thread

    def write(self, write: Write) -> None:
        """Makes all of it durable before it returns. Raises StorageFailed; then the node must stop."""
        persist = write.persist
        if persist.chunks:
            for chunk in persist.chunks:
                self._incoming.store(chunk)
            self._incoming.sync()
        if persist.install is not None:
            self._install(persist.install)
        segment = self._segment
        write.placement = self._append(persist.entries, persist.hard_state)
        if write.compaction is not None:
            self._compact(write.compaction, segment)

    def adopt(self, snapshot: SnapshotMetadata) -> bool:
        """Puts the node's own snapshot, just finished, in force; unless a received one has overtaken it."""
        if snapshot.index <= self._manifest.snapshot.index:
            self._remove_old_snapshots()
            return False
        self._put_manifest(replace(self._manifest, snapshot=snapshot))
        return True

    def close(self) -> None:
        self._incoming.close()
        self._log.close()

    def _append(self, entries: Sequence[Entry], hard_state: HardState | None) -> Placement | None:
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
        placement = Placement(self._segment, _positions(begin, sizes), sizes)
        if self._log.segment_bytes >= SEGMENT_BYTES:
            self._roll()
        return placement

    def _roll(self) -> None:
        self._log.roll()
        self._segment = self._log.last_index + 1

    def _install(self, snapshot: SnapshotMetadata) -> None:
        """Puts the snapshot in the place of the log: both change in the instant in which the manifest says so."""
        self._incoming.finish(snapshot)
        self._roll()
        manifest = Manifest(
            log_after=self._log.last_index,
            floor_index=snapshot.index,
            floor_term=snapshot.term,
            hard_state=self._hard_state,
            snapshot=snapshot,
        )
        self._put_manifest(manifest)

    def _compact(self, compaction: Compaction, segment: int) -> None:
        """`segment` is the one that took what was written along with the compaction."""
        first_segment = compaction.first_segment if compaction.first_segment is not None else segment
        manifest = replace(
            self._manifest,
            log_after=first_segment - 1,
            floor_index=compaction.floor_index,
            floor_term=compaction.floor_term,
            hard_state=self._hard_state,
        )
        self._put_manifest(manifest)

    def _put_manifest(self, manifest: Manifest) -> None:
        """Removes afterwards what it no longer needs; a crash before that leaves it to the next start."""
        write_atomically(self._files, f"{self._folder}/{MANIFEST_NAME}", encode_manifest(manifest))
        if manifest.snapshot.index != self._manifest.snapshot.index:
            self._previous_snapshot = self._manifest.snapshot.index
        self._manifest = manifest
        self._log.drop_through(manifest.log_after)
        self._remove_old_snapshots()

    def _remove_old_snapshots(self) -> None:
        """Leaves those newer than the one in force: one may be finished already, and wait to be adopted."""
        current = self._manifest.snapshot.index
        for index in snapshot_files.stored_indexes(self._files, self._folder):
            if index < current and index != self._previous_snapshot:
                self._files.remove(snapshot_path(self._folder, index))

    # -------------------------------------------------------------------------------------- in the snapshots' thread

    def begin_snapshot(self, index: int) -> SnapshotWriter:
        """May be called anywhere, but the writer's methods belong in the snapshots' thread."""
        return SnapshotWriter(self._files, self._folder, index)

    def read_snapshot(self, index: int) -> Iterator[bytes]:
        """Returns the chunks that the state machine gave. Raises DataDamaged."""
        return read_snapshot(self._files, self._folder, index)

    def read_piece(self, wanted: SnapshotChunkWanted, snapshot: SnapshotMetadata | None) -> bytes | None:
        """Returns None when the snapshot is gone. The first piece is read only if the whole `snapshot` is undamaged:
        otherwise it would be sent, refused and sent again forever."""
        if wanted.offset == 0 and snapshot is not None:
            snapshot_files.verify(self._files, self._folder, snapshot)
        return snapshot_files.read_piece(self._files, self._folder, wanted.index, wanted.offset, wanted.bytes_max)


class _Recovery:
    """Replays the records of the log: what stands at an index, and which hard state is the last."""

    def __init__(self, files: FileSystem, folder: str, manifest: Manifest, cache_bytes: int) -> None:
        names = [name for name in files.list_folder(folder) if name.endswith(wal.SUFFIX)]
        self._segment_begins = {int(name.removesuffix(wal.SUFFIX)) for name in names}
        self.last_segment = max(self._segment_begins)
        self.entries = StoredEntries(files, folder, manifest.floor_index, cache_bytes)
        self._manifest = manifest
        self._hard_state = manifest.hard_state

    def replay(self, records: Sequence[wal.Entry]) -> None:
        segment = position = 0
        for record in records:
            if record.index in self._segment_begins:
                segment, position = record.index, 0
            invariant(segment > 0, "a log begins with a segment")
            size = HEADER_BYTES + len(record.payload)
            item = decode_record(record.payload)
            if isinstance(item, HardState):
                self._hard_state = item
            else:
                self._take(item, Placement(segment, (position,), (size,)))
            position += size

    def _take(self, entry: Entry, placement: Placement) -> None:
        """An entry that leaves a gap is replaced later on: those that stood before it were replaced first, and are
        compacted away with their segments. No record can be missing: the log itself makes sure of that."""
        entries = self.entries
        if entry.index > entries.last_index + 1:
            return
        if entry.index <= entries.floor_index:
            entries.truncate_after(entries.floor_index)
        else:
            entries.recover(entry.index, placement)

    @property
    def recovered(self) -> Recovered:
        manifest = self._manifest
        last_index = self.entries.last_index
        if self._hard_state.commit > max(last_index, manifest.snapshot.index):
            raise DataDamaged(f"the log ends at {last_index}, but {self._hard_state.commit} was committed")
        return Recovered(
            hard_state=self._hard_state,
            snapshot=manifest.snapshot,
            floor_index=manifest.floor_index,
            floor_term=manifest.floor_term,
            last_index=last_index,
        )


def _read_manifest(files: FileSystem, folder: str) -> Manifest:
    """A new folder gets a manifest before anything else: so a folder with a log but without a manifest has lost it."""
    path = f"{folder}/{MANIFEST_NAME}"
    data = read_file(files, path)
    if data is not None:
        return decode_manifest(data)
    if any(name.endswith(wal.SUFFIX) for name in files.list_folder(folder)):
        raise DataDamaged(f"{path} is missing")
    manifest = Manifest()
    write_atomically(files, path, encode_manifest(manifest))
    return manifest


def _positions(begin: int, sizes: Sequence[int]) -> list[int]:
    positions = []
    for size in sizes:
        positions.append(begin)
        begin += size
    return positions
