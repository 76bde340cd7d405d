"""The data folder: one process at a time, one node for ever, in one mode and one cluster."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from msgspec.structs import replace

from chronik.broker.set_aside import DELETED_FOLDER, TOPICS_FOLDER, UNKNOWN_FOLDER
from chronik.errors import ConfigError, DataFolderInUse
from chronik.files import Lock, RealFiles, write_atomically
from chronik.files.descriptors import SpareDescriptors
from chronik.files.interface import read_file
from chronik.ids import format_id, new_id, parse_id
from chronik.log.files.synced import SyncedOffsets
from chronik.metadata import levels
from chronik.node.identity import (
    FORMAT,
    IDENTITY_FILE,
    METADATA_FOLDERS,
    Contents,
    Identity,
    Mode,
    parse_identity,
    refuse_lost_identity,
    refuse_newer_metadata,
    refuse_other_cluster,
    refuse_other_directory,
    refuse_wrong_start,
)
from chronik.node.restoring import known_directory, level_raised_to

logger = logging.getLogger("chronik.node")

LOCK_FILE = ".lock"
SYNCED_OFFSETS_FILE = "synced-offsets"
FOLDERS_OF_TOPICS = (TOPICS_FOLDER, UNKNOWN_FOLDER)
MADE_BY_A_NODE = (
    LOCK_FILE,
    IDENTITY_FILE,
    SYNCED_OFFSETS_FILE,
    *METADATA_FOLDERS.values(),
    *FOLDERS_OF_TOPICS,
    DELETED_FOLDER,
)


class DataFolder:
    def __init__(self, path: Path, node_id: int, mode: Mode, *, restore_identity: bool = False) -> None:
        """With `restore_identity` a lost `node.json` is written anew, as the metadata in the folder knows it."""
        self._path = path
        self._node_id = node_id
        self._mode = mode
        self._restore_identity = restore_identity
        self._lock: Lock | None = None
        self._spare: SpareDescriptors | None = None
        self._identity: Identity
        self.files: RealFiles
        self.was_of_cluster: str | None = None
        """The cluster that the folder was known to belong to before this start."""

    @property
    def directory_id(self) -> bytes:
        return parse_id(self._identity.directory_id)

    @property
    def cluster_id(self) -> str | None:
        return self._identity.cluster_id

    def open(self) -> None:
        """Raises DataFolderInUse, DataDamaged, and ConfigError when it is not the folder of such a node or cannot be
        made; then nothing in it has changed."""
        try:
            self._spare = SpareDescriptors()
            self.files = RealFiles(self._path, self._spare)
            self._lock = self.files.lock(LOCK_FILE)
        except DataFolderInUse as error:
            raise DataFolderInUse(f"the data folder {self._path} is in use by another process") from error
        except OSError as error:
            raise ConfigError(f"data_dir = {str(self._path)!r}: {error.strerror or error}") from error
        contents = self._contents()
        stored = read_file(self.files, IDENTITY_FILE)
        found = self._founded(contents) if stored is None else parse_identity(stored, str(self._path / IDENTITY_FILE))
        refuse_wrong_start(found, self._node_id, self._mode, contents, str(self._path))
        if found.level > levels.HIGHEST:
            refuse_newer_metadata(level_raised_to(self.files, self._mode), str(self._path))
        self._identity = found
        self.was_of_cluster = found.cluster_id
        if stored is None or found.format != FORMAT:
            self._close_to_others()
        else:
            self.files.share_as_the_root_is()
        current = replace(found, mode=self._mode, format=FORMAT, level=max(found.level, levels.HIGHEST))
        if stored is None or current != found:
            self._store(current)

    def _close_to_others(self) -> None:
        """Closes it once, when it is made or brought over from an earlier version: after that its operator decides."""
        try:
            self.files.close_to_others(MADE_BY_A_NODE)
        except OSError as error:  # another user's folder that this one was let into
            logger.warning("%s is open to others, and cannot be closed to them: %s", self._path, error)

    def belongs_to(self, cluster_id: str) -> None:
        """Remembers the cluster that the metadata names. Raises ConfigError when the folder belongs to another."""
        refuse_other_cluster(self._identity, cluster_id, str(self._path))
        if self._identity.cluster_id is None:
            self._store(replace(self._identity, cluster_id=cluster_id))

    def is_directory(self, directory_id: bytes) -> None:
        """Checks the id under which the metadata knows this node's disk. Raises ConfigError."""
        refuse_other_directory(self._identity, format_id(directory_id), str(self._path))

    def synced_offsets(self) -> SyncedOffsets:
        if self.has_topics and not self.files.exists(SYNCED_OFFSETS_FILE):
            told = "%s is gone: logs are checked from their start, and it is not known what else is gone"
            logger.warning(told, SYNCED_OFFSETS_FILE)
        return SyncedOffsets(self.files, SYNCED_OFFSETS_FILE)

    @property
    def has_topics(self) -> bool:
        return any(self.files.list_folder(folder) for folder in FOLDERS_OF_TOPICS)

    def _founded(self, contents: Contents) -> Identity:
        if contents.is_empty:
            return Identity(self._node_id, format_id(new_id()), self._mode, format=FORMAT)
        if not self._restore_identity:
            refuse_lost_identity(str(self._path), contents)
        refuse_wrong_start(Identity(self._node_id, ""), self._node_id, self._mode, contents, str(self._path))
        refuse_newer_metadata(level_raised_to(self.files, self._mode), str(self._path))
        return Identity(self._node_id, format_id(known_directory(self.files, self._node_id, self._mode)), self._mode)

    def _contents(self) -> Contents:
        metadata = frozenset(mode for mode, folder in METADATA_FOLDERS.items() if self._holds_bytes(folder))
        return Contents(metadata, self.has_topics)

    def _holds_bytes(self, folder: str) -> bool:
        """A log that was only just made is an empty file."""
        paths = [f"{folder}/{name}" for name in self.files.list_folder(folder)]
        return any(self.files.exists(path) and self.files.size(path) for path in paths)

    def _store(self, identity: Identity) -> None:
        write_atomically(self.files, IDENTITY_FILE, msgspec.json.encode(identity))
        self._identity = identity

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._spare is not None:
            self._spare.close()
            self._spare = None
