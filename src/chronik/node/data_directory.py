"""Data directory of a node: locked by one process, and bound to one node, mode and cluster."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from msgspec.structs import replace

from chronik.broker.quarantine import DELETED_DIRECTORY, TOPICS_DIRECTORY, UNKNOWN_DIRECTORY
from chronik.errors import ConfigError, DataDirectoryInUse
from chronik.files import DiskFileSystem, FileLock, write_atomically
from chronik.files.descriptors import DescriptorReserve
from chronik.files.interface import read_file
from chronik.ids import format_id, new_id, parse_id
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.metadata import levels
from chronik.node.directory_recovery import directory_id_from_metadata, highest_feature_level
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
TOPIC_DIRECTORIES = (TOPICS_DIRECTORY, UNKNOWN_DIRECTORY)
NODE_FILES = (
    LOCK_FILE,
    IDENTITY_FILE,
    SYNCED_OFFSETS_FILE,
    *METADATA_DIRECTORIES.values(),
    *TOPIC_DIRECTORIES,
    DELETED_DIRECTORY,
)


class DataDirectory:
    """The data directory of a node, with its lock and its identity file."""

    def __init__(self, path: Path, node_id: int, mode: DirectoryMode, *, restore_identity: bool = False) -> None:
        """With `restore_identity`, a lost `node.json` is restored from the metadata in the directory."""
        self._path = path
        self._node_id = node_id
        self._mode = mode
        self._restore_identity = restore_identity
        self._lock: FileLock | None = None
        self._spare: DescriptorReserve | None = None
        self._identity: DirectoryIdentity
        self.files: DiskFileSystem
        self.previous_cluster_id: str | None = None
        """Cluster id that the directory had before this start."""

    @property
    def directory_id(self) -> bytes:
        """Return the random id of the directory."""
        return parse_id(self._identity.directory_id)

    @property
    def cluster_id(self) -> str | None:
        """Return the cluster id, or None if it is not known yet."""
        return self._identity.cluster_id

    def open(self) -> None:
        """Lock the directory and check that it belongs to this node; on an error, nothing in it has changed.

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
        contents = self._contents()
        stored = read_file(self.files, IDENTITY_FILE)
        found = (
            self._new_identity(contents) if stored is None else parse_identity(stored, str(self._path / IDENTITY_FILE))
        )
        reject_wrong_directory(found, self._node_id, self._mode, contents, str(self._path))
        if found.level > levels.HIGHEST:
            reject_newer_metadata(highest_feature_level(self.files, self._mode), str(self._path))
        self._identity = found
        self.previous_cluster_id = found.cluster_id
        if stored is None or found.format != DIRECTORY_FORMAT:
            self._restrict_permissions()
        else:
            self.files.apply_root_group_permissions()
        current = replace(found, mode=self._mode, format=DIRECTORY_FORMAT, level=max(found.level, levels.HIGHEST))
        if stored is None or current != found:
            self._store(current)

    def _restrict_permissions(self) -> None:
        """Remove other users' permissions when the directory is created or upgraded; later, the operator decides."""
        try:
            self.files.restrict_permissions(NODE_FILES)
        except OSError as error:  # the directory belongs to another user
            logger.warning("data directory %s: permissions of other users cannot be removed: %s", self._path, error)

    def check_cluster(self, cluster_id: str) -> None:
        """Store the cluster id of the metadata.

        Raises:
            ConfigError: The directory belongs to another cluster.
        """
        reject_other_cluster(self._identity, cluster_id, str(self._path))
        if self._identity.cluster_id is None:
            self._store(replace(self._identity, cluster_id=cluster_id))

    def check_directory_id(self, directory_id: bytes) -> None:
        """Compare the directory id in the metadata with that of this directory.

        Raises:
            ConfigError: They differ.
        """
        reject_other_directory_id(self._identity, format_id(directory_id), str(self._path))

    def open_synced_offsets(self) -> SyncedOffsets:
        """Open the file of synced offsets; log a warning if it is missing although there are topics."""
        if self.has_topics and not self.files.exists(SYNCED_OFFSETS_FILE):
            message = "%s is missing: logs are verified from their start, and lost log tails cannot be detected"
            logger.warning(message, SYNCED_OFFSETS_FILE)
        return SyncedOffsets(self.files, SYNCED_OFFSETS_FILE)

    @property
    def has_topics(self) -> bool:
        """Return whether the directory contains partition directories."""
        return any(self.files.list_directory(folder) for folder in TOPIC_DIRECTORIES)

    def _new_identity(self, contents: DirectoryContents) -> DirectoryIdentity:
        if contents.is_empty:
            return DirectoryIdentity(self._node_id, format_id(new_id()), self._mode, format=DIRECTORY_FORMAT)
        if not self._restore_identity:
            reject_lost_identity(str(self._path), contents)
        reject_wrong_directory(
            DirectoryIdentity(self._node_id, ""), self._node_id, self._mode, contents, str(self._path)
        )
        reject_newer_metadata(highest_feature_level(self.files, self._mode), str(self._path))
        return DirectoryIdentity(
            self._node_id, format_id(directory_id_from_metadata(self.files, self._node_id, self._mode)), self._mode
        )

    def _contents(self) -> DirectoryContents:
        metadata = frozenset(mode for mode, folder in METADATA_DIRECTORIES.items() if self._has_data(folder))
        return DirectoryContents(metadata, self.has_topics)

    def _has_data(self, folder: str) -> bool:
        """Return whether any file in the directory has bytes: a log that was just created is empty."""
        paths = [f"{folder}/{name}" for name in self.files.list_directory(folder)]
        return any(self.files.exists(path) and self.files.size(path) for path in paths)

    def _store(self, identity: DirectoryIdentity) -> None:
        write_atomically(self.files, IDENTITY_FILE, msgspec.json.encode(identity))
        self._identity = identity

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._spare is not None:
            self._spare.close()
            self._spare = None
