"""Inspection of the partition logs in a data directory: recovery runs as on a node, but nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from chronik.broker.quarantine import TOPICS_DIRECTORY
from chronik.cli.doctor.local_facts import LogFacts
from chronik.clock import SystemClock
from chronik.errors import ChronikError
from chronik.files import FileCache
from chronik.files.overlay import OverlayFileSystem
from chronik.ids import format_id, parse_id
from chronik.log.config import LogConfig
from chronik.log.files import names
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.log.recovery import recover_log
from chronik.metadata.image import Image
from chronik.metadata.stores.journal import MetadataJournal
from chronik.node.data_directory import SYNCED_OFFSETS_FILE
from chronik.node.identity import METADATA_DIRECTORIES, DirectoryMode

OPEN_FILES_MAX: Final = 64
DAMAGED_RANGES_MAX: Final = 20
CHUNK_BYTES: Final = 1 << 20


class PartitionLogInspector:
    def __init__(self, files: OverlayFileSystem) -> None:
        self._files = files
        self._synced = SyncedOffsets(files, SYNCED_OFFSETS_FILE)
        self._names = _topic_names(files)

    def inspect(self, topic: str, index: int, *, verify_checksums: bool) -> LogFacts | None:
        """Inspect the log of a partition; return None if it has no problems."""
        name = f"{self._names.get(topic, topic)}-{index}"
        cache = FileCache(self._files, OPEN_FILES_MAX)
        try:
            facts = self._inspect(topic, index, name, cache, verify_checksums)
        except (ChronikError, OSError, ValueError) as error:
            return LogFacts(name, unreadable=str(error))
        finally:
            cache.close()
        return facts if facts != LogFacts(name) else None

    def _inspect(self, topic: str, index: int, name: str, cache: FileCache, deep: bool) -> LogFacts:
        folder = f"{TOPICS_DIRECTORY}/{topic}/{index}"
        synced = self._synced.get(parse_id(topic), index)
        log = PartitionLog.open(self._files, cache, folder, LogConfig(), SystemClock(), synced)
        missing = (log.missing_start_offset, log.missing_end_offset) if log.missing_start_offset is not None else None
        torn = 0 if self._has_leftovers(folder) else self._truncated_bytes(folder)
        damaged = tuple(_find_damage(self._files, cache, folder, synced)) if deep else ()
        return LogFacts(name, torn, missing, damaged)

    def _truncated_bytes(self, folder: str) -> int:
        """Return the number of bytes that recovery truncates, without preallocated zeros."""
        root, total = f"{self._files.root}/{folder}", 0
        for name in os.listdir(root):
            if name.endswith(names.LOG):
                path = f"{folder}/{name}"
                kept = self._files.size(path) if self._files.exists(path) else 0
                total += _bytes_after(f"{root}/{name}", kept)
        return total

    def _has_leftovers(self, folder: str) -> bool:
        """Return whether an interrupted operation left files behind. Recovery finishes it, so sizes are meaningless."""
        present = os.listdir(f"{self._files.root}/{folder}")
        return any(each.endswith((names.SWAP, names.CLEANED, names.DELETED)) for each in present)


def _bytes_after(path: str, position: int) -> int:
    """Return the number of bytes after a position, up to the last byte that is not zero."""
    counted, end = 0, position
    with open(path, "rb") as file:
        file.seek(position)
        while chunk := file.read(CHUNK_BYTES):
            end += len(chunk)
            if stripped := chunk.rstrip(b"\0"):
                counted = end - len(chunk) + len(stripped) - position
    return counted


def _find_damage(files: OverlayFileSystem, cache: FileCache, folder: str, synced: int) -> Iterator[str]:
    """Yield the offset ranges of batches whose checksums are wrong."""
    recovered = recover_log(files, cache, folder, synced, LogConfig().index_interval_bytes)
    damaged_count = 0
    for segment in recovered.segments:
        for piece in segment.scan(0, segment.base_offset, recovered.epochs):
            if piece.batch is None and piece.next_offset > recovered.log_start_offset:
                damaged_count += 1
                if damaged_count <= DAMAGED_RANGES_MAX:
                    yield f"offsets {piece.base_offset} to {piece.next_offset - 1}"


def _topic_names(files: OverlayFileSystem) -> dict[str, str]:
    """Return topic names by id, as far as the metadata in the directory can be read."""
    try:
        image = (
            _cluster_image(files)
            if files.list_directory(METADATA_DIRECTORIES[DirectoryMode.CLUSTER])
            else _standalone_image(files)
        )
    except (ChronikError, OSError):
        return {}
    return {format_id(topic.id): topic.name for topic in image.topics.values()}


def _standalone_image(files: OverlayFileSystem) -> Image:
    folder = METADATA_DIRECTORIES[DirectoryMode.STANDALONE]
    return MetadataJournal(files, folder).recover() if files.list_directory(folder) else Image()


def _cluster_image(files: OverlayFileSystem) -> Image:
    """Return the image with all log entries. Uncommitted ones are included; they only add topic names."""
    from chronik.metadata.image_state_machine import ImageStateMachine
    from chronik.metadata.snapshot import decode_snapshot
    from chronik.quorum.storage import RaftStorage

    storage = RaftStorage.open(files, METADATA_DIRECTORIES[DirectoryMode.CLUSTER])
    try:
        machine = ImageStateMachine(lambda delta: None, lambda envelope, result: None, lambda: None)
        recovered = storage.recovered
        if recovered.snapshot.index:
            machine.image = decode_snapshot(storage.read_snapshot(recovered.snapshot.index))
        for index in range(machine.image.applied_index + 1, recovered.last_index + 1):
            machine.apply(storage.entries(index, index + 1, 0))
        return machine.image
    finally:
        storage.close()
