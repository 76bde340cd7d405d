"""What a node has on disk: who it is, and the files of its partitions.

Little is believed of what a log says of itself: the names of its files, the offsets that it remembers beside them, and
its history of leader epochs. Its indexes are no more than hints.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from chronik.errors import ChronikError, StorageFailed
from chronik.files import FileCache, read_file
from chronik.log.epochs import EpochHistory
from chronik.log.files import names
from chronik.log.files.index import IndexDamaged, IndexEntry, SegmentIndex
from chronik.log.files.offset_file import OffsetFile
from chronik.log.files.synced import SyncedOffsets
from chronik.node.data_folder import SYNCED_OFFSETS_FILE
from chronik.node.identity import IDENTITY_FILE, Identity
from chronik.pipeline.audit.readonly import ReadOnlyFiles
from chronik.pipeline.reading.segment_files import SegmentFile, segments_of
from chronik.pipeline.reading.segments import TOPICS_FOLDER

OPEN_FILES_MAX: Final = 4
LOOKS_MAX: Final = 5


class CannotLook(ChronikError):
    """Something that an audit has to read cannot be read; nothing is said about whether it is right."""


@dataclass(frozen=True, slots=True)
class NodeFolder:
    node: int
    path: str
    identity: bytes
    """What the folder says of itself; no other folder says the same."""

    def partition(self, topic_id: str, index: int) -> str:
        return f"{self.path}/{TOPICS_FOLDER}/{topic_id}/{index}"

    def synced(self) -> SyncedOffsets | None:
        """Returns how far each partition was synced; None when the node never wrote that down, or not readably."""
        for _ in range(LOOKS_MAX):
            try:
                found = SyncedOffsets(ReadOnlyFiles(self.path), SYNCED_OFFSETS_FILE)
                found.close()
                return found
            except FileNotFoundError:
                return None
            except StorageFailed:
                continue  # the node was just making it longer
        return None


def node_folders(paths: Iterable[str | Path]) -> dict[int, NodeFolder]:
    """Opens them, by node. Raises CannotLook when one is not a node's data folder, or two are of the same node."""
    found: dict[int, NodeFolder] = {}
    for path in map(os.path.abspath, paths):  # tasks run elsewhere, where a relative path means something else
        identity = _identity_of(path)
        folder = NodeFolder(_node_of(path, identity), path, identity)
        if folder.node in found:
            raise CannotLook(f"{found[folder.node].path} and {path} are both of node {folder.node}")
        found[folder.node] = folder
    return dict(sorted(found.items()))


def require_same(folders: Iterable[NodeFolder]) -> None:
    """Checks on other machines, where a path may lead nowhere or to another node's folder. Raises CannotLook."""
    for folder in folders:
        if _identity_of(folder.path) != folder.identity:
            raise CannotLook(f"{folder.path} is not the data folder of node {folder.node}, but another")


def _identity_of(path: str) -> bytes:
    try:
        data = read_file(ReadOnlyFiles(path), IDENTITY_FILE)
    except OSError as error:
        raise CannotLook(f"{path}: {error}") from error
    if data is None:
        raise CannotLook(f"{path} is not a node's data folder: there is no {IDENTITY_FILE} in it")
    return data


def _node_of(path: str, identity: bytes) -> int:
    try:
        return msgspec.json.decode(identity, type=Identity).node_id
    except msgspec.DecodeError as error:
        raise CannotLook(f"{path}: {error}") from error


def indexed_place(segment: SegmentFile, offset: int) -> IndexEntry | None:
    """Finds a batch that is not after `offset`, as near to it as the segment's index knows; None when it knows none."""
    folder, name = os.path.split(segment.path)
    if name != names.offset_name(segment.base_offset, names.LOG):
        return None
    cache = FileCache(ReadOnlyFiles(folder), OPEN_FILES_MAX)
    index = SegmentIndex(cache, names.offset_name(segment.base_offset, names.INDEX), segment.base_offset, is_new=False)
    try:
        number = index.floor_offset(offset)
        return index.entry(number) if number >= 0 else None
    except (IndexDamaged, StorageFailed):
        return None
    finally:
        cache.close()


def size_of(segment: SegmentFile) -> int:
    """Returns 0 for one that has gone meanwhile."""
    try:
        return os.stat(segment.path).st_size
    except FileNotFoundError:
        return 0


def log_start_of(folder: str) -> int:
    """Returns where the log begins. A log that begins with its first segment need not say so: then it is 0."""
    return OffsetFile(ReadOnlyFiles(folder), names.LOG_START).load() or 0


def was_compacted(folder: str) -> bool:
    return os.path.exists(f"{folder}/{names.COMPACTED}") or any(
        each.path.endswith(names.SWAP) for each in segments_of(folder)
    )


def epochs_of(folder: str) -> tuple[EpochHistory, bool]:
    """Returns the history of leader epochs, and whether the file is whole."""
    files = ReadOnlyFiles(folder)
    history = EpochHistory(FileCache(files, OPEN_FILES_MAX), names.LEADER_EPOCHS)
    return history, history.load(read_file(files, names.LEADER_EPOCHS) or b"")


def agreed_end(one: EpochHistory, one_end: int, other: EpochHistory, other_end: int) -> int:
    """Returns where two logs stop being the same by the rule of leader epochs: a leader writes an offset once, so what
    two logs hold of one epoch at one offset is the same. Epochs that one of them has forgotten count as agreed."""
    end = min(one_end, other_end)
    for offset in sorted({start for _, start in (*one.entries(), *other.entries())}):
        epochs = one.range_at(offset)[0], other.range_at(offset)[0]
        if offset < end and epochs[0] != epochs[1] and min(epochs) >= 0:
            return offset
    return end
