"""Comparison of replicas that may differ legally: in segment boundaries, log starts and ends, and compaction."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from chronik.files import DiskFileSystem
from chronik.log.config import LogConfig
from chronik.log.files.checkpoints import OffsetCheckpointFile
from chronik.log.files.names import LOG, format_offset_file_name, format_swap_file_name
from chronik.pipeline.audit import compacted_divergence, log_comparison, range_plan, slice_scan
from chronik.pipeline.audit.batch_scanner import BatchScanner, CheckedBatch
from chronik.pipeline.audit.data_directories import find_divergence_offset, read_leader_epochs
from chronik.pipeline.audit.findings import FindingKind, ReplicaId
from chronik.pipeline.audit.log_comparison import compare_logs
from chronik.pipeline.audit.partition_plan import AuditedPartition, AuditedReplica
from chronik.pipeline.spark.tasks import run_locally
from chronik.protocol.batch import parse_header
from chronik.protocol.batch_rewrite import filter_batch
from chronik.protocol.records import decode_batch, encode_batch
from tests.pipeline.audit.replica_logs import NODES, TOPIC_ID, LogBuilder, ReplicaSet, flip_byte, list_batches

DEADLINE_SECONDS = 120
COMPACTED = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=500,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink chunks and slices, so that a short log has many."""
    for module in (slice_scan, range_plan, log_comparison):
        monkeypatch.setattr(module, "CHUNK_OFFSETS", 16)
    monkeypatch.setattr(range_plan, "SLICE_BYTES", 900)
    monkeypatch.setattr(range_plan, "BUNDLE_BYTES_MIN", 1000)
    monkeypatch.setattr(range_plan, "ROUND_BYTES", 3000)


def write_three_replicas(tmp_path: Path, *segment_bytes: int, batches: int = 40) -> ReplicaSet:
    """Write the same batches on every node, in segments of different sizes."""
    directories, end = {}, 0
    for node, size in zip(NODES, segment_bytes, strict=True):
        directories[node] = tmp_path / str(node)
        log = LogBuilder(directories[node], LogConfig(segment_bytes=size, index_interval_bytes=300))
        log.append_batches(batches // 2, size=7, epoch=1)
        log.append_batches(batches // 2, size=7, epoch=2)
        end = log.close()
    return ReplicaSet(directories, end)


@pytest.mark.usefixtures("small_chunks")
def test_replicas_with_different_segment_boundaries_are_equal(tmp_path: Path) -> None:
    replicas = write_three_replicas(tmp_path, 1000, 3000, 100_000)
    file_counts = [len(replicas.segment_files(node)) for node in NODES]
    assert len(set(file_counts)) == 3
    assert len(list(range_plan.plan_audit_ranges(replicas.partition()))) > 5
    compared = replicas.compare()
    assert compared.findings == []
    assert compared.records == 3 * replicas.end


@pytest.mark.usefixtures("small_chunks")
def test_corrupt_batch_is_reported_at_any_slice_boundary(tmp_path: Path) -> None:
    replicas = write_three_replicas(tmp_path, 1000, 3000, 100_000)
    for node in NODES:
        for path in replicas.segment_files(node):
            data = path.read_bytes()
            for position, size, base in list_batches(path):
                flip_byte(path, position + size - 1)
                found = replicas.findings()
                path.write_bytes(data)
                reported = [(each.kind, each.node, each.offset, each.file, each.position) for each in found]
                assert reported == [(FindingKind.CHECKSUM, node, base, str(path), position + size - 1)]


@pytest.mark.usefixtures("small_chunks")
def test_missing_or_duplicate_batch_is_reported_once_at_any_slice_boundary(tmp_path: Path) -> None:
    replicas = write_three_replicas(tmp_path, 1000, 3000, 100_000)
    for path in replicas.segment_files(2):
        data = path.read_bytes()
        for position, size, base in list_batches(path):
            path.write_bytes(data[:position] + data[position + size :])
            (missing,) = replicas.findings()
            path.write_bytes(data[: position + size] + data[position:])
            (duplicate,) = replicas.findings()
            path.write_bytes(data)
            is_last = base + 7 == replicas.end
            kind = FindingKind.SHORT_LOG if is_last else FindingKind.MISSING_RECORDS
            assert (missing.kind, missing.node, missing.offset, missing.end_offset) == (kind, 2, base, base + 7)
            assert (duplicate.kind, duplicate.node, duplicate.offset) == (FindingKind.DUPLICATE_BATCH, 2, base)
            assert (duplicate.file, duplicate.position) == (str(path), position + size)


def test_replica_with_higher_log_start_is_compared_from_its_start(tmp_path: Path) -> None:
    replicas = write_three_replicas(tmp_path, 1000, 1000, 1000)
    second = replicas.segment_files(3)[1]
    replicas.segment_files(3)[0].unlink()
    start = int(second.stem)
    OffsetCheckpointFile(DiskFileSystem(replicas.directories[3]), "log-start").store(start)
    replicas.start = start
    assert replicas.findings() == []
    # Planned before retention ran: the scan notices that the log start has moved.
    replicas.start = 0
    assert replicas.findings() == []


def test_out_of_sync_replica_is_compared_up_to_its_end(tmp_path: Path) -> None:
    replicas = write_three_replicas(tmp_path, 100_000, 100_000, 100_000)
    (path,) = replicas.segment_files(2)
    position, _, base = list_batches(path)[-3]
    path.write_bytes(path.read_bytes()[:position])
    assert [each.kind for each in replicas.findings()] == [FindingKind.SHORT_LOG]
    assert compare_logs(run_locally, [replicas.with_end(2, base)]).findings == []
    flip_byte(path, list_batches(path)[1][0] + 70)
    (found,) = compare_logs(run_locally, [replicas.with_end(2, base)]).findings
    assert (found.kind, found.node) == (FindingKind.CHECKSUM, 2)


def test_logs_diverge_where_leader_epochs_differ(tmp_path: Path) -> None:
    """An isolated former leader has written records at offsets that the new leader wrote too."""
    common = LogBuilder(tmp_path / "1")
    common.append_batches(3, epoch=1)
    common.close()
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    for node, epoch in ((1, 2), (2, 3)):
        log = LogBuilder(tmp_path / str(node))
        log.append_batches(2, epoch=epoch)
        log.close()
    one, other = read_leader_epochs(str(tmp_path / "1"))[0], read_leader_epochs(str(tmp_path / "2"))[0]
    assert find_divergence_offset(one, 50, other, 50) == 30
    assert find_divergence_offset(one, 50, one, 40) == 40


def test_scan_continues_when_compaction_replaces_files(tmp_path: Path) -> None:
    """Replace files as compaction does: by `<first>-<end>.swap`, which is then renamed to the first file's name."""
    log = LogBuilder(tmp_path / "1", LogConfig(segment_bytes=500))
    log.append_batches(12)
    end = log.close()
    files = sorted((tmp_path / "1").glob("*.log"))
    assert len(files) > 4
    scanner = BatchScanner(str(tmp_path / "1"), ReplicaId("orders", 0, 1), 0, end, is_compacted=True)
    offsets: list[int] = []
    for event in scanner:
        assert isinstance(event, CheckedBatch), event
        offsets.append(event.header.base_offset)
        if len(offsets) == 2:
            merged = b"".join(path.read_bytes() for path in files[1:4])
            swap = tmp_path / "1" / format_swap_file_name(int(files[1].stem), int(files[4].stem))
            swap.write_bytes(merged)
            for path in files[1:4]:
                path.rename(f"{path}.deleted")
        if len(offsets) == 8:
            swap.rename(tmp_path / "1" / format_offset_file_name(int(files[1].stem), LOG))
    assert offsets == list(range(0, end, 10))


def write_keyed_logs(tmp_path: Path, *nodes: int) -> dict[int, LogBuilder]:
    """Write logs of the same records, in which most keys occur several times."""
    logs = {node: LogBuilder(tmp_path / str(node), COMPACTED) for node in nodes}
    for log in logs.values():
        for number in range(60):
            pairs = [(b"key %d" % ((number * 7 + each) % 50), b"value %d" % (10 * number + each)) for each in range(10)]
            log.append_batch(*pairs, epoch=1 + number // 40)
        log.append_batch((b"key 3", None), epoch=2)
    return logs


def compacted_replicas(tmp_path: Path, end: int) -> ReplicaSet:
    return ReplicaSet({node: tmp_path / str(node) for node in NODES}, end, is_compacted=True)


@pytest.fixture(params=["whole", "sliced"])
def _chunk_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "sliced":
        request.getfixturevalue("small_chunks")
        monkeypatch.setattr(compacted_divergence, "KEYS_MAX", 50)


@pytest.mark.usefixtures("_chunk_sizes")
def test_replicas_compacted_at_different_times_are_equal(tmp_path: Path) -> None:
    logs = write_keyed_logs(tmp_path, *NODES)
    logs[1].compact()
    logs[2].log.roll()
    logs[2].append_batch((b"key 4", b"late"), epoch=2)
    logs[2].compact()
    ends = [log.close() for log in logs.values()]
    replicas = compacted_replicas(tmp_path, min(ends))
    compared = replicas.compare()
    assert compared.findings == []
    assert 600 < compared.records < 3 * 601


@pytest.mark.usefixtures("_chunk_sizes")
def test_missing_last_record_of_key_is_reported_as_diverged(tmp_path: Path) -> None:
    logs = write_keyed_logs(tmp_path, *NODES)
    for log in logs.values():
        log.compact()
    replicas = compacted_replicas(tmp_path, min(log.close() for log in logs.values()))
    assert replicas.findings() == []
    path, position, size, offset = find_last_value(replicas.segment_files(2))
    data = path.read_bytes()
    rewritten = filter_batch(data, position, lambda each, *_: each != offset, keep_empty=True)
    assert rewritten is not None
    path.write_bytes(data[:position] + rewritten + data[position + size :])
    (found,) = replicas.findings()
    assert (found.kind, found.node, found.offset) == (FindingKind.DIVERGED, 2, offset)
    assert "the last of its key" in found.says


def find_last_value(files: list[Path]) -> tuple[Path, int, int, int]:
    """Return the last record with a value: its file, its batch's position and size, and its offset."""
    for path in reversed(files):
        data = path.read_bytes()
        for position, size, _ in reversed(list_batches(path)):
            values = [record.offset for record in decode_batch(data, position) if record.value is not None]
            if values:
                return path, position, size, values[-1]
    raise AssertionError(files)


@pytest.mark.usefixtures("_chunk_sizes")
def test_changed_record_in_compacted_replica_is_reported_as_diverged(tmp_path: Path) -> None:
    logs = write_keyed_logs(tmp_path, *NODES)
    logs[1].compact()
    replicas = compacted_replicas(tmp_path, min(log.close() for log in logs.values()))
    path = replicas.segment_files(3)[0]
    data = path.read_bytes()
    position, size, offset = list_batches(path)[2]
    records = decode_batch(data, position)
    records[4] = records[4]._replace(value=b"changed")
    epoch = parse_header(data, position).partition_leader_epoch
    changed = encode_batch(records, base_offset=offset, leader_epoch=epoch)
    path.write_bytes(data[:position] + changed + data[position + size :])
    (found,) = [each for each in replicas.findings() if each.offset == offset + 4]
    assert (found.kind, found.node) == (FindingKind.DIVERGED, 3)


def test_log_that_retention_has_deleted_beyond_the_audited_range_is_clean(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=2000, retention_bytes=8000, retention_ms=-1, file_delete_delay_ms=0)
    log = LogBuilder(tmp_path / "1", config)
    log.append_batches(200)
    log.log.apply_retention(log.clock.now_ms())
    log.sync_all()
    planned_end = log.log.log_start_offset - 1
    assert planned_end > 0
    scanner = BatchScanner(str(tmp_path / "1"), ReplicaId("orders", 0, 1), 0, planned_end)
    assert list(scanner) == []
    assert scanner.start == scanner.next_offset == planned_end


def test_log_is_clean_during_appends_and_retention(tmp_path: Path) -> None:
    """A leader appends and applies retention during the audit, hundreds of times."""
    config = LogConfig(segment_bytes=2000, retention_bytes=8000, retention_ms=-1, file_delete_delay_ms=0)
    log = LogBuilder(tmp_path / "1", config)
    log.append_batches(30)
    stop = threading.Event()
    ends = [log.log.log_end_offset]
    starts = [0]

    def write() -> None:
        while not stop.is_set():
            log.append_batches(3)
            log.log.apply_retention(log.clock.now_ms())
            starts.append(log.log.log_start_offset)
            log.sync_all()
            ends.append(log.log.log_end_offset)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        deadline, audits = time.monotonic() + DEADLINE_SECONDS, 0
        while audits < 150 or starts[-1] == 0:  # the writer thread may get little CPU time
            assert time.monotonic() < deadline, f"{len(starts)} rounds were written, and retention deleted nothing"
            audits += 1
            start, end = starts[-1], ends[-1]
            partition = AuditedPartition(
                "orders", TOPIC_ID, 0, 1, start, end, False, (AuditedReplica(1, str(tmp_path / "1"), end, True),), ()
            )
            compared = compare_logs(run_locally, [partition])
            assert compared.findings == []
    finally:
        stop.set()
        writer.join()
    assert not os.path.exists(tmp_path / "1" / format_offset_file_name(0, LOG))
