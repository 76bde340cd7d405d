"""The manifest and the files of a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.errors import DamagedDataError
from chronik.files import DiskFileSystem, read_file
from chronik.files.cache import FileCache
from chronik.ids import format_id
from chronik.migration.backup.backup_source import BackupLog, open_backup
from chronik.migration.backup.manifest import (
    MANIFEST_FILE,
    BackupFile,
    BackupManifest,
    BackupPartition,
    read_manifest,
    write_manifest,
)
from chronik.migration.backup.partition_copier import BackupChunkWriter
from chronik.migration.source import MigrationError
from tests.migration.memory_logs import MemoryLog, build_batch, build_stream, join_chunks

TOPIC = format_id(bytes(range(16)))


def manifest(*partitions: BackupPartition) -> BackupManifest:
    return BackupManifest(1, "cluster", 3, 17, 99, BackupFile("image-3.msgpack", 0, ""), partitions)


def test_manifest_round_trip(tmp_path: Path) -> None:
    files = DiskFileSystem(tmp_path)
    assert read_manifest(files) is None
    write_manifest(files, manifest())
    assert read_manifest(files) == manifest()


def test_damaged_or_unknown_manifest_is_rejected(tmp_path: Path) -> None:
    files = DiskFileSystem(tmp_path)
    write_manifest(files, manifest())
    text = (tmp_path / MANIFEST_FILE).read_bytes()
    (tmp_path / MANIFEST_FILE).write_bytes(text.replace(b"99", b"98"))
    with pytest.raises(DamagedDataError, match="checksum"):
        read_manifest(files)
    write_manifest(
        files, BackupManifest(2, *[getattr(manifest(), name) for name in BackupManifest.__struct_fields__[1:]])
    )
    with pytest.raises(DamagedDataError, match="format 2"):
        read_manifest(files)


def test_directory_without_manifest_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="contains no backup"):
        open_backup(tmp_path)


def write_chunks(
    files: DiskFileSystem, first: int, end: int, *records: bytes, run: int = 1, continues: bool = False
) -> BackupChunkWriter:
    writer = BackupChunkWriter(files, TOPIC, 0, run, first, end)
    for each in records:
        writer.add(each, continues=continues)
    writer.close()
    return writer


def entry(start: int, end: int, *writers: BackupChunkWriter) -> BackupPartition:
    pieces = tuple(piece for writer in writers for piece in writer.pieces)
    return BackupPartition(TOPIC, 0, start, end, writers[-1].last_epoch, 10, False, pieces)


def test_log_of_several_backup_runs_is_read_as_one(tmp_path: Path) -> None:
    files = DiskFileSystem(tmp_path)
    batches = [build_batch(0, 4), build_batch(4), build_batch(5, 3, epoch=7), build_batch(8), build_batch(9, 2)]
    first = write_chunks(files, 2, 5, batches[0] + batches[1] + batches[2])
    second = write_chunks(files, 5, 11, batches[2], batches[3] + batches[4], run=2, continues=True)
    assert (first.offset, second.offset, second.last_epoch) == (5, 11, 3)
    log = BackupLog(FileCache(files), entry(2, 11, first, second))
    assert join_chunks(list(build_stream(MemoryLog(batches, start=2)))) == b"".join(
        bytes(log.read(offset, 1)) for offset in (2, 4, 5, 8, 9)
    )
    assert bytes(log.read(6, 1 << 20)) == b"".join(batches[2:])
    assert bytes(log.read(2, 1 << 20)) == b"".join(batches[:2])


def test_small_chunk_is_rewritten_with_new_records(tmp_path: Path) -> None:
    files = DiskFileSystem(tmp_path)
    (small,) = write_chunks(files, 2, 5, build_batch(0, 5)).pieces
    writer = BackupChunkWriter(files, TOPIC, 0, 2, 5, 9)
    writer.continue_chunk(small)
    writer.add(build_batch(5, 4), continues=True)
    writer.close()
    (piece,) = writer.pieces
    assert (piece.first, piece.end) == (2, 9)
    assert read_file(files, piece.file.path) == build_batch(0, 5) + build_batch(5, 4)
    (tmp_path / small.file.path).write_bytes(b"damaged")
    with pytest.raises(DamagedDataError, match="start a new backup"):
        BackupChunkWriter(files, TOPIC, 0, 3, 5, 9).continue_chunk(small)


def test_copy_ignores_batches_beyond_end_and_rejects_gaps(tmp_path: Path) -> None:
    files = DiskFileSystem(tmp_path)
    writer = write_chunks(files, 0, 5, build_batch(0, 5) + build_batch(5))
    assert (writer.offset, [piece.end for piece in writer.pieces]) == (5, [5])
    with pytest.raises(MigrationError, match="expected offset 5, received 7"):
        write_chunks(files, 5, 20, build_batch(7), run=2, continues=True)
    with pytest.raises(MigrationError, match="expected offset 5, received 3"):
        write_chunks(files, 5, 20, build_batch(3, 4), run=2, continues=True)


def test_file_of_interrupted_run_is_overwritten(tmp_path: Path) -> None:
    files = DiskFileSystem(tmp_path)
    interrupted = BackupChunkWriter(files, TOPIC, 0, 1, 0, 9)
    interrupted.add(build_batch(0, 9), continues=False)
    rewritten = write_chunks(files, 0, 5, build_batch(0, 5))
    (piece,) = rewritten.pieces
    assert files.size(piece.file.path) == piece.file.size == len(build_batch(0, 5))
