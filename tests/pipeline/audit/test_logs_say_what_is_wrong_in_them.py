"""Damage that is planted in one of three replicas is found, there and nowhere else, and its exact place is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.log.config import LogConfig
from chronik.pipeline.audit.findings import Finding, Kind
from chronik.protocol.batch import parse_header, set_base_offset_and_epoch
from chronik.protocol.records import Record, decode_batch, encode_batch
from chronik.protocol.rewrite import retain
from tests.pipeline.audit.audited import NOW_MS, Copies, Written, batches_in, copies, flip

SMALL_SEGMENTS = LogConfig(segment_bytes=1000, index_interval_bytes=500)


@pytest.fixture
def orders(tmp_path: Path) -> Copies:
    """Twelve batches of ten records, in several segments, of two leader epochs."""
    log = Written(tmp_path / "1", SMALL_SEGMENTS)
    log.batches(6, epoch=2)
    log.batches(6, epoch=5)
    made = copies(tmp_path, log)
    assert len(made.files(1)) > 3
    assert made.end == 120
    return made


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def place(orders: Copies, node: int, offset: int) -> tuple[Path, int, int]:
    """(file, position, size) of the batch that holds the offset."""
    for path in reversed(orders.files(node)):
        for position, size, base in reversed(batches_in(path)):
            if base <= offset:
                return path, position, size
    raise AssertionError(offset)


def test_replicas_that_are_the_same_give_nothing_to_say(orders: Copies) -> None:
    compared = orders.compared()
    assert compared.findings == []
    assert (compared.records, compared.batches) == (360, 36)
    assert compared.size_bytes == sum(path.stat().st_size for node in (1, 2, 3) for path in orders.files(node))


def test_a_flipped_byte_is_named_to_the_byte(orders: Copies) -> None:
    path, position, size = place(orders, 2, 37)
    flip(path, position + size - 5)
    found = only(orders.findings())
    assert (found.kind, found.topic, found.partition, found.node) == (Kind.CHECKSUM, "orders", 0, 2)
    assert (found.offset, found.end_offset) == (30, 40)
    assert (found.file, found.position) == (str(path), position + size - 5)
    assert "does not match" in found.says


def test_no_flipped_byte_goes_unnoticed_wherever_it_is(tmp_path: Path) -> None:
    log = Written(tmp_path / "1")
    log.batches(3, size=2, epoch=1)
    made = copies(tmp_path, log)
    (path,) = made.files(3)
    data = path.read_bytes()
    spans = [range(position, position + size) for position, size, _ in batches_in(path)]
    for position in range(len(data)):
        flip(path, position, 0x10)
        findings = made.findings()
        path.write_bytes(data)
        assert findings, f"byte {position}"
        (span,) = [span for span in spans if position in span]
        number = spans.index(span)
        for found in findings:
            assert found.node == 3, (position, found)
            assert found.file == str(path)
            assert found.position is not None
            assert found.position in span, (position, found)
            assert found.offset is not None
            assert 2 * number <= found.offset < 2 * number + 2, (position, found)
    assert made.findings() == []


def test_a_batch_that_lacks_a_record_is_named_with_the_record(orders: Copies) -> None:
    """Rewritten with a right checksum, as something that mistakes the topic for a compacted one would do it."""
    path, position, size = place(orders, 3, 75)
    data = path.read_bytes()
    thinned = retain(data, position, lambda offset, *_: offset != 75)
    assert thinned is not None
    path.write_bytes(data[:position] + thinned + data[position + size :])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (Kind.MISSING_RECORDS, 3, 75)
    assert (found.file, found.position) == (str(path), position)
    assert "offset 75 is missing" in found.says


def test_a_record_that_all_replicas_lack_is_named_too(orders: Copies) -> None:
    for node in (1, 2, 3):
        path, position, size = place(orders, node, 75)
        data = path.read_bytes()
        thinned = retain(data, position, lambda offset, *_: offset not in (72, 75))
        assert thinned is not None
        path.write_bytes(data[:position] + thinned + data[position + size :])
    findings = orders.findings()
    assert [(found.kind, found.node, found.offset) for found in findings] == [
        (Kind.MISSING_RECORDS, node, 72) for node in (1, 2, 3)
    ]
    assert "offsets 72, 75 are missing" in findings[0].says


def test_a_batch_that_is_cut_out_is_named_by_its_offsets(orders: Copies) -> None:
    path, position, size = place(orders, 1, 44)
    data = path.read_bytes()
    path.write_bytes(data[:position] + data[position + size :])
    found = only(orders.findings())
    assert (found.kind, found.node) == (Kind.MISSING_RECORDS, 1)
    assert (found.offset, found.end_offset) == (40, 50)


def test_a_batch_that_is_there_twice_is_named_where_it_comes_again(orders: Copies) -> None:
    path, position, size = place(orders, 2, 90)
    data = path.read_bytes()
    path.write_bytes(data[: position + size] + data[position:])
    found = only(orders.findings())
    assert (found.kind, found.node) == (Kind.DUPLICATE_BATCH, 2)
    assert (found.offset, found.end_offset) == (90, 100)
    assert (found.file, found.position) == (str(path), position + size)


def test_the_very_last_batch_twice_is_noticed(orders: Copies) -> None:
    path, position, size = place(orders, 2, 119)
    data = path.read_bytes()
    path.write_bytes(data[: position + size] + data[position:])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset, found.position) == (
        Kind.DUPLICATE_BATCH,
        2,
        110,
        position + size,
    )


def test_a_batch_that_was_written_twice_on_all_replicas_is_told_by_its_producer(tmp_path: Path) -> None:
    log = Written(tmp_path / "1")
    log.batch((b"a", b"1"), (b"b", b"2"), producer_id=7)
    made = copies(tmp_path, log)
    for node in (1, 2, 3):
        (path,) = made.files(node)
        once = path.read_bytes()
        again = bytearray(once)
        set_base_offset_and_epoch(again, 0, 2, 0)
        path.write_bytes(once + again)
    made.end = 4
    findings = made.findings()
    assert [(each.kind, each.node, each.offset) for each in findings] == [
        (Kind.DUPLICATE_BATCH, node, 2) for node in (1, 2, 3)
    ]
    assert "producer 7" in findings[0].says


def test_a_replica_that_has_diverged_is_named_with_the_record(orders: Copies) -> None:
    path, position, size = place(orders, 3, 57)
    data = path.read_bytes()
    header = parse_header(data, position)
    records = [
        record._replace(value=b"another!") if record.offset == 57 else record for record in decode_batch(data, position)
    ]
    changed = encode_batch(records, leader_epoch=header.partition_leader_epoch)
    path.write_bytes(data[:position] + changed + data[position + size :])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (Kind.DIVERGED, 3, 57)
    assert found.file == str(path)
    assert found.position is not None
    assert position < found.position < position + len(changed)
    assert changed[found.position - position :].startswith(b"another!"[:1])
    assert "its value is not what nodes 1, 2 have" in found.says


def test_of_two_replicas_the_leader_is_believed(orders: Copies) -> None:
    del orders.folders[2]
    path, position, _ = place(orders, 1, 0)
    data = bytearray(path.read_bytes())
    changed = encode_batch([Record(n, NOW_MS, b"k", b"v") for n in range(10)], leader_epoch=2)
    path.write_bytes(data[:position] + changed + data[batches_in(path)[0][1] :])
    findings = orders.findings()
    assert {(found.kind, found.node) for found in findings} == {(Kind.DIVERGED, 3)}


def test_leader_epochs_that_go_back_are_named(orders: Copies) -> None:
    path, position, _ = place(orders, 2, 95)
    data = bytearray(path.read_bytes())
    set_base_offset_and_epoch(data, position, 90, 3)
    path.write_bytes(data)
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset, found.position) == (Kind.EPOCH, 2, 90, position)
    assert "leader epoch 3, behind one of 5" in found.says


def test_an_epoch_that_the_history_does_not_know_is_named(orders: Copies) -> None:
    path, position, _ = place(orders, 2, 5)
    data = bytearray(path.read_bytes())
    set_base_offset_and_epoch(data, position, 0, 1)
    path.write_bytes(data)
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (Kind.EPOCH, 2, 0)
    assert "the node's history of epochs says 2" in found.says


def test_a_segment_that_is_gone_is_named_by_its_offsets(orders: Copies) -> None:
    gone = orders.files(2)[1]
    first, after = int(gone.stem), int(orders.files(2)[2].stem)
    gone.unlink()
    found = only(orders.findings())
    assert (found.kind, found.node) == (Kind.MISSING_RECORDS, 2)
    assert (found.offset, found.end_offset) == (first, after)


def test_a_first_segment_that_is_gone_is_not_taken_for_retention(orders: Copies) -> None:
    orders.files(2)[0].unlink()
    after = int(orders.files(2)[0].stem)
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset, found.end_offset) == (Kind.MISSING_RECORDS, 2, 0, after)


def test_a_log_that_ends_before_the_high_watermark_is_named_with_its_end(orders: Copies) -> None:
    path, position, _ = place(orders, 3, 110)
    path.write_bytes(path.read_bytes()[:position])
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (Kind.SHORT_LOG, 3, 110)
    assert (found.file, found.position) == (str(path), position)


def test_a_replica_of_which_nothing_is_there_is_named(orders: Copies) -> None:
    for path in orders.folders[2].iterdir():
        path.unlink()
    found = only(orders.findings())
    assert (found.kind, found.node, found.offset) == (Kind.SHORT_LOG, 2, 0)


def test_torn_bytes_in_the_middle_do_not_hide_what_follows(orders: Copies) -> None:
    path, position, size = place(orders, 1, 25)
    later, later_position, later_size = place(orders, 1, 100)
    data = bytearray(path.read_bytes())
    data[position : position + size] = b"\xff" * size
    path.write_bytes(data)
    flip(later, later_position + later_size - 1)
    findings = orders.findings()
    assert [(each.kind, each.node, each.offset) for each in findings] == [(Kind.HEADER, 1, 20), (Kind.CHECKSUM, 1, 100)]
    assert (findings[0].file, findings[0].position) == (str(path), position)
