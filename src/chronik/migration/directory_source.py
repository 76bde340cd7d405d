"""The data directory of a stopped standalone node as the source of an import. The directory is not modified."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from chronik.broker.quarantine import TOPICS_DIRECTORY
from chronik.clock import SystemClock
from chronik.errors import DataDirectoryInUse
from chronik.files import FileCache, read_file
from chronik.files.overlay import OverlayFileSystem
from chronik.ids import format_id
from chronik.log.config import LogConfig
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.partition_log import PartitionLog
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.metadata.stores.journal import MetadataJournal
from chronik.migration.source import MigrationError, list_visible_topics
from chronik.node.data_directory import LOCK_FILE, SYNCED_OFFSETS_FILE, read_highest_feature_level
from chronik.node.identity import (
    IDENTITY_FILE,
    METADATA_DIRECTORIES,
    DirectoryMode,
    parse_identity,
    reject_newer_metadata,
)
from chronik.protocol.batch import Bytes


class DirectoryLog:
    """The log of a partition in a data directory."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.start: Final = log.log_start_offset
        self.end: Final = log.log_end_offset
        self.last_epoch: Final = log.epochs.latest_epoch
        self.producer_ids: Final = 1 + max((producer_id for producer_id, _ in log.producers.items()), default=-1)

    def read(self, offset: int, max_bytes: int) -> Bytes:
        return self._log.read(offset, max_bytes, self.end)


class DirectorySource:
    """An import source that reads the data directory of a stopped standalone node."""

    is_backup: Final = False

    def __init__(self, path: Path) -> None:
        """Lock and open the directory.

        Raises:
            MigrationError: The directory is in use or not that of a standalone node.
            ConfigError: The node's identity file is invalid.
            DamagedDataError: The metadata is damaged.
        """
        self._path = path
        self.name: Final = str(path)
        self._files = OverlayFileSystem(path)
        self._cache = FileCache(self._files)
        try:
            self._lock = self._files.lock(LOCK_FILE)
        except DataDirectoryInUse:
            raise MigrationError(f"{path} is in use: stop the node first") from None
        except OSError:
            raise MigrationError(f"{path} is not the data directory of a node: it has no {LOCK_FILE}") from None
        try:
            self._check_directory_identity()
            self.image: Final[Image] = MetadataJournal(
                self._files, METADATA_DIRECTORIES[DirectoryMode.STANDALONE]
            ).recover()
            self._synced = SyncedOffsets(self._files, SYNCED_OFFSETS_FILE)
        except BaseException:
            self._lock.close()
            raise
        self._logs: dict[tuple[bytes, int], DirectoryLog] = {}

    def _check_directory_identity(self) -> None:
        data = read_file(self._files, IDENTITY_FILE)
        if data is None:
            raise MigrationError(f"{self._path} is not the data directory of a node: it has no {IDENTITY_FILE}")
        identity = parse_identity(data, str(self._path / IDENTITY_FILE))
        if identity.mode is DirectoryMode.CLUSTER or not self._files.list_directory(
            METADATA_DIRECTORIES[DirectoryMode.STANDALONE]
        ):
            raise MigrationError(
                f"{self._path} is the data directory of {DirectoryMode.CLUSTER.owner_description}: back up and "
                "restore that cluster"
            )
        reject_newer_metadata(read_highest_feature_level(self._files, DirectoryMode.STANDALONE), str(self._path))

    @property
    def id(self) -> bytes:
        """Return an id of the data directory's state, which changes whenever the node starts."""
        image = self.image
        # The import id is derived from this text: its wording must not change.
        text = f"folder {image.cluster_id} {image.applied_index} {image.state_hash}"
        return blake2b(text.encode(), digest_size=16).digest()

    def topics(self) -> list[Topic]:
        return list_visible_topics(self.image)

    def log(self, topic: Topic, partition: int) -> DirectoryLog:
        key = topic.id, partition
        if key not in self._logs:
            log = PartitionLog.open(
                self._files,
                self._cache,
                f"{TOPICS_DIRECTORY}/{format_id(topic.id)}/{partition}",
                LogConfig(),
                SystemClock(),
                self._synced.get(*key),
            )
            if log.missing_start_offset is not None:
                raise MigrationError(
                    f"{self._path}: offsets {log.missing_start_offset} to {log.missing_end_offset - 1} of "
                    f"{topic.name}-{partition} "
                    "were synced once but are missing on this disk"
                )
            self._logs[key] = DirectoryLog(log)
        return self._logs[key]

    def close(self) -> None:
        self._cache.close()
        self._lock.close()
