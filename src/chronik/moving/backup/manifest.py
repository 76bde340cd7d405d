"""What a backup consists of. Whatever the manifest does not name is not part of it.

It is one line of JSON and its checksum in a second one, replaced atomically at the end of a run: a run that is
interrupted leaves the backup as it was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from chronik.errors import DataDamaged
from chronik.files import FileSystem, read_file, write_atomically
from chronik.ids import parse_id

MANIFEST: Final = "manifest.json"
LOGS: Final = "logs"
FORMAT: Final = 1
DIGEST_BYTES: Final = 16


class FileEntry(msgspec.Struct, frozen=True):
    path: str
    size: int
    digest: str


class Piece(msgspec.Struct, frozen=True):
    """Whole batches of one partition, from `first` on; the first may begin before it."""

    file: FileEntry
    first: int
    end: int


class PartitionEntry(msgspec.Struct, frozen=True):
    topic_id: str
    partition: int
    start: int
    end: int
    last_epoch: int
    producer_ids: int
    is_compacted: bool
    pieces: tuple[Piece, ...]

    @property
    def key(self) -> tuple[bytes, int]:
        return parse_id(self.topic_id), self.partition


class Manifest(msgspec.Struct, frozen=True):
    format: int
    cluster_id: str
    run: int
    taken_ms: int
    index: int
    image: FileEntry
    partitions: tuple[PartitionEntry, ...]

    def files(self) -> Iterator[FileEntry]:
        yield self.image
        for partition in self.partitions:
            for piece in partition.pieces:
                yield piece.file


def digest_of(data: bytes) -> str:
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def read_manifest(files: FileSystem) -> Manifest | None:
    """Returns None when there is none. Raises DataDamaged."""
    data = read_file(files, MANIFEST)
    if data is None:
        return None
    line, _, digest = data.rstrip(b"\n").rpartition(b"\n")
    if digest_of(line) != digest.decode(errors="replace"):
        raise DataDamaged(f"{MANIFEST} does not match its checksum")
    try:
        if (written := msgspec.json.decode(line, type=dict)["format"]) != FORMAT:
            raise DataDamaged(f"the backup has format {written}, and this version of Chronik reads {FORMAT}")
        return msgspec.json.decode(line, type=Manifest)
    except (msgspec.DecodeError, KeyError) as error:
        raise DataDamaged(f"{MANIFEST}: {error}") from error


def write_manifest(files: FileSystem, manifest: Manifest) -> None:
    line = msgspec.json.encode(manifest)
    write_atomically(files, MANIFEST, line + b"\n" + digest_of(line).encode() + b"\n")


def manifest_digest(manifest: Manifest) -> bytes:
    return blake2b(msgspec.json.encode(manifest), digest_size=16).digest()
