"""What replicas may differ in is not held against them: segments cut elsewhere, starts and ends of their own, files
that go while they are read, and compaction, which each does for itself."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from chronik.files import RealFiles
from chronik.log.config import LogConfig
from chronik.log.files.names import LOG, offset_name, swap_name
from chronik.log.files.offset_file import OffsetFile
from chronik.pipeline.audit.findings import Kind, Place
from chronik.pipeline.audit.folders import agreed_end, epochs_of
from chronik.pipeline.audit.logs import stretches, surviving
from chronik.pipeline.audit.logs.compare import compare_logs
from chronik.pipeline.audit.logs.walk import Batch, Walk
from chronik.pipeline.audit.standing import Partition, Replica
from chronik.pipeline.spark.tasks import in_this_process
from chronik.protocol.batch import parse_header
from chronik.protocol.records import decode_batch, encode_batch
from chronik.protocol.rewrite import retain
from tests.pipeline.audit.audited import NODES, TOPIC_ID, Copies, Written, batches_in, flip

DEADLINE_SECONDS = 120
COMPACTED = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=500,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and slices so small that a short log has many."""
    for module in ("digests", "stretches", "compare"):
        monkeypatch.setattr(f"chronik.pipeline.audit.logs.{module}.CHUNK_OFFSETS", 16)
    monkeypatch.setattr(stretches, "SLICE_BYTES", 900)
    monkeypatch.setattr(stretches, "BUNDLE_BYTES_MIN", 1000)
    monkeypatch.setattr(stretches, "ROUND_BYTES", 3000)


def written_thrice(tmp_path: Path, *segment_bytes: int, batches: int = 40) -> Copies:
    """The same batches on every node, in segments of another size on each."""
    folders, end = {}, 0
    for node, size in zip(NODES, segment_bytes, strict=True):
        folders[node] = tmp_path / str(node)
        log = Written(folders[node], LogConfig(segment_bytes=size, index_interval_bytes=300))
        log.batches(batches // 2, size=7, epoch=1)
        log.batches(batches // 2, size=7, epoch=2)
        end = log.close()
    return Copies(folders, end)


@pytest.mark.usefixtures("small_steps")
def test_where_segments_and_slices_are_cut_makes_no_difference(tmp_path: Path) -> None:
    made = written_thrice(tmp_path, 1000, 3000, 100_000)
    cuts = [len(made.files(node)) for node in NODES]
    assert len(set(cuts)) == 3
    assert len(list(stretches.stretches(made.partition()))) > 5
    compared = made.compared()
    assert compared.findings == []
    assert compared.records == 3 * made.end


@pytest.mark.usefixtures("small_steps")
def test_every_batch_is_looked_at_however_it_is_sliced(tmp_path: Path) -> None:
    made = written_thrice(tmp_path, 1000, 3000, 100_000)
    for node in NODES:
        for path in made.files(node):
            data = path.read_bytes()
            for position, size, base in batches_in(path):
                flip(path, position + size - 1)
                found = made.findings()
                path.write_bytes(data)
                told = [(each.kind, each.node, each.offset, each.file, each.position) for each in found]
                assert told == [(Kind.CHECKSUM, node, base, str(path), position + size - 1)]


@pytest.mark.usefixtures("small_steps")
def test_every_missing_or_doubled_batch_is_told_once_however_it_is_sliced(tmp_path: Path) -> None:
    made = written_thrice(tmp_path, 1000, 3000, 100_000)
    for path in made.files(2):
        data = path.read_bytes()
        for position, size, base in batches_in(path):
            path.write_bytes(data[:position] + data[position + size :])
            (missing,) = made.findings()
            path.write_bytes(data[: position + size] + data[position:])
            (doubled,) = made.findings()
            path.write_bytes(data)
            is_last = base + 7 == made.end
            kind = Kind.SHORT_LOG if is_last else Kind.MISSING_RECORDS
            assert (missing.kind, missing.node, missing.offset, missing.end_offset) == (kind, 2, base, base + 7)
            assert (doubled.kind, doubled.node, doubled.offset) == (Kind.DUPLICATE_BATCH, 2, base)
            assert (doubled.file, doubled.position) == (str(path), position + size)


def test_a_replica_whose_log_starts_later_is_compared_from_there_on(tmp_path: Path) -> None:
    made = written_thrice(tmp_path, 1000, 1000, 1000)
    second = made.files(3)[1]
    made.files(3)[0].unlink()
    start = int(second.stem)
    OffsetFile(RealFiles(made.folders[3]), "log-start").store(start)
    made.start = start
    assert made.findings() == []
    # Planned before retention came: the walk finds out that the start has moved.
    made.start = 0
    assert made.findings() == []


def test_a_replica_out_of_sync_is_compared_up_to_where_it_agrees(tmp_path: Path) -> None:
    made = written_thrice(tmp_path, 100_000, 100_000, 100_000)
    (path,) = made.files(2)
    position, _, base = batches_in(path)[-3]
    path.write_bytes(path.read_bytes()[:position])
    assert [each.kind for each in made.findings()] == [Kind.SHORT_LOG]
    assert compare_logs(in_this_process, [made.with_end(2, base)]).findings == []
    flip(path, batches_in(path)[1][0] + 70)
    (found,) = compare_logs(in_this_process, [made.with_end(2, base)]).findings
    assert (found.kind, found.node) == (Kind.CHECKSUM, 2)


def test_a_tail_of_another_epoch_is_not_agreed_upon(tmp_path: Path) -> None:
    """A leader that was cut off has written what another leader wrote otherwise."""
    common = Written(tmp_path / "1")
    common.batches(3, epoch=1)
    common.close()
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    for node, epoch in ((1, 2), (2, 3)):
        log = Written(tmp_path / str(node))
        log.batches(2, epoch=epoch)
        log.close()
    one, other = epochs_of(str(tmp_path / "1"))[0], epochs_of(str(tmp_path / "2"))[0]
    assert agreed_end(one, 50, other, 50) == 30
    assert agreed_end(one, 50, one, 40) == 40


def test_files_that_vanish_while_they_are_read_are_found_again(tmp_path: Path) -> None:
    """As compaction exchanges them: by the name `<first>-<end>.swap`, and then by the first one's name."""
    log = Written(tmp_path / "1", LogConfig(segment_bytes=500))
    log.batches(12)
    end = log.close()
    files = sorted((tmp_path / "1").glob("*.log"))
    assert len(files) > 4
    walk = Walk(str(tmp_path / "1"), Place("orders", 0, 1), 0, end, is_compacted=True)
    offsets: list[int] = []
    for event in walk:
        assert isinstance(event, Batch), event
        offsets.append(event.header.base_offset)
        if len(offsets) == 2:
            joined = b"".join(path.read_bytes() for path in files[1:4])
            swap = tmp_path / "1" / swap_name(int(files[1].stem), int(files[4].stem))
            swap.write_bytes(joined)
            for path in files[1:4]:
                path.rename(f"{path}.deleted")
        if len(offsets) == 8:
            swap.rename(tmp_path / "1" / offset_name(int(files[1].stem), LOG))
    assert offsets == list(range(0, end, 10))


def keyed(tmp_path: Path, *nodes: int) -> dict[int, Written]:
    """Logs of the same records, of which most keys come again."""
    logs = {node: Written(tmp_path / str(node), COMPACTED) for node in nodes}
    for log in logs.values():
        for number in range(60):
            pairs = [(b"key %d" % ((number * 7 + each) % 50), b"value %d" % (10 * number + each)) for each in range(10)]
            log.batch(*pairs, epoch=1 + number // 40)
        log.batch((b"key 3", None), epoch=2)
    return logs


def held(tmp_path: Path, end: int) -> Copies:
    return Copies({node: tmp_path / str(node) for node in NODES}, end, is_compacted=True)


@pytest.fixture(params=["whole", "sliced"])
def _steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "sliced":
        request.getfixturevalue("small_steps")
        monkeypatch.setattr(surviving, "KEYS_MAX", 50)


@pytest.mark.usefixtures("_steps")
def test_replicas_that_have_compacted_at_other_times_are_clean(tmp_path: Path) -> None:
    logs = keyed(tmp_path, *NODES)
    logs[1].compact()
    logs[2].log.roll()
    logs[2].batch((b"key 4", b"late"), epoch=2)
    logs[2].compact()
    ends = [log.close() for log in logs.values()]
    made = held(tmp_path, min(ends))
    compared = made.compared()
    assert compared.findings == []
    assert 600 < compared.records < 3 * 601


@pytest.mark.usefixtures("_steps")
def test_a_last_record_of_its_key_that_compaction_lost_is_named(tmp_path: Path) -> None:
    logs = keyed(tmp_path, *NODES)
    for log in logs.values():
        log.compact()
    made = held(tmp_path, min(log.close() for log in logs.values()))
    assert made.findings() == []
    path, position, size, offset = _last_survivor(made.files(2))
    data = path.read_bytes()
    thinned = retain(data, position, lambda each, *_: each != offset, keep_empty=True)
    assert thinned is not None
    path.write_bytes(data[:position] + thinned + data[position + size :])
    (found,) = made.findings()
    assert (found.kind, found.node, found.offset) == (Kind.DIVERGED, 2, offset)
    assert "the last one of its key" in found.says


def _last_survivor(files: list[Path]) -> tuple[Path, int, int, int]:
    """Its file, the position and the size of its batch, and its offset."""
    for path in reversed(files):
        data = path.read_bytes()
        for position, size, _ in reversed(batches_in(path)):
            values = [record.offset for record in decode_batch(data, position) if record.value is not None]
            if values:
                return path, position, size, values[-1]
    raise AssertionError(files)


@pytest.mark.usefixtures("_steps")
def test_a_survivor_that_is_another_is_named(tmp_path: Path) -> None:
    logs = keyed(tmp_path, *NODES)
    logs[1].compact()
    made = held(tmp_path, min(log.close() for log in logs.values()))
    path = made.files(3)[0]
    data = path.read_bytes()
    position, size, offset = batches_in(path)[2]
    records = decode_batch(data, position)
    records[4] = records[4]._replace(value=b"changed")
    epoch = parse_header(data, position).partition_leader_epoch
    changed = encode_batch(records, base_offset=offset, leader_epoch=epoch)
    path.write_bytes(data[:position] + changed + data[position + size :])
    (found,) = [each for each in made.findings() if each.offset == offset + 4]
    assert (found.kind, found.node) == (Kind.DIVERGED, 3)


def test_a_node_that_writes_and_deletes_meanwhile_is_read_all_the_same(tmp_path: Path) -> None:
    """A leader appends and applies retention under the audit's eyes, hundreds of times."""
    config = LogConfig(segment_bytes=2000, retention_bytes=8000, retention_ms=-1, file_delete_delay_ms=0)
    log = Written(tmp_path / "1", config)
    log.batches(30)
    stop = threading.Event()
    ends = [log.log.log_end_offset]
    starts = [0]

    def write() -> None:
        while not stop.is_set():
            log.batches(3)
            log.log.apply_retention(log.clock.now_ms())
            starts.append(log.log.log_start_offset)
            log.settle()
            ends.append(log.log.log_end_offset)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        deadline, looks = time.monotonic() + DEADLINE_SECONDS, 0
        while looks < 150 or starts[-1] == 0:  # the writer gets its turns when the machine gives it some
            assert time.monotonic() < deadline, f"{len(starts)} rounds were written, and retention took nothing"
            looks += 1
            start, end = starts[-1], ends[-1]
            partition = Partition(
                "orders", TOPIC_ID, 0, 1, start, end, False, (Replica(1, str(tmp_path / "1"), end, True),), ()
            )
            compared = compare_logs(in_this_process, [partition])
            assert compared.findings == []
    finally:
        stop.set()
        writer.join()
    assert not os.path.exists(tmp_path / "1" / offset_name(0, LOG))
