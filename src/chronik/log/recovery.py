"""Log recovery: makes a partition directory consistent when a log is opened.

Recovery never truncates below the synced offset: damage there stays in place, and reads of it fail. From the synced
offset on, the log ends at the first batch that is torn, damaged or out of sequence, because it was never acknowledged.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

import msgspec

from chronik.files import FileCache, FileSystem, parent_directories, read_file
from chronik.log.config import LONG_MAX
from chronik.log.files import names
from chronik.log.files.batch_scan import SEARCH_BYTES_MAX, validate_batch
from chronik.log.files.checkpoints import OffsetCheckpointFile
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.log.segment import LogSegment, ScannedBatch
from chronik.protocol.batch import HEADER_BYTES

_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_POSITION = 12


class RecoveredLog(msgspec.Struct):
    """A log's segments, offsets and leader epochs after recovery."""

    segments: list[LogSegment]
    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochHistory
    start_checkpoint: OffsetCheckpointFile
    file_names: set[str]
    """The names of the files found in the directory."""
    missing_start_offset: int | None = None
    """Offset from which synced records are missing on disk, where the recovered log ends, or None."""


def recover_log(
    files: FileSystem, cache: FileCache, directory: str, synced_offset: int, index_interval_bytes: int
) -> RecoveredLog:
    """Recover a partition's log, except for its producer state. All retained data is synced on return."""
    present = _complete_interrupted_changes(files, directory)
    epochs = LeaderEpochHistory(cache, f"{directory}/{names.LEADER_EPOCHS}")
    start_file = OffsetCheckpointFile(files, f"{directory}/{names.LOG_START}")
    if not present:
        # Nothing was ever written, or synced records are lost; their offsets must not be assigned again.
        missing_from = 0 if synced_offset > 0 else None
        return RecoveredLog([], synced_offset, synced_offset, epochs, start_file, present, missing_from)
        # A process that was killed between a rename and its sync left names that a power failure could revert.
    files.sync_directory(directory)
    stored_start = start_file.load()
    bases = names.parse_file_name_offsets(present, names.LOG)
    if stored_start is not None:
        bases = _delete_segments_below_log_start(files, directory, bases, stored_start)
    is_start_known = stored_start is not None or names.LOG_START not in present
    ends = [*bases[1:], max(synced_offset, bases[-1])] if bases else []
    segments = [LogSegment.open_existing(cache, directory, base, end) for base, end in zip(bases, ends, strict=True)]
    tail = _TailRecovery(files, cache, directory, epochs, synced_offset, index_interval_bytes)
    if bases and is_start_known and bases[0] > max(stored_start or 0, synced_offset):
        # The log start offset is stored in its checkpoint, so this is an unsynced rest whose first segment is lost.
        tail.remove(segments, 0)
    if not _load_leader_epochs(files, epochs, f"{directory}/{names.LEADER_EPOCHS}", segments):
        _rebuild_leader_epochs(epochs, segments)
    try:
        log_end = tail.recover(segments)
    except _EpochHistoryIncomplete:
        _rebuild_leader_epochs(epochs, segments)
        log_end = tail.recover(segments)
    if log_end > synced_offset:
        _sync_metadata(files, directory)
    log_start = stored_start or 0
    if not segments:
        log_end = log_start  # an emptied log: nothing before its start offset is missing
        log_start = max(log_start, synced_offset)
    elif not is_start_known:
        log_start = segments[0].base_offset
    missing_from = log_end if log_end < max(synced_offset, log_start) else None
    if missing_from is not None:
        # Synced or deleted records are missing. Their offsets must not be assigned again: start a new segment.
        log_end = max(synced_offset, log_start)
        segments.append(LogSegment(cache, directory, log_end))
    if epochs.truncate_from_end(log_end):
        epochs.rewrite()
    epochs.truncate_from_start(log_start)
    return RecoveredLog(segments, log_start, log_end, epochs, start_file, present, missing_from)


class _EpochHistoryIncomplete(Exception):
    """The leader epoch history has lost its last epochs, which synced batches of the log refer to."""


class _TailRecovery:
    """The recovery of a log from its synced offset to its end."""

    def __init__(
        self,
        files: FileSystem,
        cache: FileCache,
        directory: str,
        epochs: LeaderEpochHistory,
        synced_offset: int,
        index_interval_bytes: int,
    ) -> None:
        self._files = files
        self._cache = cache
        self._directory = directory
        self._epochs = epochs
        self._synced_offset = synced_offset
        self._interval = index_interval_bytes

    def recover(self, segments: list[LogSegment]) -> int:
        """Recover the segments and return the log end offset. Segments after damaged or missing data are removed."""
        if not segments:
            return 0
        first = max(0, bisect_right([segment.base_offset for segment in segments], self._synced_offset) - 1)
        log_end, changed = segments[first].base_offset, False
        if first > 0 and log_end == self._synced_offset:
            self._sync_segment_file(segments[first - 1])
        for number in range(first, len(segments)):
            segment = segments[number]
            if number > first and segment.base_offset != log_end:
                self.remove(segments, number)
                break
            log_end, cut = self._recover_segment(segment)
            changed = changed or cut
            if cut or log_end < self._synced_offset:
                self.remove(segments, number + 1)
                break
        return log_end

    def _recover_segment(self, segment: LogSegment) -> tuple[int, bool]:
        """Recover one segment. Return its end offset, and whether its file was truncated there."""
        position, offset = segment.truncate_index(self._synced_offset, self._epochs)
        while True:
            position, offset, damaged = self._scan_segment(segment, position, offset)
            if not damaged or offset >= self._synced_offset:
                break
            found = self._find_batch_at_synced_offset(segment, position)
            if found is None:
                break
            position, offset = found, self._synced_offset
        segment.end_offset = offset
        cut = damaged and offset >= self._synced_offset
        if cut:
            segment.file.truncate(position)
            segment.size = position
        self._sync_segment_file(segment)
        segment.index.flush()
        return offset, cut

    def _sync_segment_file(self, segment: LogSegment) -> None:
        """Sync a segment file, because a killed process may have changed it after its last sync.

        The process may have trimmed preallocated space after its last sync. If a power failure brought it back, batches
        written after it would not continue the log.
        """
        segment.file.fdatasync()

    def _scan_segment(self, segment: LogSegment, position: int, offset: int) -> tuple[int, int, bool]:
        """Validate and index a segment's batches. Return the position and offset where they end, and whether damage
        follows.
        """
        for piece in segment.scan(position, offset, self._epochs, self._synced_offset):
            if piece.batch is None:
                if piece.base_offset < self._synced_offset and _is_history_incomplete(segment, piece, self._epochs):
                    raise _EpochHistoryIncomplete
                if piece.base_offset >= self._synced_offset or piece.next_position >= segment.size:
                    return piece.position, piece.base_offset, True
            else:
                segment.index_batch(piece.position, piece.base_offset, piece.header, self._interval)
            position, offset = piece.next_position, piece.next_offset
        return position, offset, False

    def _find_batch_at_synced_offset(self, segment: LogSegment, position: int) -> int | None:
        """Return the position of the batch at the synced offset, after damaged data, or None if it is not found."""
        size = min(segment.size - position, SEARCH_BYTES_MAX)
        data = segment.file.pread(size, position)
        wanted = _OFFSET.pack(self._synced_offset)
        found = data.find(wanted, 1)
        while found >= 0:
            epoch = self._epochs.find_epoch_at(self._synced_offset)[0]
            if validate_batch(memoryview(data), found, self._synced_offset, epoch) is not None:
                return position + found
            found = data.find(wanted, found + 1)
        return None

    def remove(self, segments: list[LogSegment], first: int) -> None:
        """Delete the segments from number `first` on, with their files."""
        for segment in segments[first:]:
            self._cache.close_file(segment.log_path)
            self._cache.close_file(segment.index.path)
            self._files.remove(segment.log_path)
            self._files.remove(segment.index.path)
        if segments[first:]:
            self._files.sync_directory(self._directory)
        del segments[first:]


def _sync_metadata(files: FileSystem, directory: str) -> None:
    """Sync the directory entries and the leader epoch file, because a killed process may not have synced them."""
    path = f"{directory}/{names.LEADER_EPOCHS}"
    if files.exists(path):
        file = files.open(path)
        file.fdatasync()
        file.close()
    for each in (directory, *parent_directories(directory)):
        files.sync_directory(each)


def _complete_interrupted_changes(files: FileSystem, directory: str) -> set[str]:
    """Delete temporary files, complete interrupted segment swaps, and return the remaining file names."""
    present = set(files.list_directory(directory))
    for name in sorted(present):
        if name.endswith((names.DELETED, names.CLEANED, names.TEMPORARY)):
            files.remove(f"{directory}/{name}")
            present.discard(name)
    for name in sorted(present):
        swap = names.parse_swap_file_name(name)
        if swap is not None:
            present = _finish_swap(files, directory, present, name, *swap)
    return present


def _finish_swap(
    files: FileSystem, directory: str, present: set[str], name: str, first_offset: int, end_offset: int
) -> set[str]:
    for old in sorted(present):
        parsed = names.parse_offset_file_name(old)
        if parsed and first_offset <= parsed[0] < end_offset and parsed[1] in (names.LOG, names.INDEX):
            files.remove(f"{directory}/{old}")
            present = present - {old}
    files.sync_directory(directory)
    final = names.format_offset_file_name(first_offset, names.LOG)
    files.rename(f"{directory}/{name}", f"{directory}/{final}")
    files.sync_directory(directory)
    return present - {name} | {final}


def _delete_segments_below_log_start(files: FileSystem, directory: str, bases: list[int], log_start: int) -> list[int]:
    """Delete the segments below the log start offset. Keep the last one, which determines the log end offset."""
    kept = max(0, min(bisect_right(bases, log_start) - 1, len(bases) - 1))
    for base in bases[:kept]:
        files.remove(f"{directory}/{names.format_offset_file_name(base, names.LOG)}")
        files.remove(f"{directory}/{names.format_offset_file_name(base, names.INDEX)}")
    return bases[kept:]


def _load_leader_epochs(files: FileSystem, epochs: LeaderEpochHistory, path: str, segments: list[LogSegment]) -> bool:
    """Load the leader epoch history. Return False if it is damaged, or is missing although the log has segments."""
    data = read_file(files, path)
    return epochs.load(data or b"") and (bool(data) or not segments)


def _rebuild_leader_epochs(epochs: LeaderEpochHistory, segments: list[LogSegment]) -> None:
    """Rebuild the leader epoch history from all batches in the log."""
    for segment in segments:
        position, offset = 0, segment.base_offset
        while position < segment.size:
            for piece in segment.scan(position, offset, epochs):
                position, offset = piece.next_position, piece.next_offset
                if piece.batch is None:
                    epoch = _find_unknown_epoch(segment, piece, epochs)
                    if epoch is not None:
                        epochs.assign(epoch, piece.base_offset)
                        position, offset = piece.position, piece.base_offset
                        break
    if epochs.latest_epoch >= 0:
        epochs.rewrite()


def _is_history_incomplete(segment: LogSegment, damage: ScannedBatch, epochs: LeaderEpochHistory) -> bool:
    """Return whether the leader epoch history lacks the epoch of two consecutive batches.

    A single batch may be damaged.
    """
    epoch = _find_unknown_epoch(segment, damage, epochs)
    if epoch is None:
        return False
    batch = validate_batch(segment.read_batch_bytes(damage.position), 0, damage.base_offset, epoch)
    if batch is None:
        return False
    size, next_offset = batch
    return validate_batch(segment.read_batch_bytes(damage.position + size), 0, next_offset, epoch) is not None


def _find_unknown_epoch(segment: LogSegment, damage: ScannedBatch, epochs: LeaderEpochHistory) -> int | None:
    """Return the leader epoch of a batch that is valid except that the history lacks its epoch, otherwise None."""
    offset = damage.base_offset
    epoch, epoch_end = epochs.find_epoch_at(offset)
    if epoch_end != LONG_MAX:
        return None
    view = segment.read_batch_bytes(damage.position)
    if len(view) < HEADER_BYTES:
        return None
    found: int = _EPOCH.unpack_from(view, _EPOCH_POSITION)[0]
    return found if found > epoch and validate_batch(view, 0, offset, found) is not None else None
