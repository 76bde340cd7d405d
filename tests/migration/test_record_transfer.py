"""The stream of an imported partition, and its transfer in requests."""

from __future__ import annotations

import pytest

from chronik.migration.record_transfer import PartitionToImport, PartitionTransfer
from chronik.migration.source import MigrationError
from chronik.protocol.batch import iter_batches, verify_crc
from chronik.protocol.control_records import TransactionMarker, parse_transaction_marker_batch
from chronik.protocol.messages.import_records import ImportedPartitionResult
from tests.migration.memory_logs import MemoryLog, build_batch, build_marker, build_stream, join_chunks


def test_stream_copies_batches_unchanged() -> None:
    batches = [build_batch(0, 3), build_batch(3, producer=7), build_batch(4, 2, producer=8, epoch=4)]
    chunks = list(build_stream(MemoryLog(batches)))
    assert join_chunks(chunks) == b"".join(batches)
    assert sum(chunk.record_count for chunk in chunks) == 6


def test_stream_includes_whole_batch_that_contains_log_start() -> None:
    chunks = list(build_stream(MemoryLog([build_batch(0, 5), build_batch(5)], start=3)))
    assert chunks[0].first_offset == 0
    assert chunks[-1].end_offset == 6


def test_stream_ends_open_transactions_in_order_of_their_start() -> None:
    log = MemoryLog(
        [
            build_batch(0, producer=9, in_transaction=True),
            build_batch(1, producer=8, in_transaction=True),
            build_batch(2, producer=7, in_transaction=True),
            build_marker(3, 8, commit=True),
            build_batch(4, producer=9, in_transaction=True, epoch=6),
        ]
    )
    *_, first, last = build_stream(log, committed=frozenset({7, 8}))
    assert [
        (each.first_offset, parse_transaction_marker_batch(each.data), each.record_count) for each in (first, last)
    ] == [
        (5, TransactionMarker(False, 0), 0),
        (6, TransactionMarker(True, 0), 0),
    ]
    ((_, header),) = iter_batches(first.data)
    assert (header.producer_id, header.partition_leader_epoch, header.max_timestamp) == (9, 6, 1004)
    assert header.is_control
    assert join_chunks(list(build_stream(log))) == join_chunks(list(build_stream(log)))


def test_stream_shifts_producer_ids_and_updates_checksums() -> None:
    log = MemoryLog([build_batch(0, producer=7), build_batch(1), build_batch(2, producer=0, in_transaction=True)])
    data = join_chunks(list(build_stream(log, first_producer_id=5000)))
    found = [(position, header) for position, header in iter_batches(data)]
    assert [header.producer_id for _, header in found] == [5007, -1, 5000, 5000]
    assert all(verify_crc(data, position, header.size) for position, header in found)


def test_stream_rejects_unallocated_producer_id_gap_and_damage() -> None:
    with pytest.raises(MigrationError, match="producer id 100 at offset 1 was never allocated"):
        list(build_stream(MemoryLog([build_batch(0), build_batch(1, producer=100)])))
    with pytest.raises(MigrationError, match="expected offset 1, found 2"):
        list(build_stream(MemoryLog([build_batch(0), build_batch(2)])))
    damaged = bytearray(build_batch(1))
    damaged[-1] ^= 1
    with pytest.raises(MigrationError, match="the batch at offset 1 is damaged"):
        list(build_stream(MemoryLog([build_batch(0), bytes(damaged)])))


# --- requests ---


def build_transfer(log: MemoryLog) -> PartitionTransfer:
    return PartitionTransfer(PartitionToImport((bytes(16), 0), "orders-0", log, lambda: build_stream(log)))


def result(end: int, start: int = 0) -> ImportedPartitionResult:
    return ImportedPartitionResult(log_start_offset=start, log_end_offset=end)


def test_transfer_completes_after_empty_request_is_acknowledged() -> None:
    transfer = build_transfer(MemoryLog([build_batch(0, 3), build_batch(3)]))
    portion = transfer.next_chunk()
    assert (portion.expected_end, len(portion.records or b"")) == (0, len(build_batch(0, 3) + build_batch(3)))
    assert transfer.process_leader_result(result(4)) == 4
    assert not transfer.is_done
    assert (transfer.next_chunk().expected_end, transfer.next_chunk().records) == (4, None)
    assert transfer.process_leader_result(result(4)) == 0
    assert transfer.is_done


def test_transfer_resumes_at_log_end_of_cluster() -> None:
    transfer = build_transfer(MemoryLog([build_batch(0, 3), build_batch(3), build_batch(4, 2)]))
    transfer.process_leader_result(result(3))
    portion = transfer.next_chunk()
    assert (portion.expected_end, bytes(portion.records or b"")) == (3, build_batch(3) + build_batch(4, 2))
    transfer.process_leader_result(result(0))  # a new leader with fewer records
    assert transfer.next_chunk().expected_end == 0
    transfer.process_leader_result(result(6))
    transfer.process_leader_result(result(3))
    assert transfer.next_chunk().expected_end == 3
    assert not transfer.is_done


def test_transfer_of_empty_log_sets_only_its_start() -> None:
    transfer = build_transfer(MemoryLog([], start=40))
    portion = transfer.next_chunk()
    assert (portion.expected_end, portion.log_start_offset, portion.records) == (40, 40, None)
    transfer.process_leader_result(result(0, 0))
    assert not transfer.is_done
    transfer.process_leader_result(result(40, 40))
    assert transfer.is_done


def test_transfer_rejects_log_that_differs_from_source() -> None:
    log = MemoryLog([build_batch(0, 3), build_batch(3)])
    with pytest.raises(MigrationError, match="inside a batch"):
        build_transfer(log).process_leader_result(result(2))
    with pytest.raises(MigrationError, match="has offsets 0 to 8 in the cluster, but 0 to 3 in the source"):
        build_transfer(log).process_leader_result(result(9))
