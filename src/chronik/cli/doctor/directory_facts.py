"""Facts about a data directory: owner, identity, metadata, and its logs unless a node is running. Read-only.

Logs are recovered as on a node, but nothing is written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from chronik.broker.quarantine import TOPICS_DIRECTORY, UNKNOWN_DIRECTORY, is_partition_index
from chronik.cli.doctor.local_facts import DataDirectoryFacts, LogFacts
from chronik.clock import SystemClock
from chronik.config import NodeConfig
from chronik.errors import ChronikError, ConfigError, DamagedDataError, DataDirectoryInUse
from chronik.files import FileCache, FileLock, read_file
from chronik.files.overlay import OverlayFileSystem
from chronik.ids import format_id, parse_id
from chronik.log.config import LogConfig
from chronik.log.files import names
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.log.recovery import recover_log
from chronik.metadata import levels
from chronik.metadata.image import Image
from chronik.metadata.stores.journal import MetadataJournal
from chronik.node.data_directory import (
    LOCK_FILE,
    NODE_FILES,
    SYNCED_OFFSETS_FILE,
    read_directory_id_from_metadata,
    read_highest_feature_level,
)
from chronik.node.identity import (
    DIRECTORY_FORMAT,
    IDENTITY_FILE,
    METADATA_DIRECTORIES,
    DirectoryIdentity,
    DirectoryMode,
    parse_identity,
)

OPEN_FILES_MAX: Final = 64
DAMAGED_RANGES_MAX: Final = 20
CHUNK_BYTES: Final = 1 << 20

NODE_IS_RUNNING: Final = "a running node uses the directory; its /status page reports the state of the logs"

ProgressCallback = Callable[[int, int], None]
"""A callback that receives the number of checked partitions and the total number."""


class PartitionLogInspector:
    def __init__(self, files: OverlayFileSystem) -> None:
        self._files = files
        self._synced = SyncedOffsets(files, SYNCED_OFFSETS_FILE)
        self._names = _read_topic_names(files)

    def inspect(self, topic: str, index: int, *, verify_checksums: bool) -> LogFacts | None:
        """Inspect the log of a partition; return None if it has no problems."""
        name = f"{self._names.get(topic, topic)}-{index}"
        cache = FileCache(self._files, OPEN_FILES_MAX)
        try:
            facts = self._inspect_log(topic, index, name, cache, verify_checksums)
        except (ChronikError, OSError, ValueError) as error:
            return LogFacts(name, unreadable=str(error))
        finally:
            cache.close()
        return facts if facts != LogFacts(name) else None

    def _inspect_log(self, topic: str, index: int, name: str, cache: FileCache, deep: bool) -> LogFacts:
        folder = f"{TOPICS_DIRECTORY}/{topic}/{index}"
        synced = self._synced.get(parse_id(topic), index)
        log = PartitionLog.open(self._files, cache, folder, LogConfig(), SystemClock(), synced)
        missing = (log.missing_start_offset, log.missing_end_offset) if log.missing_start_offset is not None else None
        torn = 0 if self._has_leftover_files(folder) else self._count_truncated_bytes(folder)
        damaged = tuple(_find_damaged_ranges(self._files, cache, folder, synced)) if deep else ()
        return LogFacts(name, torn, missing, damaged)

    def _count_truncated_bytes(self, folder: str) -> int:
        """Return the number of bytes that recovery would truncate from a log, without preallocated zeros."""
        root, total = f"{self._files.root}/{folder}", 0
        for name in os.listdir(root):
            if name.endswith(names.LOG):
                path = f"{folder}/{name}"
                kept = self._files.size(path) if self._files.exists(path) else 0
                total += _count_bytes_after(f"{root}/{name}", kept)
        return total

    def _has_leftover_files(self, folder: str) -> bool:
        """Return whether an interrupted operation left temporary files in a log's directory.

        An example is a compaction.
        """
        present = os.listdir(f"{self._files.root}/{folder}")
        return any(each.endswith((names.SWAP, names.CLEANED, names.DELETED)) for each in present)


def _count_bytes_after(path: str, position: int) -> int:
    """Return the number of bytes in a file after a position, not counting trailing zeros."""
    counted, end = 0, position
    with open(path, "rb") as file:
        file.seek(position)
        while chunk := file.read(CHUNK_BYTES):
            end += len(chunk)
            if stripped := chunk.rstrip(b"\0"):
                counted = end - len(chunk) + len(stripped) - position
    return counted


def _find_damaged_ranges(files: OverlayFileSystem, cache: FileCache, folder: str, synced: int) -> Iterator[str]:
    """Yield the offset ranges of batches with invalid checksums."""
    recovered = recover_log(files, cache, folder, synced, LogConfig().index_interval_bytes)
    damaged_count = 0
    for segment in recovered.segments:
        for piece in segment.scan(0, segment.base_offset, recovered.epochs):
            if piece.batch is None and piece.next_offset > recovered.log_start_offset:
                damaged_count += 1
                if damaged_count <= DAMAGED_RANGES_MAX:
                    yield f"offsets {piece.base_offset} to {piece.next_offset - 1}"


def _read_topic_names(files: OverlayFileSystem) -> dict[str, str]:
    """Return the topic names in a data directory's metadata by topic id; empty if the metadata is unreadable."""
    try:
        image = (
            _load_cluster_image(files)
            if files.list_directory(METADATA_DIRECTORIES[DirectoryMode.CLUSTER])
            else _load_standalone_image(files)
        )
    except (ChronikError, OSError):
        return {}
    return {format_id(topic.id): topic.name for topic in image.topics.values()}


def _load_standalone_image(files: OverlayFileSystem) -> Image:
    folder = METADATA_DIRECTORIES[DirectoryMode.STANDALONE]
    return MetadataJournal(files, folder).recover() if files.list_directory(folder) else Image()


def _load_cluster_image(files: OverlayFileSystem) -> Image:
    """Return a cluster's metadata from the Raft log in a data directory.

    It includes uncommitted entries.
    """
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


def is_data_directory(path: Path) -> bool:
    return any((path / name).exists() for name in NODE_FILES)


def collect_directory_facts(
    path: Path, config: NodeConfig | None, *, verify_checksums: bool, progress: ProgressCallback
) -> DataDirectoryFacts:
    facts: dict[str, Any] = {"path": str(path), "format_supported": DIRECTORY_FORMAT, "level_supported": levels.HIGHEST}
    if config is not None:
        mode = DirectoryMode.CLUSTER if config.peers else DirectoryMode.STANDALONE
        facts |= {"expected_node": config.node_id, "expected_mode": mode.value}
    try:
        facts |= _collect_owner(path)
        names = os.listdir(path)
    except FileNotFoundError:
        problem = None if config is not None else "no such directory"  # a first start creates it
        return DataDirectoryFacts(**facts, problem=problem)
    except OSError as error:
        return DataDirectoryFacts(**facts, problem=error.strerror or str(error))
    if not names:
        return DataDirectoryFacts(**facts)
    if not is_data_directory(path):
        return DataDirectoryFacts(
            **facts, problem="not the data directory of a node: it has none of the expected files"
        )
    return DataDirectoryFacts(**facts, **_collect_contents(path, verify_checksums, progress))


def _collect_owner(path: Path) -> dict[str, Any]:
    found = path.stat()
    if not hasattr(os, "getuid"):
        return {}
    return {
        "owner": _find_user_name(found.st_uid),
        "user": _find_user_name(os.getuid()),
        "is_ours": found.st_uid == os.getuid() or os.getuid() == 0,
        "is_open_to_others": bool(found.st_mode & (stat.S_IROTH | stat.S_IXOTH)),
    }


def _find_user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _collect_contents(path: Path, deep: bool, progress: ProgressCallback) -> dict[str, Any]:
    files = OverlayFileSystem(path)
    facts: dict[str, Any] = {"unknown": tuple(files.list_directory(UNKNOWN_DIRECTORY))}
    partitions = [*_list_partitions(files)]
    facts["partitions"] = len(partitions)
    lock, reason = _lock(files)
    try:
        identity, facts_of_identity = _read_identity(files, path)
        facts |= facts_of_identity | {"in_use": reason == NODE_IS_RUNNING}
        if identity is not None and lock is not None:
            facts |= _check_metadata(files, identity, path)
        if lock is None:
            facts["logs_unseen"] = reason
        else:
            facts |= {"logs": _check_logs(files, partitions, deep, progress), "is_deep": deep}
    except PermissionError as error:
        facts["logs_unseen"] = f"{error.filename}: {error.strerror}"
    finally:
        if lock is not None:
            lock.close()
    return facts


def _lock(files: OverlayFileSystem) -> tuple[FileLock | None, str]:
    """Lock the data directory, so that no node starts during the check; return the lock or a reason."""
    try:
        return files.lock(LOCK_FILE), ""
    except DataDirectoryInUse:
        return None, NODE_IS_RUNNING
    except FileNotFoundError:
        return None, f"{LOCK_FILE} is missing, so a node might start concurrently; perhaps an incomplete copy"
    except OSError as error:
        return None, f"{LOCK_FILE}: {error.strerror or error}"


def _read_identity(files: OverlayFileSystem, path: Path) -> tuple[DirectoryIdentity | None, dict[str, Any]]:
    try:
        data = read_file(files, IDENTITY_FILE)
        if data is None:
            return None, {"identity_problem": f"{path} has no {IDENTITY_FILE}"}
        identity = parse_identity(data, str(path / IDENTITY_FILE))
    except PermissionError as error:
        return None, {"identity_problem": f"{path / IDENTITY_FILE}: {error.strerror}"}
    except (ConfigError, DamagedDataError) as error:
        return None, {"identity_problem": str(error)}
    return identity, {
        "node_id": identity.node_id,
        "mode": identity.mode.value if identity.mode is not None else None,
        "cluster_id": identity.cluster_id,
        "format": identity.format,
    }


def _check_metadata(files: OverlayFileSystem, identity: DirectoryIdentity, path: Path) -> dict[str, Any]:
    """Check that the metadata in a data directory can be read, as a starting node does."""
    mode = identity.mode or DirectoryMode.STANDALONE
    folder = METADATA_DIRECTORIES[mode]
    if not files.list_directory(folder):
        has_topics = any(files.list_directory(each) for each in (TOPICS_DIRECTORY, UNKNOWN_DIRECTORY))
        return {"metadata_problem": f"{path} has no metadata ({folder})"} if has_topics else {}
    try:
        level = read_highest_feature_level(files, mode)
        if level <= levels.HIGHEST:
            read_directory_id_from_metadata(files, identity.node_id, mode)
    except PermissionError:
        raise
    except (ChronikError, OSError) as error:
        return {"metadata_problem": f"{path / folder}: {error}"}
    return {"level": level}


def _list_partitions(files: OverlayFileSystem) -> Iterator[tuple[str, int]]:
    for topic in files.list_directory(TOPICS_DIRECTORY):
        for index in files.list_directory(f"{TOPICS_DIRECTORY}/{topic}"):
            if is_partition_index(index):
                yield topic, int(index)


def _check_logs(
    files: OverlayFileSystem, partitions: list[tuple[str, int]], deep: bool, progress: ProgressCallback
) -> tuple[LogFacts, ...]:
    logs, found = PartitionLogInspector(files), []
    for done, (topic, index) in enumerate(partitions, 1):
        facts = logs.inspect(topic, index, verify_checksums=deep)
        if facts is not None:
            found.append(facts)
        progress(done, len(partitions))
    return tuple(found)
