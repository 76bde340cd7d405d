"""Detection of damage in one of three replicas: it is reported once, for the right node, with its exact location."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.log.config import LogConfig
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.protocol.batch import parse_header, set_base_offset_and_epoch
from chronik.protocol.batch_rewrite import filter_batch
from chronik.protocol.records import Record, decode_batch, encode_batch
from tests.pipeline.audit.replica_logs import NOW_MS, LogBuilder, ReplicaSet, copy_to_replicas, flip_byte, list_batches

SMALL_SEGMENTS = LogConfig(segment_bytes=1000, index_interval_bytes=500)


@pytest.fixture
def orders(tmp_path: Path) -> ReplicaSet:
    """Twelve batches of ten records, in several segments and two leader epochs."""
    log = LogBuilder(tmp_path / "1", SMALL_SEGMENTS)
    log.append_batches(6, epoch=2)
    log.append_batches(6, epoch=5)
    replicas = copy_to_replicas(tmp_path, log)
    assert len(replicas.segment_files(1)) > 3
    assert replicas.end == 120
    return replicas


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def locate_batch(orders: ReplicaSet, node: int, offset: int) -> tuple[Path, int, int]:
    """Return file, position and size of the batch that contains the offset."""
    for path in reversed(orders.segment_files(node)):
        for position, size, base in reversed(list_batches(path)):
            if base <= offset:
                return path, position, size
    raise AssertionError(offset)


def test_identical_replicas_have_no_findings(orders: ReplicaSet) -> None:
    compared = orders.compare()
    assert compared.findings == []
    assert (compared.records, compared.batches) == (360, 36)
    assert compared.size_bytes == sum(path.stat().st_size for node in (1, 2, 3) for path in orders.segment_files(node))


def test_flipped_byte_is_located_exactly(orders: ReplicaSet) -> None:
    path, position, size = locate_batch(orders, 2, 37)
    flip_byte(path, position + size - 5)
    found = only(orders.findings())
    assert (found.kind, found.topic, found.partition, found.node) == (FindingKind.CHECKSUM, "orders", 0, 2)
    assert (found.offset, found.end_offset) == (30, 40)
    assert (found.file, found.position) == (str(path), position + size - 5)
    assert "wrong checksum" in found.says


def test_flipped_byte_at_any_position_is_reported(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path / "1")
    log.append_batches(3, size=2, epoch=1)
    replicas = copy_to_replicas(tmp_path, log)
    (path,) = replicas.segment_files(3)
    data = path.read_bytes()
    batch_ranges = [range(position, position + size) for position, size, _ in list_batches(path)]
    for position in range(len(data)):
        flip_byte(path, position, 0x10)
        findings = replicas.findings()
        path.write_bytes(data)
        assert findings, f"byte {position}"
        (batch_range,) = [batch_range for batch_range in batch_ranges if position in batch_range]
        number = batch_ranges.index(batch_range)
        for found in findings:
            assert found.node == 3, (position, found)
            assert found.file == str(path)
            assert found.position is not None
            assert found.position in batch_range, (position, found)
            assert found.offset is not None
            assert 2 * number <= found.offset < 2 * number + 2, (position, found)
    assert replicas.findings() == []


def test_missing_record_within_batch_is_reported(orders: ReplicaSet) -> None:
    """The batch has a correct checksum, as if the topic had been compacted by mistake."""
    path, position, size = locate_batch(orders, 3, 75)
    data = path.read_bytes()
    rewritten = filter_batch(data, position, lambda offset, *_: offset != 75)
    assert rewritten is not None
    path.write_bytes(data[:position] + rewritten + data[position + size :])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (FindingKind.MISSING_RECORDS, 3, 75)
    assert (found.file, found.position) == (str(path), position)
    assert "offset 75 is missing" in found.says


def test_record_missing_on_all_replicas_is_reported(orders: ReplicaSet) -> None:
    for node in (1, 2, 3):
        path, position, size = locate_batch(orders, node, 75)
        data = path.read_bytes()
        rewritten = filter_batch(data, position, lambda offset, *_: offset not in (72, 75))
        assert rewritten is not None
        path.write_bytes(data[:position] + rewritten + data[position + size :])
    findings = orders.findings()
    assert [(found.kind, found.node, found.offset) for found in findings] == [
        (FindingKind.MISSING_RECORDS, node, 72) for node in (1, 2, 3)
    ]
    assert "offsets 72, 75 are missing" in findings[0].says


def test_removed_batch_is_reported_as_missing_records(orders: ReplicaSet) -> None:
    path, position, size = locate_batch(orders, 1, 44)
    data = path.read_bytes()
    path.write_bytes(data[:position] + data[position + size :])
    found = only(orders.findings())
    assert (found.kind, found.node) == (FindingKind.MISSING_RECORDS, 1)
    assert (found.offset, found.end_offset) == (40, 50)


def test_duplicate_batch_is_reported_at_second_position(orders: ReplicaSet) -> None:
    path, position, size = locate_batch(orders, 2, 90)
    data = path.read_bytes()
    path.write_bytes(data[: position + size] + data[position:])
    found = only(orders.findings())
    assert (found.kind, found.node) == (FindingKind.DUPLICATE_BATCH, 2)
    assert (found.offset, found.end_offset) == (90, 100)
    assert (found.file, found.position) == (str(path), position + size)


def test_duplicate_of_last_batch_is_reported(orders: ReplicaSet) -> None:
    path, position, size = locate_batch(orders, 2, 119)
    data = path.read_bytes()
    path.write_bytes(data[: position + size] + data[position:])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset, found.position) == (
        FindingKind.DUPLICATE_BATCH,
        2,
        110,
        position + size,
    )


def test_batch_duplicated_on_all_replicas_is_found_by_producer_sequence(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path / "1")
    log.append_batch((b"a", b"1"), (b"b", b"2"), producer_id=7)
    replicas = copy_to_replicas(tmp_path, log)
    for node in (1, 2, 3):
        (path,) = replicas.segment_files(node)
        original = path.read_bytes()
        again = bytearray(original)
        set_base_offset_and_epoch(again, 0, 2, 0)
        path.write_bytes(original + again)
    replicas.end = 4
    findings = replicas.findings()
    assert [(each.kind, each.node, each.offset) for each in findings] == [
        (FindingKind.DUPLICATE_BATCH, node, 2) for node in (1, 2, 3)
    ]
    assert "producer 7" in findings[0].says


def test_diverged_replica_is_reported_with_offset_and_byte(orders: ReplicaSet) -> None:
    path, position, size = locate_batch(orders, 3, 57)
    data = path.read_bytes()
    header = parse_header(data, position)
    records = [
        record._replace(value=b"another!") if record.offset == 57 else record for record in decode_batch(data, position)
    ]
    changed = encode_batch(records, leader_epoch=header.partition_leader_epoch)
    path.write_bytes(data[:position] + changed + data[position + size :])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (FindingKind.DIVERGED, 3, 57)
    assert found.file == str(path)
    assert found.position is not None
    assert position < found.position < position + len(changed)
    assert changed[found.position - position :].startswith(b"another!"[:1])
    assert "its value differs from nodes 1, 2" in found.says


def test_leader_is_considered_correct_among_two_replicas(orders: ReplicaSet) -> None:
    del orders.directories[2]
    path, position, _ = locate_batch(orders, 1, 0)
    data = bytearray(path.read_bytes())
    changed = encode_batch([Record(n, NOW_MS, b"k", b"v") for n in range(10)], leader_epoch=2)
    path.write_bytes(data[:position] + changed + data[list_batches(path)[0][1] :])
    findings = orders.findings()
    assert {(found.kind, found.node) for found in findings} == {(FindingKind.DIVERGED, 3)}


def test_decreasing_leader_epoch_is_reported(orders: ReplicaSet) -> None:
    path, position, _ = locate_batch(orders, 2, 95)
    data = bytearray(path.read_bytes())
    set_base_offset_and_epoch(data, position, 90, 3)
    path.write_bytes(data)
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset, found.position) == (FindingKind.EPOCH, 2, 90, position)
    assert "leader epoch 3, but follows one with 5" in found.says


def test_leader_epoch_missing_in_history_is_reported(orders: ReplicaSet) -> None:
    path, position, _ = locate_batch(orders, 2, 5)
    data = bytearray(path.read_bytes())
    set_base_offset_and_epoch(data, position, 0, 1)
    path.write_bytes(data)
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (FindingKind.EPOCH, 2, 0)
    assert "the leader epoch history says 2" in found.says


def test_deleted_segment_is_reported_as_missing_records(orders: ReplicaSet) -> None:
    deleted = orders.segment_files(2)[1]
    first, after = int(deleted.stem), int(orders.segment_files(2)[2].stem)
    deleted.unlink()
    found = only(orders.findings())
    assert (found.kind, found.node) == (FindingKind.MISSING_RECORDS, 2)
    assert (found.offset, found.end_offset) == (first, after)


def test_deleted_first_segment_is_not_mistaken_for_retention(orders: ReplicaSet) -> None:
    orders.segment_files(2)[0].unlink()
    after = int(orders.segment_files(2)[0].stem)
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset, found.end_offset) == (FindingKind.MISSING_RECORDS, 2, 0, after)


def test_log_ending_before_high_watermark_is_reported(orders: ReplicaSet) -> None:
    path, position, _ = locate_batch(orders, 3, 110)
    path.write_bytes(path.read_bytes()[:position])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (FindingKind.SHORT_LOG, 3, 110)
    assert (found.file, found.position) == (str(path), position)


def test_empty_replica_directory_is_reported_as_short_log(orders: ReplicaSet) -> None:
    for path in orders.directories[2].iterdir():
        path.unlink()
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (FindingKind.SHORT_LOG, 2, 0)


def test_damage_after_unreadable_batch_is_reported(orders: ReplicaSet) -> None:
    path, position, size = locate_batch(orders, 1, 25)
    later, later_position, later_size = locate_batch(orders, 1, 100)
    data = bytearray(path.read_bytes())
    data[position : position + size] = b"\xff" * size
    path.write_bytes(data)
    flip_byte(later, later_position + later_size - 1)
    findings = orders.findings()
    assert [(each.kind, each.node, each.offset) for each in findings] == [
        (FindingKind.HEADER, 1, 20),
        (FindingKind.CHECKSUM, 1, 100),
    ]
    assert (findings[0].file, findings[0].position) == (str(path), position)
