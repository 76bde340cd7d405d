"""Takes a backup of a running cluster, or brings one up to date: what is new is copied, what is gone is dropped."""

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
    manifest: Manifest
    partitions_kept: int
    """Partitions of which the earlier copy was gone on with."""
    bytes_copied: int
    topics_gone: list[str]
    """Topics that were deleted while the backup was taken."""


class Backup:
    """Use it as a context manager: no other run may write into the folder meanwhile."""

    def __init__(self, path: Path) -> None:
        """Raises CannotMove when another run is at it, DataDamaged when its manifest is not as it was written."""
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
        """Raises CannotMove when the backup is of another cluster."""
        if self.before is not None and self.before.cluster_id != image.cluster_id:
            raise CannotMove(f"{self.path} is a backup of cluster {self.before.cluster_id}, not of {image.cluster_id}")

    def take(self, cluster: Cluster, moment: Moment, now_ms: int, tell: Callable[[str], None]) -> Taken:
        """Copies all up to the ends of the moment. Raises CannotMove, also when it could not be restored, and what the
        client raises."""
        self.refuse_other(moment.image)
        run = 1 if self.before is None else self.before.run + 1
        self._remove_unnamed()
        reader = Reader(cluster, moment.image)
        compacted = {topic.id for topic in moment.image.topics.values() if _is_compacted(topic)}
        kept = self._kept(reader, moment.ends, compacted)
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
        self._rehearse(manifest, moment.image)
        failpoints.reached(failpoints.BEFORE_MANIFEST)
        write_manifest(self._files, manifest)
        failpoints.reached(failpoints.AFTER_MANIFEST)
        self._remove_unnamed(manifest)
        return Taken(manifest, len(kept), copying.bytes_copied, gone)

    def _rehearse(self, manifest: Manifest, image: Image) -> None:
        """Raise CannotMove if a restore would fail: the previous backup stays in place then."""
        source = BackupSource(str(self.path), self._files, manifest, image)
        try:
            rehearse(source, plan_of(source))
        finally:
            source.close()

    def _kept(self, reader: Reader, ends: Mapping[Key, Ends], compacted: set[bytes]) -> dict[Key, PartitionEntry]:
        """Returns the copies that are certain to be a part of their logs still, and that can be gone on with."""
        known = {entry.key: entry for entry in self.before.partitions} if self.before is not None else {}
        candidates = {}
        for key, (start, end) in ends.items():
            entry = known.get(key)
            if entry is None or not entry.start <= start <= entry.end <= end:
                continue
            if (entry.is_compacted or key[0] in compacted) and entry.end != end:
                continue  # a tombstone may have come and gone since, and what it deleted would come back
            candidates[key] = entry
        written = {key: entry for key, entry in candidates.items() if entry.last_epoch >= 0}
        told = reader.epoch_ends({key: entry.last_epoch for key, entry in written.items()})
        for key, entry in written.items():
            epoch, end = told.get(key, (-1, -1))
            if epoch != entry.last_epoch or end < entry.end:
                del candidates[key]  # the log was cut, by an unclean election, and written anew
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

    def _remove_unnamed(self, manifest: Manifest | None = None) -> None:
        """Removes what no manifest names: of runs that were interrupted, and of partitions that are gone."""
        manifest = manifest or self.before
        named = {file.path for file in manifest.files()} if manifest is not None else set()
        for name in self._files.list_folder(""):
            if name.startswith("image-") and name not in named:
                self._files.remove(name)
        for topic_id in self._files.list_folder(LOGS):
            for partition in self._files.list_folder(f"{LOGS}/{topic_id}"):
                folder = f"{LOGS}/{topic_id}/{partition}"
                for name in self._files.list_folder(folder):
                    if f"{folder}/{name}" not in named:
                        self._files.remove(f"{folder}/{name}")
                _remove_if_empty(self._files, folder)
            _remove_if_empty(self._files, f"{LOGS}/{topic_id}")


def _remove_if_empty(files: FileSystem, folder: str) -> None:
    if not files.list_folder(folder):
        files.remove_folder(folder)


def _is_compacted(topic: Topic) -> bool:
    return "compact" in topic.configs.get("cleanup.policy", "")
