"""Read-only access to a node's data directory: its identity, and the files of its partitions.

The audit relies only on segment file names, the stored offset checkpoints and the leader epoch history. Segment indexes
are used as hints that are verified.

Files of running nodes are opened read-only, for users without write permission.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from chronik.errors import ChronikError, StorageError
from chronik.files import FileCache, read_file
from chronik.files.disk import DiskFile, DiskFileSystem
from chronik.log.files import names
from chronik.log.files.checkpoints import OffsetCheckpointFile
from chronik.log.files.index import CorruptIndexError, IndexEntry, SegmentIndex
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.node.data_directory import SYNCED_OFFSETS_FILE
from chronik.node.identity import IDENTITY_FILE, DirectoryIdentity
from chronik.pipeline.source.segment_transport import TOPICS_DIRECTORY, SegmentFile, list_segment_files
from chronik.protocol.batch import parse_header, verify_crc
from chronik.protocol.errors import CorruptRecords

_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

OPEN_FILES_MAX: Final = 4
READ_ATTEMPTS_MAX: Final = 5


class ReadOnlyFileSystem(DiskFileSystem):
    """A read-only file system. Creating and syncing directories, as readers do on open, are no-ops."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self.failure = None

    def open(self, path: str) -> DiskFile:
        return DiskFile(self, path, os.open(self._get_full_path(path), _READ_FLAGS))

    def create(self, path: str) -> DiskFile:
        return self.open(path)

    def make_directory(self, path: str) -> list[str]:
        return []

    def sync_directory(self, path: str) -> None:
        return

    def rename(self, path: str, new_path: str) -> NoReturn:
        raise StorageError(f"cannot rename {self._get_full_path(path)}: the audit opens data directories read-only")

    def remove(self, path: str) -> NoReturn:
        raise StorageError(f"cannot remove {self._get_full_path(path)}: the audit opens data directories read-only")


class AuditInputError(ChronikError):
    """A file or directory to audit, such as a node's data directory, cannot be read."""


@dataclass(frozen=True, slots=True)
class NodeDataDirectory:
    """The data directory of one node."""

    node: int
    path: str
    identity: bytes
    """Content of the identity file, which differs between any two data directories."""

    def partition_directory(self, topic_id: str, index: int) -> str:
        return f"{self.path}/{TOPICS_DIRECTORY}/{topic_id}/{index}"

    def read_synced_offsets(self) -> SyncedOffsets | None:
        """Return the offset up to which each partition is synced to disk, or None if the file cannot be read."""
        for _ in range(READ_ATTEMPTS_MAX):
            try:
                found = SyncedOffsets(ReadOnlyFileSystem(self.path), SYNCED_OFFSETS_FILE)
                found.close()
                return found
            except FileNotFoundError:
                return None
            except StorageError:
                continue  # the node may be extending the file right now
        return None


def open_data_directories(paths: Iterable[str | Path]) -> dict[int, NodeDataDirectory]:
    """Open the data directories and return them by node id.

    Raises:
        AuditInputError: A directory is not a node's data directory, or two belong to the same node.
    """
    found: dict[int, NodeDataDirectory] = {}
    for path in map(os.path.abspath, paths):  # tasks may run with another working directory
        identity = _read_identity(path)
        directory = NodeDataDirectory(_parse_node_id(path, identity), path, identity)
        if directory.node in found:
            raise AuditInputError(
                f"{found[directory.node].path} and {path} both belong to node {directory.node}; pass one of them"
            )
        found[directory.node] = directory
    return dict(sorted(found.items()))


def verify_data_directories(directories: Iterable[NodeDataDirectory]) -> None:
    """Check that the paths refer to the same data directories on this machine as on the driver.

    Raises:
        AuditInputError: A path does not exist or leads to another directory.
    """
    for directory in directories:
        if _read_identity(directory.path) != directory.identity:
            raise AuditInputError(
                f"{directory.path} is a different data directory than the one of node {directory.node}"
            )


def _read_identity(path: str) -> bytes:
    try:
        data = read_file(ReadOnlyFileSystem(path), IDENTITY_FILE)
    except OSError as error:
        raise AuditInputError(f"cannot read data directory {path}: {error}") from error
    if data is None:
        raise AuditInputError(f"{path} is not a node's data directory: it has no {IDENTITY_FILE}")
    return data


def _parse_node_id(path: str, identity: bytes) -> int:
    try:
        return msgspec.json.decode(identity, type=DirectoryIdentity).node_id
    except msgspec.DecodeError as error:
        raise AuditInputError(f"cannot read {IDENTITY_FILE} in data directory {path}: {error}") from error


def find_indexed_batch(segment: SegmentFile, offset: int) -> IndexEntry | None:
    """Return the last indexed batch at or before `offset`, or None if the segment's index has none or is damaged."""
    return _find_index_entry(segment, lambda index: index.find_entry_by_offset(offset))


def _find_indexed_time(segment: SegmentFile, timestamp_ms: int) -> IndexEntry | None:
    """Return the last index entry before which all batches are older, or None if there is none or it is damaged."""
    return _find_index_entry(segment, lambda index: index.find_entry_by_timestamp(timestamp_ms))


def _find_index_entry(segment: SegmentFile, find: Callable[[SegmentIndex], int]) -> IndexEntry | None:
    directory, name = os.path.split(segment.path)
    if name != names.format_offset_file_name(segment.base_offset, names.LOG):
        return None
    cache = FileCache(ReadOnlyFileSystem(directory), OPEN_FILES_MAX)
    index = SegmentIndex(
        cache, names.format_offset_file_name(segment.base_offset, names.INDEX), segment.base_offset, is_new=False
    )
    try:
        number = find(index)
        return index.entry(number) if number >= 0 else None
    except (CorruptIndexError, StorageError):
        return None
    finally:
        cache.close()


def find_offset_of_time(directory: str, timestamp_ms: int) -> int | None:
    """Return the first offset with this timestamp or a later one, or an earlier offset; None for an empty directory.

    All batches before the offset are older, also those that were damaged after they had been indexed. Batches that are
    not indexed are skipped only if their checksums are correct.
    """
    end = None
    for segment in list_segment_files(directory):
        try:
            with (
                open(segment.path, "rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
                memoryview(mapped) as data,
            ):
                entry = _find_indexed_time(segment, timestamp_ms)
                position, end = (0, segment.base_offset) if entry is None else (entry.position, entry.offset)
                while position < len(data):
                    header = parse_header(data, position)
                    is_older = header.max_timestamp < timestamp_ms or not header.record_count
                    if not is_older or not verify_crc(data, position, header.size):
                        return end
                    position, end = position + header.size, header.next_offset
        except CorruptRecords:  # a damaged batch, or space that a running broker has allocated
            return end
        except (FileNotFoundError, ValueError):  # the segment was deleted since it was listed, or is empty
            continue
    return end


def get_segment_size(segment: SegmentFile) -> int:
    """Return the size of a segment file in bytes, or 0 if it was deleted since it was listed."""
    try:
        return os.stat(segment.path).st_size
    except FileNotFoundError:
        return 0


def read_log_start_offset(directory: str) -> int:
    """Return the stored log start offset, or 0 if the log starts with its first segment."""
    return OffsetCheckpointFile(ReadOnlyFileSystem(directory), names.LOG_START).load() or 0


def has_been_compacted(directory: str) -> bool:
    return os.path.exists(f"{directory}/{names.COMPACTED}") or any(
        each.path.endswith(names.SWAP) for each in list_segment_files(directory)
    )


def read_leader_epochs(directory: str) -> tuple[LeaderEpochHistory, bool]:
    """Return the leader epoch history of a partition directory, and whether its file is intact."""
    files = ReadOnlyFileSystem(directory)
    history = LeaderEpochHistory(FileCache(files, OPEN_FILES_MAX), names.LEADER_EPOCHS)
    return history, history.load(read_file(files, names.LEADER_EPOCHS) or b"")


def find_divergence_offset(one: LeaderEpochHistory, one_end: int, other: LeaderEpochHistory, other_end: int) -> int:
    """Return the offset at which two logs diverge according to their leader epochs, at most the end of the shorter one.

    A leader writes each offset once, so equal epochs at an offset mean equal records. Epochs that one of the logs no
    longer knows count as equal.
    """
    end = min(one_end, other_end)
    for offset in sorted({start for _, start in (*one.entries(), *other.entries())}):
        epochs = one.find_epoch_at(offset)[0], other.find_epoch_at(offset)[0]
        if offset < end and epochs[0] != epochs[1] and min(epochs) >= 0:
            return offset
    return end
