"""Compaction of transactional records: undecided records are kept, aborted records and their markers are removed."""

from __future__ import annotations

from msgspec.structs import replace

from chronik.log.config import LogConfig
from chronik.protocol.batch import BatchHeader, iter_batches
from chronik.protocol.control_records import TransactionMarker, parse_transaction_marker_batch

from .harness import LogHarness, batch, read_records
from .transactional_writer import TransactionalWriter, committed_values, replicate_log

RETENTION_S = 60
CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_S * 1000,
    file_delete_delay_ms=0,
)


def compact(writer: TransactionalWriter) -> None:
    """Compact all segments, including the active one."""
    writer.log.roll()
    writer.world.append(batch(b"more", key=b"filler", timestamp=writer.world.clock.now_ms()))
    writer.world.complete_syncs()
    writer.world.compact()
    writer.world.complete_syncs()


def batches(writer: TransactionalWriter) -> list[BatchHeader]:
    log, found = writer.log, []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for _, header in iter_batches(log.read(offset, 1 << 20, log.log_end_offset)):
            found.append(header)
            offset = header.next_offset
    return found


def markers(writer: TransactionalWriter) -> list[int]:
    return [header.base_offset for header in batches(writer) if header.is_control]


def values(writer: TransactionalWriter, key: bytes) -> list[bytes | None]:
    return [record.value for record in read_records(writer.log) if record.key == key]


def test_compaction_stops_at_last_stable_offset() -> None:
    writer = TransactionalWriter(CONFIG)
    for number in range(10):
        writer.world.append(batch(b"%d" % number, key=b"a"))
    writer.write(1, b"of the transaction", keys=[b"a"])
    for number in range(10, 20):
        writer.world.append(batch(b"%d" % number, key=b"a"))
    compact(writer)
    assert values(writer, b"a")[-11:] == [b"of the transaction", *(b"%d" % number for number in range(10, 20))]
    assert len(values(writer, b"a")) < 21
    writer.end(1, commit=True)
    compact(writer)
    assert values(writer, b"a") == [b"19"]


def test_aborted_records_are_removed_and_do_not_shadow_keys() -> None:
    writer = TransactionalWriter(CONFIG)
    writer.world.append(batch(b"committed", key=b"a"))
    writer.write(1, b"aborted", keys=[b"a"])
    writer.end(1, commit=False)
    writer.write(1, b"also committed", keys=[b"b"])
    writer.end(1, commit=True)
    compact(writer)
    assert values(writer, b"a") == [b"committed"]
    assert values(writer, b"b") == [b"also committed"]


def test_marker_is_kept_while_its_transaction_has_records() -> None:
    writer = TransactionalWriter(CONFIG)
    writer.write(1, b"1", keys=[b"a"])
    marker = writer.end(1, commit=True)
    for _ in range(5):
        writer.write(1, b"later", plain=True, keys=[b"c"])
        compact(writer)
        writer.world.clock.advance(10 * RETENTION_S)
    assert markers(writer) == [marker]
    assert values(writer, b"a") == [b"1"]


def test_marker_is_removed_after_its_records_and_delete_retention() -> None:
    for commit in (True, False):
        writer = TransactionalWriter(CONFIG)
        writer.write(1, b"1", keys=[b"a"])
        marker = writer.end(1, commit=commit)
        writer.write(1, b"2", keys=[b"a"], plain=True)
        compact(writer)  # removes the record
        assert (values(writer, b"a"), markers(writer)) == ([b"2"], [marker])
        writer.world.clock.advance(10 * RETENTION_S)
        compact(writer)  # finds no record: sets the delete horizon
        assert markers(writer) == [marker]
        writer.world.clock.advance(RETENTION_S / 2)
        compact(writer)
        assert markers(writer) == [marker]
        writer.world.clock.advance(RETENTION_S)
        compact(writer)
        assert markers(writer) == []
        assert values(writer, b"a") == [b"2"]
        assert writer.last_stable_offset() == writer.log.log_end_offset
        assert writer.aborted() == []


def test_marker_with_delete_horizon_keeps_its_outcome() -> None:
    writer = TransactionalWriter(CONFIG)
    writer.write(1, b"1", keys=[b"a"])
    writer.end(1, commit=False, coordinator_epoch=9)
    writer.write(1, b"2", plain=True)
    for _ in range(3):
        compact(writer)
    data = writer.log.read(1, 1 << 20, 2)
    (found,) = [(position, header) for position, header in iter_batches(data) if header.is_control]
    assert found[1].delete_horizon_ms is not None
    assert parse_transaction_marker_batch(data, found[0]) == TransactionMarker(is_commit=False, coordinator_epoch=9)


def test_last_batch_of_producer_is_kept_empty_with_its_marker() -> None:
    """Otherwise the producer's sequence and its completed transaction would be lost with the next lost snapshot."""
    writer = TransactionalWriter(CONFIG)
    writer.write(1, b"1", b"2", keys=[b"a", b"b"])
    marker = writer.end(1, commit=False)
    for _ in range(4):
        compact(writer)
        writer.world.clock.advance(10 * RETENTION_S)
    (left,) = [header for header in batches(writer) if header.producer_id == 1 and not header.is_control]
    assert (left.record_count, left.last_sequence) == (0, 1)
    assert markers(writer) == [marker]
    writer.restart_without_snapshots()
    assert writer.last_stable_offset() == writer.log.log_end_offset
    writer.write(1, b"3")


def test_marker_that_started_producer_epoch_is_kept() -> None:
    writer = TransactionalWriter(CONFIG)
    writer.write(1, b"1", keys=[b"a"])
    marker = writer.end(1, commit=False, epoch=1)
    for _ in range(4):
        compact(writer)
        writer.world.clock.advance(10 * RETENTION_S)
    assert not [header for header in batches(writer) if header.producer_id == 1 and not header.is_control]
    assert markers(writer) == [marker]
    writer.restart_without_snapshots()
    producer = writer.log.producers.get(1)
    assert producer is not None
    assert producer.epoch == 1


def abort_and_compact(writer: TransactionalWriter) -> None:
    """Abort a transaction and compact it away completely."""
    for _ in range(3):
        compact(writer)
        writer.world.clock.advance(10 * RETENTION_S)
    assert markers(writer) == []


def test_snapshot_with_open_transaction_below_compacted_offset_is_ignored() -> None:
    writer = TransactionalWriter(replace(CONFIG, segment_bytes=10_000))
    writer.write(1, b"1", keys=[b"a"])
    writer.log.roll()  # with a snapshot in which it is open
    (old,) = [path for path in writer.world.simulated_files.paths() if path.endswith(".snapshot")]
    kept = writer.world.simulated_files.read(old)
    writer.end(1, commit=False)
    writer.write(1, b"2", keys=[b"a"], plain=True)
    abort_and_compact(writer)
    files = writer.world.simulated_files.kill()
    for path in [path for path in files.paths() if path.endswith(".snapshot")]:
        files.overwrite(path, b"torn")
    files.create(old).append(kept)
    writer.world = writer.world.reopen(files)
    assert writer.last_stable_offset() == writer.log.log_end_offset


def test_aborted_transaction_removed_by_compaction_is_not_returned() -> None:
    writer = TransactionalWriter(replace(CONFIG, segment_bytes=10_000))
    writer.write(1, b"aborted", keys=[b"a"])
    writer.end(1, commit=False)
    writer.log.roll()
    (old,) = [path for path in writer.world.simulated_files.paths() if path.endswith(".snapshot")]
    kept = writer.world.simulated_files.read(old)
    writer.write(1, b"committed", keys=[b"b"])
    writer.end(1, commit=True)
    for _ in range(3):
        compact(writer)
        writer.world.clock.advance(10 * RETENTION_S)
    assert len(markers(writer)) == 1
    files = writer.world.simulated_files.kill()
    for path in [path for path in files.paths() if path.endswith(".snapshot")]:
        files.overwrite(path, b"torn")
    files.create(old).append(kept)
    writer.world = writer.world.reopen(files)
    assert writer.aborted() == [(1, 0)]
    assert b"committed" in committed_values(writer.log, writer.log.log_end_offset)


def test_markers_of_damaged_segment_are_kept() -> None:
    writer = TransactionalWriter(CONFIG)
    writer.write(1, b"in the damaged segment", keys=[b"a"])
    writer.world.append(batch(b"x" * 300, key=b"b"))
    writer.log.roll()
    marker = writer.end(1, commit=False)
    writer.write(1, b"2", keys=[b"c"], plain=True)
    writer.world.complete_syncs()
    path = writer.world.path(".log")
    content = bytearray(writer.world.simulated_files.read(path))
    content[70] ^= 1
    writer.world.simulated_files.overwrite(path, bytes(content))
    for _ in range(4):
        compact(writer)
        writer.world.clock.advance(10 * RETENTION_S)
    assert marker in [
        header.base_offset
        for _, header in iter_batches(writer.log.read(marker, 1 << 20, writer.log.log_end_offset))
        if header.is_control
    ]
    assert writer.aborted() == [(1, 0)]


def test_follower_of_compacted_log_has_same_transactions() -> None:
    writer = TransactionalWriter(CONFIG)
    for number in range(60):
        writer.write(number % 4, b"%d" % number, keys=[b"%d" % (number % 7)])
        if number % 3 == 2:
            writer.end(number % 4, commit=number % 2 == 0)
        if number % 20 == 19:
            for producer in range(4):
                writer.end(producer, commit=producer % 2 == 0)
            compact(writer)
            writer.world.clock.advance(10 * RETENTION_S)
    writer.write(2, b"open", keys=[b"0"])
    writer.world.append(batch(b"plain"))
    end = writer.log.log_end_offset
    follower = replicate_log(writer.log, LogHarness(config=CONFIG))
    assert follower.last_stable_offset(end) == writer.last_stable_offset() == end - 2
    assert committed_values(follower, end, 300) == committed_values(writer.log, end, 700)
    assert committed_values(follower, end)
