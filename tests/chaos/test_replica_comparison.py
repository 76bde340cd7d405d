"""Hand-written segment files of three replicas: equal replicas pass, and any difference below the high watermark is
reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from chronik.log.files import names
from chronik.protocol.batch import set_base_offset_and_epoch
from chronik.protocol.records import Record, encode_batch
from tests.chaos.findings import Finding
from tests.chaos.history import Place
from tests.chaos.replicas import compare_replica_logs, read_log

PLACE = Place("t", 0)
RECORDS_PER_BATCH = 2


def batch(base_offset: int, *, value: bytes = b"v", epoch: int = 0) -> bytes:
    records = [Record(base_offset + delta, 1_000, None, value, ()) for delta in range(RECORDS_PER_BATCH)]
    encoded = bytearray(encode_batch(records))
    set_base_offset_and_epoch(encoded, 0, base_offset, epoch)
    return bytes(encoded)


GOOD = [batch(0), batch(2, epoch=1), batch(4, epoch=1)]
END = 6


def write(folder: Path, segments: dict[int, Iterable[bytes]]) -> Path:
    folder.mkdir()
    for base_offset, batches in segments.items():
        (folder / names.format_offset_file_name(base_offset, names.LOG)).write_bytes(b"".join(batches))
    return folder


def compare_replicas(tmp_path: Path, *replicas: dict[int, Iterable[bytes]], high_watermark: int = END) -> list[Finding]:
    logs = {node: read_log(write(tmp_path / str(node), segments)) for node, segments in enumerate(replicas, 1)}
    return compare_replica_logs(PLACE, logs, high_watermark)


def test_equal_replicas_pass_with_different_segments(tmp_path: Path) -> None:
    assert compare_replicas(tmp_path, {0: GOOD}, {0: GOOD[:1], 2: GOOD[1:]}, {0: GOOD[:2], 4: GOOD[2:]}) == []


def test_empty_partition_passes(tmp_path: Path) -> None:
    logs = {1: read_log(tmp_path / "missing"), 2: read_log(write(tmp_path / "empty", {}))}
    assert compare_replica_logs(PLACE, logs, 0) == []


@pytest.mark.parametrize("tail", [bytes(4096), GOOD[0][:40], batch(6)[:-1], b"\xff" * 100], ids=str)
def test_bytes_after_last_valid_batch_are_ignored(tmp_path: Path, tail: bytes) -> None:
    assert compare_replicas(tmp_path, {0: GOOD}, {0: [*GOOD, tail]}, {0: GOOD}) == []


def test_difference_above_high_watermark_is_ignored(tmp_path: Path) -> None:
    assert compare_replicas(tmp_path, {0: [*GOOD, batch(6)]}, {0: [*GOOD, batch(6, value=b"w")]}, {0: GOOD}) == []


def test_replica_is_compared_from_its_log_start_offset(tmp_path: Path) -> None:
    assert compare_replicas(tmp_path, {0: GOOD}, {2: GOOD[1:]}, {0: GOOD}) == []
    (finding,) = compare_replica_logs(
        PLACE,
        {
            1: read_log(tmp_path / "1"),
            2: read_log(write(tmp_path / "late", {2: [GOOD[1], batch(4, value=b"w", epoch=1)]})),
        },
        END,
    )
    assert "t-0@4" in finding.what


@pytest.mark.parametrize("odd_one", [0, 1, 2])
@pytest.mark.parametrize(
    "other", [batch(2, value=b"w", epoch=1), batch(2, epoch=0)], ids=["other records", "another epoch"]
)
def test_different_batch_is_reported_for_any_replica(tmp_path: Path, odd_one: int, other: bytes) -> None:
    replicas: list[dict[int, Iterable[bytes]]] = [{0: GOOD}, {0: GOOD}, {0: GOOD}]
    replicas[odd_one] = {0: [GOOD[0], other, GOOD[2]]}
    findings = compare_replicas(tmp_path, *replicas)
    assert findings
    assert all(finding.what.startswith("t-0@2") for finding in findings)


@pytest.mark.parametrize(
    "short",
    [
        {0: GOOD[:2]},
        {},
        {0: [*GOOD[:2], GOOD[2][:-1]]},
        {0: [*GOOD[:2], GOOD[2][:-1] + b"\xff"]},
        {0: GOOD[:1], 4: GOOD[2:]},
    ],
    ids=["shorter", "empty", "torn", "damaged", "missing segment"],
)
def test_replica_below_high_watermark_is_reported(tmp_path: Path, short: dict[int, Iterable[bytes]]) -> None:
    (finding,) = compare_replicas(tmp_path, {0: GOOD}, short, {0: GOOD})
    assert finding.what.startswith("node 2 has t-0 only up to")


def test_log_is_reread_when_segment_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "1", {0: GOOD[:1], 2: GOOD[1:]})
    read = Path.read_bytes

    def delete_before_read(path: Path) -> bytes:
        monkeypatch.setattr(Path, "read_bytes", read)
        path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", delete_before_read)
    assert read_log(folder).start == 2
