"""Full and incremental backups of a running cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from chronik.client.cluster import Cluster
from chronik.errors import DataFolderInUse
from chronik.files import FileSystem, RealFiles
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.moving import failpoints
from chronik.moving.backup.copying import Copying
from chronik.moving.backup.folder import BackupSource
from chronik.moving.backup.manifest import (
    FORMAT,
    LOGS,
    FileEntry,
    Manifest,
    PartitionEntry,
    digest_of,
    read_manifest,
    write_manifest,
)
from chronik.moving.backup.moment import Moment
from chronik.moving.backup.reading import Ends, Reader
from chronik.moving.plan import plan_of
from chronik.moving.rehearsal import rehearse
from chronik.moving.source import CannotMove, visible_topics
from chronik.moving.target import Key

LOCK_FILE: Final = ".lock"


class Taken(NamedTuple):
    """The result of a backup run."""

    manifest: Manifest
    partitions_kept: int
    """The number of partitions whose earlier copy was continued."""
    bytes_copied: int
    topics_gone: list[str]
    """Names of topics that were deleted during the backup."""


class Backup:
    """A backup directory, locked against concurrent runs. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Lock the directory and read its manifest.

        Raises:
            MigrationError: Another run is writing to the directory.
            DamagedDataError: The manifest is damaged.
        """
        self._files = RealFiles(path)
        try:
            self._lock = self._files.lock(LOCK_FILE)
        except DataFolderInUse:
            raise CannotMove(f"another run is writing to {path}") from None
        self.path: Final = path
        try:
            self.before: Final = read_manifest(self._files)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Backup:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def refuse_other(self, image: Image) -> None:
        """Raise MigrationError if the backup belongs to another cluster."""
        if self.before is not None and self.before.cluster_id != image.cluster_id:
            raise CannotMove(f"{self.path} is a backup of cluster {self.before.cluster_id}, not of {image.cluster_id}")

    def take(self, cluster: Cluster, moment: Moment, now_ms: int, tell: Callable[[str], None]) -> Taken:
        """Back up all partitions up to the consistent point, verify that it can be restored, and replace the manifest.

        Raises:
            MigrationError: The backup cannot be taken or could not be restored.
        """
        self.refuse_other(moment.image)
        run = 1 if self.before is None else self.before.run + 1
        self._remove_unlisted_files()
        reader = Reader(cluster, moment.image)
        compacted = {topic.id for topic in moment.image.topics.values() if _is_compacted(topic)}
        kept = self._find_continuable(reader, moment.ends, compacted)
        copying = Copying(self._files, reader, moment.ends, kept, compacted, run)
        entries = copying.run(tell)
        reader.look_again()
        gone = sorted({topic.name for topic in visible_topics(moment.image) if reader.is_gone((topic.id, 0))})
        image = self._write_image(moment, run)
        manifest = Manifest(
            FORMAT,
            moment.image.cluster_id,
            run,
            now_ms,
            moment.image.applied_index,
            image,
            tuple(entry for key, entry in sorted(entries.items()) if not reader.is_gone(key)),
        )
        self._check_restorable(manifest, moment.image)
        failpoints.reached(failpoints.BEFORE_MANIFEST)
        write_manifest(self._files, manifest)
        failpoints.reached(failpoints.AFTER_MANIFEST)
        self._remove_unlisted_files(manifest)
        return Taken(manifest, len(kept), copying.bytes_copied, gone)

    def _check_restorable(self, manifest: Manifest, image: Image) -> None:
        """Raise MigrationError if a restore would fail. The previous backup then stays in place."""
        source = BackupSource(str(self.path), self._files, manifest, image)
        try:
            rehearse(source, plan_of(source))
        finally:
            source.close()

    def _find_continuable(
        self, reader: Reader, ends: Mapping[Key, Ends], compacted: set[bytes]
    ) -> dict[Key, PartitionEntry]:
        """Return the copies of an earlier run that are still part of their logs and can be continued."""
        known = {entry.key: entry for entry in self.before.partitions} if self.before is not None else {}
        candidates = {}
        for key, (start, end) in ends.items():
            entry = known.get(key)
            if entry is None or not entry.start <= start <= entry.end <= end:
                continue
            if (entry.is_compacted or key[0] in compacted) and entry.end != end:
                continue  # a tombstone may have been compacted since, and the deleted key would reappear
            candidates[key] = entry
        written = {key: entry for key, entry in candidates.items() if entry.last_epoch >= 0}
        ends_by_epoch = reader.epoch_ends({key: entry.last_epoch for key, entry in written.items()})
        for key, entry in written.items():
            epoch, end = ends_by_epoch.get(key, (-1, -1))
            if epoch != entry.last_epoch or end < entry.end:
                del candidates[key]  # the log was truncated by an unclean election and overwritten
        return candidates

    def _write_image(self, moment: Moment, run: int) -> FileEntry:
        data = msgspec.msgpack.encode(moment.chunks)
        entry = FileEntry(f"image-{run}.msgpack", len(data), digest_of(data))
        file = self._files.create(entry.path)
        try:
            file.truncate(0)
            file.append(data)
            file.fdatasync()
        finally:
            file.close()
        self._files.sync_folder("")
        return entry

    def _remove_unlisted_files(self, manifest: Manifest | None = None) -> None:
        """Remove files that the manifest does not list: those of interrupted runs and deleted partitions."""
        manifest = manifest or self.before
        listed = {file.path for file in manifest.files()} if manifest is not None else set()
        for name in self._files.list_folder(""):
            if name.startswith("image-") and name not in listed:
                self._files.remove(name)
        for topic_id in self._files.list_folder(LOGS):
            for partition in self._files.list_folder(f"{LOGS}/{topic_id}"):
                directory = f"{LOGS}/{topic_id}/{partition}"
                for name in self._files.list_folder(directory):
                    if f"{directory}/{name}" not in listed:
                        self._files.remove(f"{directory}/{name}")
                _remove_if_empty(self._files, directory)
            _remove_if_empty(self._files, f"{LOGS}/{topic_id}")


def _remove_if_empty(files: FileSystem, directory: str) -> None:
    if not files.list_folder(directory):
        files.remove_folder(directory)


def _is_compacted(topic: Topic) -> bool:
    return "compact" in topic.configs.get("cleanup.policy", "")
