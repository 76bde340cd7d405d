"""Data directory of a node: locked by one process, and bound to one node, mode and cluster.

If `node.json` is lost or was written by a newer version, the metadata in the directory supplies the directory id and
the feature level.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from msgspec.structs import replace

from chronik.broker.quarantine import DELETED_DIRECTORY, TOPICS_DIRECTORY, UNKNOWN_DIRECTORY
from chronik.errors import ConfigError, DamagedDataError, DataDirectoryInUse
from chronik.files import DiskFileSystem, FileLock, FileSystem, read_file, write_atomically
from chronik.files.disk import DescriptorReserve
from chronik.ids import format_id, generate_id, parse_id
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.metadata import levels
from chronik.node.identity import (
    DIRECTORY_FORMAT,
    IDENTITY_FILE,
    METADATA_DIRECTORIES,
    DirectoryContents,
    DirectoryIdentity,
    DirectoryMode,
    parse_identity,
    reject_lost_identity,
    reject_newer_metadata,
    reject_other_cluster,
    reject_other_directory_id,
    reject_wrong_directory,
)

logger = logging.getLogger("chronik.node")

LOCK_FILE = ".lock"
SYNCED_OFFSETS_FILE = "synced-offsets"
HISTORY_FILE = "history"
TOPIC_DIRECTORIES = (TOPICS_DIRECTORY, UNKNOWN_DIRECTORY)
NODE_FILES = (
    LOCK_FILE,
    IDENTITY_FILE,
    SYNCED_OFFSETS_FILE,
    HISTORY_FILE,
    *METADATA_DIRECTORIES.values(),
    *TOPIC_DIRECTORIES,
    DELETED_DIRECTORY,
)


class DataDirectory:
    """The data directory of a node, with its lock and its identity file."""

    def __init__(self, path: Path, node_id: int, mode: DirectoryMode, *, restore_identity: bool = False) -> None:
        """Create the object without opening it; `restore_identity` lets `open` recreate a lost `node.json`."""
        self._path = path
        self._node_id = node_id
        self._mode = mode
        self._restore_identity = restore_identity
        self._lock: FileLock | None = None
        self._spare: DescriptorReserve | None = None
        self._identity: DirectoryIdentity
        self.files: DiskFileSystem
        self.previous_cluster_id: str | None = None
        """The cluster id that `node.json` contained when the node started, or None."""

    @property
    def directory_id(self) -> bytes:
        """Return the random id by which a replaced disk is detected."""
        return parse_id(self._identity.directory_id)

    @property
    def cluster_id(self) -> str | None:
        """Return the cluster id, or None if it is not known yet."""
        return self._identity.cluster_id

    def open(self) -> None:
        """Lock the data directory and check that it belongs to this node. A failed check changes nothing in it.

        Raises:
            DataDirectoryInUse: Another process has locked it.
            DamagedDataError: The identity file is damaged.
            ConfigError: It belongs to another node, mode or version, or cannot be created.
        """
        try:
            self._spare = DescriptorReserve()
            self.files = DiskFileSystem(self._path, self._spare)
            self._lock = self.files.lock(LOCK_FILE)
        except DataDirectoryInUse as error:
            raise DataDirectoryInUse(f"the data directory {self._path} is in use by another process") from error
        except OSError as error:
            raise ConfigError(f"data_dir = {str(self._path)!r}: {error.strerror or error}") from error
        contents = self._inspect_directory_contents()
        stored = read_file(self.files, IDENTITY_FILE)
        found = (
            self._create_identity(contents)
            if stored is None
            else parse_identity(stored, str(self._path / IDENTITY_FILE))
        )
        reject_wrong_directory(found, self._node_id, self._mode, contents, str(self._path))
        if found.level > levels.HIGHEST:
            reject_newer_metadata(read_highest_feature_level(self.files, self._mode), str(self._path))
        self._identity = found
        self.previous_cluster_id = found.cluster_id
        if stored is None or found.format != DIRECTORY_FORMAT:
            self._restrict_permissions()
        else:
            self.files.apply_root_group_permissions()
        current = replace(found, mode=self._mode, format=DIRECTORY_FORMAT, level=max(found.level, levels.HIGHEST))
        if stored is None or current != found:
            self._write_identity_file(current)

    def _restrict_permissions(self) -> None:
        """Remove the permissions of other users on the directory's files when the directory is created or upgraded."""
        try:
            self.files.restrict_permissions(NODE_FILES)
        except OSError as error:  # the directory belongs to another user
            logger.warning("data directory %s: removing the permissions of other users failed: %s", self._path, error)

    def check_cluster(self, cluster_id: str) -> None:
        """Check that the metadata belongs to the cluster in `node.json`, and store the cluster id if there is none yet.

        Raises:
            ConfigError: The directory belongs to another cluster.
        """
        reject_other_cluster(self._identity, cluster_id, str(self._path))
        if self._identity.cluster_id is None:
            self._write_identity_file(replace(self._identity, cluster_id=cluster_id))

    def check_directory_id(self, directory_id: bytes) -> None:
        """Check that the directory id in the metadata equals the directory id in `node.json`.

        Raises:
            ConfigError: They differ.
        """
        reject_other_directory_id(self._identity, format_id(directory_id), str(self._path))

    def open_synced_offsets(self) -> SyncedOffsets:
        """Open the file of synced offsets; log a warning if it is missing although the directory contains topics."""
        if self.has_topics and not self.files.exists(SYNCED_OFFSETS_FILE):
            message = "%s is missing: logs are verified from their start, and lost log tails cannot be detected"
            logger.warning(message, SYNCED_OFFSETS_FILE)
        return SyncedOffsets(self.files, SYNCED_OFFSETS_FILE)

    @property
    def has_topics(self) -> bool:
        """Return whether the data directory contains any partition directories."""
        return any(self.files.list_directory(folder) for folder in TOPIC_DIRECTORIES)

    def _create_identity(self, contents: DirectoryContents) -> DirectoryIdentity:
        if contents.is_empty:
            return DirectoryIdentity(self._node_id, format_id(generate_id()), self._mode, format=DIRECTORY_FORMAT)
        if not self._restore_identity:
            reject_lost_identity(str(self._path), contents)
        reject_wrong_directory(
            DirectoryIdentity(self._node_id, ""), self._node_id, self._mode, contents, str(self._path)
        )
        reject_newer_metadata(read_highest_feature_level(self.files, self._mode), str(self._path))
        return DirectoryIdentity(
            self._node_id, format_id(read_directory_id_from_metadata(self.files, self._node_id, self._mode)), self._mode
        )

    def _inspect_directory_contents(self) -> DirectoryContents:
        metadata = frozenset(
            mode for mode, folder in METADATA_DIRECTORIES.items() if self._contains_non_empty_file(folder)
        )
        return DirectoryContents(metadata, self.has_topics)

    def _contains_non_empty_file(self, folder: str) -> bool:
        """Return whether a subdirectory contains a non-empty file."""
        paths = [f"{folder}/{name}" for name in self.files.list_directory(folder)]
        return any(self.files.exists(path) and self.files.size(path) for path in paths)

    def _write_identity_file(self, identity: DirectoryIdentity) -> None:
        write_atomically(self.files, IDENTITY_FILE, msgspec.json.encode(identity))
        self._identity = identity

    def close(self) -> None:
        """Release the lock of the data directory."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._spare is not None:
            self._spare.close()
            self._spare = None


def read_directory_id_from_metadata(files: FileSystem, node_id: int, mode: DirectoryMode) -> bytes:
    """Return the directory id of this node according to the metadata.

    Raises:
        ConfigError: The metadata does not contain the node.
        DamagedDataError: The metadata is damaged.
    """
    found = (
        _read_standalone_directory_id(files, node_id)
        if mode is DirectoryMode.STANDALONE
        else _read_cluster_directory_id(files, node_id)
    )
    if found is None:
        raise ConfigError(
            f"the metadata in {METADATA_DIRECTORIES[mode]} does not contain node {node_id}: check node_id"
        )
    return found


def _read_standalone_directory_id(files: FileSystem, node_id: int) -> bytes | None:
    from chronik.metadata.stores.journal import MetadataJournal

    journal = MetadataJournal(files)
    try:
        broker = journal.recover().brokers.get(node_id)
    finally:
        journal.close()
    return None if broker is None else broker.directory_id


def _read_cluster_directory_id(files: FileSystem, node_id: int) -> bytes | None:
    """Return the node's directory id in the newest Raft membership on this disk, committed or not, or None."""
    from chronik.quorum.storage import RaftStorage
    from chronik.raft.entries import EntryKind
    from chronik.raft.membership import UNBOUND_DIRECTORY, decode_membership

    storage = RaftStorage.open(files, METADATA_DIRECTORIES[DirectoryMode.CLUSTER])
    try:
        recovered = storage.recovered
        membership = recovered.snapshot.membership
        for index in range(recovered.compacted_index + 1, recovered.last_index + 1):
            entry = storage.entries(index, index + 1, 0)[0]
            if entry.kind is EntryKind.MEMBERSHIP:
                membership = decode_membership(entry.data)
    finally:
        storage.close()
    member = membership.get(node_id)
    return None if member is None or member.directory_id == UNBOUND_DIRECTORY else member.directory_id


def read_highest_feature_level(files: FileSystem, mode: DirectoryMode) -> int:
    """Return the highest feature level in the metadata, including uncommitted log entries, without writing to disk.

    Additions of newer versions are ignored. A level counts as soon as it is in the log, even if the command failed when
    it was applied. A readable directory may therefore be rejected, but an unreadable one is never accepted.

    Raises:
        DamagedDataError: The metadata is damaged.
    """
    from chronik.metadata.commands.cluster import SET_FEATURE_LEVEL_TAG
    from chronik.metadata.snapshot import FEATURE_TAG
    from chronik.wal import log, snapshots
    from chronik.wal.records import build_indexed_path, list_file_indexes, scan_records

    folder, level = METADATA_DIRECTORIES[mode], levels.FIRST_LEVEL
    for index in list_file_indexes(folder, snapshots.SNAPSHOT_SUFFIX, files):
        for chunk in snapshots.read_snapshot(files, folder, index):
            level = max(level, levels.peek_feature_level(chunk, FEATURE_TAG))
    for first_index in list_file_indexes(folder, log.SEGMENT_SUFFIX, files):
        data = read_file(files, build_indexed_path(folder, first_index, log.SEGMENT_SUFFIX)) or b""
        for record in scan_records(memoryview(data), first_index)[0]:
            level = max(
                level, levels.peek_feature_level(_extract_encoded_command(record.payload, mode), SET_FEATURE_LEVEL_TAG)
            )
    return level


def _extract_encoded_command(payload: memoryview, mode: DirectoryMode) -> bytes:
    """Return the encoded command in a record of the metadata log, or empty bytes if the record has none."""
    if mode is DirectoryMode.STANDALONE:
        return bytes(payload)
    from chronik.quorum.stored_entries import decode_record
    from chronik.raft.entries import EntryKind, RaftEntry

    try:
        record = decode_record(payload)
    except DamagedDataError:  # not damaged, but a record type of a newer version
        return b""
    return record.data if isinstance(record, RaftEntry) and record.kind is EntryKind.COMMAND else b""
