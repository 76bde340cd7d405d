"""The manifest of a backup. Files that it does not list are not part of the backup.

It consists of a line of JSON and a line with its checksum. It is replaced atomically at the end of a run, so an
interrupted run leaves the previous backup unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from chronik.errors import DamagedDataError
from chronik.files import FileSystem, read_file, write_atomically
from chronik.ids import parse_id

MANIFEST_FILE: Final = "manifest.json"
LOGS_DIRECTORY: Final = "logs"
MANIFEST_FORMAT: Final = 1
DIGEST_BYTES: Final = 16


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup with its path, size and checksum."""

    path: str
    size: int
    digest: str


class BackupChunk(msgspec.Struct, frozen=True):
    """A file with consecutive record batches of a partition. The first batch may start before offset `first`."""

    file: BackupFile
    first: int
    end: int


class BackupPartition(msgspec.Struct, frozen=True):
    """The copy of a partition's log in a backup, with the files that contain its record batches."""

    topic_id: str
    partition: int
    start: int
    end: int
    last_epoch: int
    producer_ids: int
    is_compacted: bool
    pieces: tuple[BackupChunk, ...]

    @property
    def key(self) -> tuple[bytes, int]:
        """Return the topic id and index of the partition."""
        return parse_id(self.topic_id), self.partition


class BackupManifest(msgspec.Struct, frozen=True):
    """The manifest of a backup, which lists all of its files and partitions."""

    format: int
    cluster_id: str
    run: int
    taken_ms: int
    index: int
    image: BackupFile
    partitions: tuple[BackupPartition, ...]

    def files(self) -> Iterator[BackupFile]:
        """Yield the metadata image file and all chunk files of the backup."""
        yield self.image
        for partition in self.partitions:
            for piece in partition.pieces:
                yield piece.file


def compute_digest(data: bytes) -> str:
    """Return the checksum of the data as a hexadecimal string."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def read_manifest(files: FileSystem) -> BackupManifest | None:
    """Return the manifest in a backup directory, or None if the directory contains none.

    Raises:
        DamagedDataError: The manifest is damaged or has an unknown format.
    """
    data = read_file(files, MANIFEST_FILE)
    if data is None:
        return None
    line, _, digest = data.rstrip(b"\n").rpartition(b"\n")
    if compute_digest(line) != digest.decode(errors="replace"):
        raise DamagedDataError(f"{MANIFEST_FILE} does not match its checksum")
    try:
        if (written := msgspec.json.decode(line, type=dict)["format"]) != MANIFEST_FORMAT:
            raise DamagedDataError(
                f"the backup has format {written}, and this version of Chronik reads {MANIFEST_FORMAT}"
            )
        return msgspec.json.decode(line, type=BackupManifest)
    except (msgspec.DecodeError, KeyError) as error:
        raise DamagedDataError(f"{MANIFEST_FILE}: {error}") from error


def write_manifest(files: FileSystem, manifest: BackupManifest) -> None:
    """Replace the backup's manifest atomically."""
    line = msgspec.json.encode(manifest)
    write_atomically(files, MANIFEST_FILE, line + b"\n" + compute_digest(line).encode() + b"\n")


def compute_manifest_digest(manifest: BackupManifest) -> bytes:
    """Return a 16-byte digest of the manifest, which identifies the backup's contents."""
    return blake2b(msgspec.json.encode(manifest), digest_size=16).digest()
