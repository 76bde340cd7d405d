"""Full and incremental backups of a running cluster.

A backup starts at a consistent point: an image and log end offsets between which no transaction is committed. Without a
hold, a transaction could be committed while the offsets are recorded. Its markers could be below the end of one
partition but not of another, and the restore would contain a part of the transaction. Commits are therefore blocked for
that time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.nodes import describe_feature_levels
from chronik.errors import DataDirectoryInUse
from chronik.files import DiskFileSystem, FileSystem
from chronik.metadata.image import Image
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL
from chronik.metadata.records import Topic, TransactionState
from chronik.metadata.snapshot import decode_snapshot
from chronik.migration import failpoints
from chronik.migration.backup.backup_source import BackupSource
from chronik.migration.backup.cluster_reader import ClusterReader, LogRange
from chronik.migration.backup.manifest import (
    LOGS_DIRECTORY,
    MANIFEST_FORMAT,
    BackupFile,
    BackupManifest,
    BackupPartition,
    compute_digest,
    read_manifest,
    write_manifest,
)
from chronik.migration.backup.partition_copier import PartitionCopier
from chronik.migration.dry_run import dry_run_restore
from chronik.migration.import_plan import build_import_plan
from chronik.migration.source import MigrationError, list_visible_topics
from chronik.migration.target_cluster import TopicIdPartition
from chronik.protocol.messages.describe_image import DescribeImageRequest, DescribeImageResponse
from chronik.protocol.messages.hold_commits import HoldCommitsRequest, HoldCommitsResponse

ATTEMPTS_MAX: Final = 5
"""The maximum number of attempts to read a consistent state of the cluster."""
MARKERS_TIMEOUT_SECONDS: Final = 5.0
"""The time in seconds to wait for the transaction markers of committed transactions while new commits are blocked."""
POLL_INTERVAL_SECONDS: Final = 0.02
"""The interval in seconds at which the backup polls the cluster's metadata image for pending transaction markers."""

LOCK_FILE: Final = ".lock"


class BackupPoint(NamedTuple):
    """The state of the cluster that a backup contains: the metadata image and the log end offsets."""

    chunks: list[bytes]
    """The metadata image as encoded snapshot chunks."""
    image: Image
    ends: dict[TopicIdPartition, LogRange]


def create_backup_point(cluster: ClusterClient) -> BackupPoint:
    """Read a consistent state of the cluster to back up, while transaction commits are blocked.

    Raises:
        MigrationError: Transaction markers are not written in time, or the hold was replaced repeatedly.
    """
    levels = cluster.retry(lambda: describe_feature_levels(cluster.any_broker()))
    if levels is None:
        raise MigrationError("the cluster is not a Chronik cluster")
    if levels.level < DYNAMIC_MEMBERSHIP_LEVEL:
        return _build_backup_point(cluster, *_read_metadata_image(cluster))
    for _ in range(ATTEMPTS_MAX):
        hold = _hold_commits(cluster, 0).hold
        failpoints.hit_failpoint(failpoints.HELD)
        try:
            moment = _build_backup_point(cluster, *_wait_for_transaction_markers(cluster))
        finally:
            was_in_force = _hold_commits(cluster, hold).was_in_force
        if was_in_force:
            return moment
    raise MigrationError("transaction commits could not be blocked long enough: is another backup running?")


def _build_backup_point(cluster: ClusterClient, chunks: list[bytes], image: Image) -> BackupPoint:
    keys = [(topic.id, index) for topic in list_visible_topics(image) for index in range(len(topic.partitions))]
    return BackupPoint(chunks, image, ClusterReader(cluster, image).read_log_ranges(keys))


def _wait_for_transaction_markers(cluster: ClusterClient) -> tuple[list[bytes], Image]:
    """Return the metadata image after the markers of all committed transactions have been written."""
    deadline = time.monotonic() + MARKERS_TIMEOUT_SECONDS
    while True:
        chunks, image = _read_metadata_image(cluster)
        if all(each.state is not TransactionState.PREPARE_COMMIT for each in image.unfinished_transactions()):
            return chunks, image
        if time.monotonic() > deadline:
            raise MigrationError(
                "the markers of a committed transaction are not written: check that every partition has a leader"
            )
        time.sleep(POLL_INTERVAL_SECONDS)


def _read_metadata_image(cluster: ClusterClient) -> tuple[list[bytes], Image]:
    def ask() -> list[bytes]:
        response = cluster.any_broker().request(DescribeImageRequest(), DescribeImageResponse)
        raise_for_code(response.error_code, "the cluster's image", response.error_message)
        return [chunk.data for chunk in response.chunks]

    chunks = cluster.retry(ask)
    return chunks, decode_snapshot(chunks)


def _hold_commits(cluster: ClusterClient, hold: int) -> HoldCommitsResponse:
    def ask() -> HoldCommitsResponse:
        response = cluster.any_broker().request(HoldCommitsRequest(hold=hold), HoldCommitsResponse)
        raise_for_code(response.error_code, "transaction commits were not blocked", response.error_message)
        return response

    return cluster.retry(ask)


class BackupResult(NamedTuple):
    """The result of a backup run."""

    manifest: BackupManifest
    partitions_kept: int
    """The number of partitions whose copy in the previous backup was continued instead of restarted."""
    bytes_copied: int
    topics_gone: list[str]
    """The names of the topics that were deleted while the backup was running."""


class BackupWriter:
    """A writer of a backup directory, which is locked against concurrent runs. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Lock the directory and read its manifest.

        Raises:
            MigrationError: Another run is writing to the directory.
            DamagedDataError: The manifest is damaged.
        """
        self._files = DiskFileSystem(path)
        try:
            self._lock = self._files.lock(LOCK_FILE)
        except DataDirectoryInUse:
            raise MigrationError(f"another run is writing to {path}") from None
        self.path: Final = path
        try:
            self.before: Final = read_manifest(self._files)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> BackupWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def check_same_cluster(self, image: Image) -> None:
        """Raise MigrationError if the backup belongs to another cluster."""
        if self.before is not None and self.before.cluster_id != image.cluster_id:
            raise MigrationError(
                f"{self.path} is a backup of cluster {self.before.cluster_id}, not of {image.cluster_id}"
            )

    def run(
        self, cluster: ClusterClient, moment: BackupPoint, now_ms: int, tell: Callable[[str], None]
    ) -> BackupResult:
        """Copy all partitions up to the backup point, check that the backup can be restored, and replace its manifest.

        Raises:
            MigrationError: The backup cannot be taken or could not be restored.
        """
        self.check_same_cluster(moment.image)
        run = 1 if self.before is None else self.before.run + 1
        self._remove_unlisted_files()
        reader = ClusterReader(cluster, moment.image)
        compacted = {topic.id for topic in moment.image.topics.values() if _is_compacted(topic)}
        kept = self._find_resumable_partitions(reader, moment.ends, compacted)
        copying = PartitionCopier(self._files, reader, moment.ends, kept, compacted, run)
        entries = copying.run(tell)
        reader.refresh()
        gone = sorted({topic.name for topic in list_visible_topics(moment.image) if reader.is_deleted((topic.id, 0))})
        image = self._write_metadata_image(moment, run)
        manifest = BackupManifest(
            MANIFEST_FORMAT,
            moment.image.cluster_id,
            run,
            now_ms,
            moment.image.applied_index,
            image,
            tuple(entry for key, entry in sorted(entries.items()) if not reader.is_deleted(key)),
        )
        self._check_restorable(manifest, moment.image)
        failpoints.hit_failpoint(failpoints.BEFORE_MANIFEST)
        write_manifest(self._files, manifest)
        failpoints.hit_failpoint(failpoints.AFTER_MANIFEST)
        self._remove_unlisted_files(manifest)
        return BackupResult(manifest, len(kept), copying.bytes_copied, gone)

    def _check_restorable(self, manifest: BackupManifest, image: Image) -> None:
        """Raise MigrationError if the new backup could not be restored; the previous backup then stays valid."""
        source = BackupSource(str(self.path), self._files, manifest, image)
        try:
            dry_run_restore(source, build_import_plan(source))
        finally:
            source.close()

    def _find_resumable_partitions(
        self, reader: ClusterReader, ends: Mapping[TopicIdPartition, LogRange], compacted: set[bytes]
    ) -> dict[TopicIdPartition, BackupPartition]:
        """Return the partition copies of the previous run that still match their logs and can be continued."""
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
        ends_by_epoch = reader.read_leader_epoch_ends({key: entry.last_epoch for key, entry in written.items()})
        for key, entry in written.items():
            epoch, end = ends_by_epoch.get(key, (-1, -1))
            if epoch != entry.last_epoch or end < entry.end:
                del candidates[key]  # the log was truncated by an unclean election and overwritten
        return candidates

    def _write_metadata_image(self, moment: BackupPoint, run: int) -> BackupFile:
        data = msgspec.msgpack.encode(moment.chunks)
        entry = BackupFile(f"image-{run}.msgpack", len(data), compute_digest(data))
        file = self._files.create(entry.path)
        try:
            file.truncate(0)
            file.append(data)
            file.fdatasync()
        finally:
            file.close()
        self._files.sync_directory("")
        return entry

    def _remove_unlisted_files(self, manifest: BackupManifest | None = None) -> None:
        """Delete backup files that are not in the manifest, such as those of interrupted runs and deleted topics."""
        manifest = manifest or self.before
        listed = {file.path for file in manifest.files()} if manifest is not None else set()
        for name in self._files.list_directory(""):
            if name.startswith("image-") and name not in listed:
                self._files.remove(name)
        for topic_id in self._files.list_directory(LOGS_DIRECTORY):
            for partition in self._files.list_directory(f"{LOGS_DIRECTORY}/{topic_id}"):
                directory = f"{LOGS_DIRECTORY}/{topic_id}/{partition}"
                for name in self._files.list_directory(directory):
                    if f"{directory}/{name}" not in listed:
                        self._files.remove(f"{directory}/{name}")
                _remove_directory_if_empty(self._files, directory)
            _remove_directory_if_empty(self._files, f"{LOGS_DIRECTORY}/{topic_id}")


def _remove_directory_if_empty(files: FileSystem, directory: str) -> None:
    if not files.list_directory(directory):
        files.remove_directory(directory)


def _is_compacted(topic: Topic) -> bool:
    return "compact" in topic.configs.get("cleanup.policy", "")
