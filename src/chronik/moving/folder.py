"""The data directory of a stopped standalone node as the source of an import. The directory is not modified."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from chronik.broker.set_aside import TOPICS_FOLDER
from chronik.clock import SystemClock
from chronik.errors import DataFolderInUse
from chronik.files import FileCache, read_file
from chronik.files.overlay import OverlayFiles
from chronik.ids import format_id
from chronik.log.config import LogConfig
from chronik.log.files.synced import SyncedOffsets
from chronik.log.partition import PartitionLog
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.metadata.stores.journal import Journal
from chronik.moving.source import CannotMove, visible_topics
from chronik.node.data_folder import LOCK_FILE, SYNCED_OFFSETS_FILE
from chronik.node.identity import IDENTITY_FILE, METADATA_FOLDERS, Mode, parse_identity, refuse_newer_metadata
from chronik.node.restoring import level_raised_to
from chronik.protocol.batch import Bytes


class FolderLog:
    """The log of a partition in a data directory."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.start: Final = log.log_start_offset
        self.end: Final = log.log_end_offset
        self.last_epoch: Final = log.epochs.latest_epoch
        self.producer_ids: Final = 1 + max((producer_id for producer_id, _ in log.producers.items()), default=-1)

    def read(self, offset: int, max_bytes: int) -> Bytes:
        return self._log.read(offset, max_bytes, self.end)


class StandaloneFolder:
    """The data directory of a stopped standalone node."""

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
        self._files = OverlayFiles(path)
        self._cache = FileCache(self._files)
        try:
            self._lock = self._files.lock(LOCK_FILE)
        except DataFolderInUse:
            raise CannotMove(f"{path} is in use: stop the node first") from None
        except OSError:
            raise CannotMove(f"{path} is not the data directory of a node: it has no {LOCK_FILE}") from None
        try:
            self._check_identity()
            self.image: Final[Image] = Journal(self._files, METADATA_FOLDERS[Mode.STANDALONE]).recover()
            self._synced = SyncedOffsets(self._files, SYNCED_OFFSETS_FILE)
        except BaseException:
            self._lock.close()
            raise
        self._logs: dict[tuple[bytes, int], FolderLog] = {}

    def _check_identity(self) -> None:
        data = read_file(self._files, IDENTITY_FILE)
        if data is None:
            raise CannotMove(f"{self._path} is not the data directory of a node: it has no {IDENTITY_FILE}")
        identity = parse_identity(data, str(self._path / IDENTITY_FILE))
        if identity.mode is Mode.CLUSTER or not self._files.list_folder(METADATA_FOLDERS[Mode.STANDALONE]):
            raise CannotMove(
                f"{self._path} is the data directory of {Mode.CLUSTER.owner}: back up and restore that cluster"
            )
        refuse_newer_metadata(level_raised_to(self._files, Mode.STANDALONE), str(self._path))

    @property
    def id(self) -> bytes:
        """Return an id of the directory's state. It changes with every start, because the broker registers then."""
        image = self.image
        # The import id is derived from this text: its wording must not change.
        text = f"folder {image.cluster_id} {image.applied_index} {image.state_hash}"
        return blake2b(text.encode(), digest_size=16).digest()

    def topics(self) -> list[Topic]:
        return visible_topics(self.image)

    def log(self, topic: Topic, partition: int) -> FolderLog:
        key = topic.id, partition
        if key not in self._logs:
            log = PartitionLog.open(
                self._files,
                self._cache,
                f"{TOPICS_FOLDER}/{format_id(topic.id)}/{partition}",
                LogConfig(),
                SystemClock(),
                self._synced.get(*key),
            )
            if log.missing_from is not None:
                raise CannotMove(
                    f"{self._path}: offsets {log.missing_from} to {log.missing_end - 1} of {topic.name}-{partition} "
                    "were synced once but are missing on this disk"
                )
            self._logs[key] = FolderLog(log)
        return self._logs[key]

    def close(self) -> None:
        self._cache.close()
        self._lock.close()
