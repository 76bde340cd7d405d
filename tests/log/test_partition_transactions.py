"""The last stable offset, the aborted transactions and the transaction markers of a partition log."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from chronik.log import producer_snapshots, producer_state
from chronik.log.config import DAY_MS
from chronik.log.partition_transactions import UNREPLICATED_MAX, PartitionTransactions
from chronik.log.producer_state import ProducerStateManager
from chronik.protocol.errors import ErrorCode, KafkaError

from .harness import NOW_MS, LogHarness, batch
from .transactional_writer import SMALL, TransactionalWriter, committed_values, end_transaction, replicate_log


def test_last_stable_offset_is_first_offset_of_oldest_open_transaction() -> None:
    writer = TransactionalWriter()
    writer.world.append(batch(b"plain"))
    first = writer.write(1, b"a")
    second = writer.write(2, b"b")
    assert (first, second, writer.last_stable_offset()) == (1, 2, 1)
    assert writer.last_stable_offset(high_watermark=1) == 1
    writer.end(1, commit=True)
    assert writer.last_stable_offset() == second
    end = writer.end(2, commit=False) + 1
    assert writer.last_stable_offset() == end


def test_last_stable_offset_waits_until_marker_is_committed() -> None:
    """If the marker is lost with its leader, the last stable offset of the next leader must not go back."""
    writer = TransactionalWriter()
    first = writer.write(1, b"a")
    marker = writer.end(1, commit=True)
    assert writer.last_stable_offset(high_watermark=marker) == first
    assert writer.last_stable_offset(high_watermark=marker + 1) == marker + 1


def test_nested_transaction_does_not_change_last_stable_offset() -> None:
    writer = TransactionalWriter()
    outer = writer.write(1, b"a")
    writer.write(2, b"b")
    inner_marker = writer.end(2, commit=True)
    outer_marker = writer.end(1, commit=True)
    assert writer.last_stable_offset(inner_marker) == outer
    assert writer.last_stable_offset(inner_marker + 1) == outer
    assert writer.last_stable_offset(outer_marker) == outer
    assert writer.last_stable_offset(outer_marker + 1) == outer_marker + 1


def test_number_of_tracked_completed_transactions_is_bounded() -> None:
    transactions = PartitionTransactions()
    for offset in range(0, 6 * UNREPLICATED_MAX, 2):
        transactions.record_batch(1, offset)
        transactions.record_marker(1, offset + 1, committed=True)
    assert len(transactions.to_snapshot().ended) == UNREPLICATED_MAX
    end = 6 * UNREPLICATED_MAX
    assert transactions.first_unstable_offset(1) == 0  # undecided transactions are never considered decided
    assert transactions.first_unstable_offset(end - 100) == end - 100
    assert transactions.first_unstable_offset(end) is None
    assert not transactions.has_undecided_transactions


def test_fetch_returns_aborted_transactions_of_its_range() -> None:
    writer = TransactionalWriter()
    for producer in (1, 2, 3):
        writer.write(producer, b"x", b"y")  # 0-1, 2-3, 4-5
    writer.end(2, commit=False)  # 6
    writer.end(1, commit=True)  # 7
    writer.write(2, b"z")  # 8
    writer.end(3, commit=False)  # 9
    writer.end(2, commit=False)  # 10
    assert writer.aborted() == [(2, 2), (3, 4), (2, 8)]
    assert writer.aborted(0, 2) == []
    assert writer.aborted(0, 3) == [(2, 2)]
    assert writer.aborted(7) == [(3, 4), (2, 8)]
    assert writer.aborted(7, 8) == [(3, 4)]
    assert writer.aborted(11) == []


def test_aborted_transactions_are_returned_in_order_of_first_offset() -> None:
    transactions = PartitionTransactions()
    transactions.record_batch(1, 0)  # stays open while the other producer has many transactions
    firsts = range(1, 6001, 2)
    for first in firsts:
        transactions.record_batch(2, first)
        transactions.record_marker(2, first + 1, committed=False)
    transactions.record_marker(1, 6001, committed=False)

    def find_aborted(start: int, end: int) -> list[tuple[int, int]]:
        return [each[:2] for each in transactions.aborted.find_in_range(start, end)]

    assert find_aborted(0, 9000) == [(1, 0), *((2, first) for first in firsts)]
    assert find_aborted(0, 3) == [(1, 0), (2, 1)]
    assert find_aborted(5000, 5002) == [(1, 0), (2, 4999), (2, 5001)]
    assert find_aborted(6001, 6002) == [(1, 0)]
    assert find_aborted(6002, 9000) == []


def test_marker_of_producer_without_batches_changes_nothing() -> None:
    writer = TransactionalWriter()
    writer.end(5, commit=False)
    writer.write(1, b"a")
    writer.end(1, commit=False)
    writer.end(1, commit=False)  # a repeated marker
    assert writer.aborted() == [(1, 1)]
    assert writer.last_stable_offset() == writer.log.log_end_offset


@pytest.mark.parametrize("is_closed", [True, False])
def test_transaction_state_survives_restart(is_closed: bool) -> None:
    writer = TransactionalWriter()
    for number in range(30):  # several segments
        writer.write(1, b"%d" % number)
        writer.end(1, commit=number % 3 == 0)
    left_open = writer.write(2, b"open")
    writer.write(1, b"ended")
    marker = writer.end(1, commit=True)
    writer.end(2, commit=True)
    reopened = writer.write(2, b"open again")
    if not is_closed:
        writer.log.sync()
    writer.restart(closes=is_closed)
    # As the high watermark advances:
    assert [writer.last_stable_offset(at) for at in (marker, marker + 1, marker + 2)] == [
        left_open,
        left_open,
        reopened,
    ]
    assert len(writer.aborted()) == 20


def test_transaction_state_is_rebuilt_without_snapshots() -> None:
    writer = TransactionalWriter()
    for number in range(30):
        writer.write(number % 4, b"%d" % number)
        writer.end(number % 3, commit=number % 5 == 0)
    known = writer.aborted(), writer.last_stable_offset()
    writer.restart_without_snapshots()
    assert (writer.aborted(), writer.last_stable_offset()) == known
    assert known[0]


def test_truncating_marker_reopens_its_transaction() -> None:
    writer = TransactionalWriter()
    first = writer.write(1, b"a")
    marker = writer.end(1, commit=False)
    writer.log.sync()
    writer.log.truncate_to(marker)
    assert (writer.last_stable_offset(), writer.aborted()) == (first, [])
    writer.end(1, commit=False)
    assert writer.aborted() == [(1, first)]


def test_truncation_restores_state_from_older_snapshot() -> None:
    """Truncation to any point of a log with several segments gives the state of a log that never had more."""
    steps = 40

    def written(count: int) -> TransactionalWriter:
        writer = TransactionalWriter()
        for number in range(count):
            if number % 3 < 2:
                writer.write(number % 4, b"%d" % number)
            else:
                writer.end(number % 4, commit=number % 2 == 0)
        writer.log.sync()
        return writer

    full = written(steps)
    assert full.log.segment_count > 3
    for count in range(steps - 1, 0, -1):
        full.log.truncate_to(count)
        less = written(count)
        assert (full.last_stable_offset(), full.aborted()) == (less.last_stable_offset(), less.aborted())
        assert full.log.producers.transactions.open == less.log.producers.transactions.open


@pytest.mark.parametrize("seed", range(10))
def test_snapshot_beyond_truncation_is_deleted_durably(seed: int) -> None:
    """After a power failure, when the log has grown to the same offset again with other batches."""
    writer = TransactionalWriter(replace(SMALL, segment_bytes=10_000))
    writer.write(1, b"stays")
    writer.world.sync()
    writer.write(2, b"cut off", b"cut off")
    writer.log.roll()  # with a snapshot
    writer.world.sync()
    writer.log.truncate_to(1)
    first = writer.write(3, b"another", b"another", b"another")
    writer.world.sync()
    writer.world = writer.world.reopen(writer.world.simulated_files.crash(seed))
    assert writer.log.log_end_offset == first + 3
    assert writer.log.producers.transactions.open == {1: 0, 3: first}


def test_aborted_transactions_below_log_start_are_removed() -> None:
    writer = TransactionalWriter()
    writer.write(1, b"a")
    marker = writer.end(1, commit=False)
    second = writer.write(1, b"b")
    writer.end(1, commit=False)
    writer.log.delete_records_before(marker + 1)
    assert writer.aborted() == [(1, second)]
    writer.world.complete_syncs()
    writer.restart()
    assert writer.aborted() == [(1, second)]


def test_delete_records_may_delete_start_of_open_transaction() -> None:
    """As in Kafka, the rest of the transaction stays undecided."""
    writer = TransactionalWriter()
    writer.write(1, b"a")
    writer.world.append(batch(b"plain"))
    start = writer.write(1, b"b")
    writer.log.delete_records_before(start)
    assert writer.last_stable_offset() == start
    marker = writer.end(1, commit=False)
    assert writer.last_stable_offset() == marker + 1
    assert committed_values(writer.log, marker + 1) == []


def test_transaction_state_survives_deletion_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are not taken with every segment while there are many aborted transactions."""
    monkeypatch.setattr(producer_snapshots, "LOG_BYTES_PER_ABORTED_BYTE", 1000)
    writer = TransactionalWriter()
    writer.write(1, b"a")
    writer.end(1, commit=False)
    writer.write(9, b"its only one")
    for number in range(40):
        writer.write(1, b"%d" % number)
        writer.end(1, commit=number % 2 == 0)
    assert not [path for path in writer.world.simulated_files.paths() if path.endswith(".snapshot")]
    first = writer.write(2, b"open")
    writer.log.delete_records_before(first - 10)
    writer.world.complete_syncs()
    writer.restart()
    assert writer.log.producers.get(9) is not None
    assert writer.last_stable_offset() == writer.log.log_start_offset  # the open transaction has no records left
    writer.end(9, commit=True)
    assert writer.last_stable_offset() == first


def test_snapshots_become_less_frequent_with_many_aborted_transactions() -> None:
    writer = TransactionalWriter()
    sizes: list[tuple[str, int]] = []
    for number in range(400):
        writer.write(1, b"%d" % number)
        writer.end(1, commit=False)
        files = writer.world.simulated_files
        paths = [path for path in files.paths() if path.endswith(".snapshot")]
        if paths and (not sizes or max(paths) != sizes[-1][0]):
            sizes.append((max(paths), files.size(max(paths))))
    written = sum(size for _, size in sizes)
    assert len(sizes) > 3
    assert written < writer.log.size


def test_producer_with_open_transaction_does_not_expire() -> None:
    writer = TransactionalWriter()
    writer.write(1, b"a")
    writer.write(2, b"b")
    writer.end(2, commit=True)
    states = writer.log.producers
    states.expire(NOW_MS + 100 * DAY_MS, DAY_MS)
    assert states.get(1) is not None
    assert states.get(2) is None


def test_producers_with_open_transactions_are_not_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 10)
    monkeypatch.setattr(producer_state, "EVICTION_SCAN_MAX", 3)
    writer = TransactionalWriter()
    for producer in range(20):
        writer.write(producer, b"open")
    assert len(writer.log.producers) == 20
    for producer in range(100, 160):
        writer.write(producer, b"not", plain=True)
    known = [producer_id for producer_id, _ in writer.log.producers.items()]
    assert set(range(20)) <= set(known)
    assert len(known) < 30
    for producer in range(20):
        writer.end(producer, commit=True)
    for producer in range(200, 230):
        writer.write(producer, b"not", plain=True)
    assert len(writer.log.producers) < 30


def test_follower_has_same_transaction_state_as_leader() -> None:
    writer = TransactionalWriter()
    for number in range(60):
        writer.write(number % 5, b"%d" % number)
        if number == 20:
            for producer in range(5):
                writer.end(producer, commit=producer == 0)
            start = writer.last_stable_offset()
        if number % 4 == 3:
            writer.end(number % 5, commit=number % 8 == 3)
    writer.log.delete_records_before(start)
    follower = replicate_log(writer.log, LogHarness(config=SMALL))
    end = writer.log.log_end_offset
    for high_watermark in range(start, end + 1):
        assert follower.last_stable_offset(high_watermark) == writer.last_stable_offset(high_watermark)
    assert writer.last_stable_offset() < end
    assert committed_values(follower, end) == committed_values(writer.log, end)
    assert [each[:3] for each in follower.producers.transactions.aborted.find_in_range(0, end)] == [
        each[:3] for each in writer.log.producers.transactions.aborted.find_in_range(0, end)
    ]


def test_version_1_snapshot_is_readable() -> None:
    """A snapshot of Chronik 0.2.0: version, offset, producers."""
    data = "11d3fe6493010381079402919503050002cf0000018bcfe56802cf0000018bcfe5680003"
    states = ProducerStateManager.decode(bytes.fromhex(data), offset=3)
    assert states is not None
    producer = states.get(7)
    assert producer is not None
    assert (producer.epoch, producer.batches[-1].last_sequence, producer.coordinator_epoch) == (2, 5, -1)
    assert not states.transactions.has_undecided_transactions


def send(
    writer: TransactionalWriter, producer_id: int, epoch: int, sequence: int, *, transactional: bool = True
) -> int:
    data = batch(b"x", producer_id=producer_id, producer_epoch=epoch, sequence=sequence, transactional=transactional)
    return writer.world.append(data).base_offset


def code_of(writer: TransactionalWriter, epoch: int, sequence: int, *, transactional: bool = True) -> ErrorCode:
    end = writer.log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        send(writer, 1, epoch, sequence, transactional=transactional)
    assert writer.log.log_end_offset == end
    return refused.value.code


def test_reused_sequence_numbers_of_ended_transaction_are_rejected() -> None:
    """Clients with librdkafka send them after an abort, if a batch was appended but not acknowledged."""
    writer = TransactionalWriter()
    for sequence in range(8):
        send(writer, 1, 0, sequence)
    writer.end(1, commit=False)
    reused = [code_of(writer, 0, sequence) for sequence in range(8)]
    assert reused == [ErrorCode.UNKNOWN_PRODUCER_ID] * 8, "Kafka acknowledges duplicates of the last five"
    assert code_of(writer, 0, 9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(writer, 1, 0, 8)
    assert code_of(writer, 0, 7) == ErrorCode.UNKNOWN_PRODUCER_ID
    send(writer, 1, 1, 0)


def test_reused_sequence_numbers_in_other_batches_are_rejected() -> None:
    writer = TransactionalWriter()
    writer.write(1, b"a", b"b", b"c")
    writer.end(1, commit=False)
    assert [code_of(writer, 0, sequence) for sequence in range(3)] == [ErrorCode.UNKNOWN_PRODUCER_ID] * 3


def test_retry_within_open_transaction_is_duplicate() -> None:
    writer = TransactionalWriter()
    send(writer, 1, 0, 0)
    writer.end(1, commit=True)
    offsets = [send(writer, 1, 0, sequence) for sequence in range(1, 9)]
    assert [send(writer, 1, 0, sequence) for sequence in range(4, 9)] == offsets[3:]
    assert send(writer, 1, 0, 2) == -1, "the offset of an older retry is unknown"


def marker_code(writer: TransactionalWriter, epoch: int, coordinator_epoch: int) -> ErrorCode:
    end = writer.log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        end_transaction(writer.log, 1, epoch, True, coordinator_epoch)
    assert writer.log.log_end_offset == end
    return refused.value.code


def test_non_transactional_batch_during_open_transaction_is_rejected() -> None:
    writer = TransactionalWriter()
    send(writer, 1, 0, 0)
    assert code_of(writer, 0, 1, transactional=False) is ErrorCode.INVALID_TXN_STATE
    assert code_of(writer, 1, 0, transactional=False) is ErrorCode.INVALID_TXN_STATE  # also with a new epoch
    writer.world.append(batch(b"of another", producer_id=2, sequence=0))
    end_transaction(writer.log, 1, 0, True)
    send(writer, 1, 0, 1, transactional=False)


def test_retried_transactional_batch_returns_stored_offsets() -> None:
    writer = TransactionalWriter()
    first = send(writer, 1, 0, 0)
    end = writer.log.log_end_offset
    assert send(writer, 1, 0, 0) == first
    assert writer.log.log_end_offset == end


def test_sequence_continues_after_marker_of_same_epoch() -> None:
    writer = TransactionalWriter()
    send(writer, 1, 4, 0)
    send(writer, 1, 4, 1)
    end_transaction(writer.log, 1, 4, True)
    assert code_of(writer, 4, 0 + 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(writer, 1, 4, 2)


@pytest.mark.parametrize("restarts", [False, True])
def test_sequence_restarts_at_zero_after_marker_with_new_epoch(restarts: bool) -> None:
    writer = TransactionalWriter()
    send(writer, 1, 4, 0)
    send(writer, 1, 4, 1)
    end_transaction(writer.log, 1, 5, True)
    if restarts:
        writer.restart_without_snapshots()
    assert code_of(writer, 5, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(writer, 4, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(writer, 4, 0) is ErrorCode.INVALID_PRODUCER_EPOCH  # also a late retry
    send(writer, 1, 5, 0)
    send(writer, 1, 5, 1)


def test_marker_with_older_producer_epoch_is_rejected() -> None:
    writer = TransactionalWriter()
    first = send(writer, 1, 4, 0)
    assert marker_code(writer, 3, 7) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert writer.last_stable_offset() == first
    end_transaction(writer.log, 1, 4, True)


@pytest.mark.parametrize("closes", [False, True])
def test_marker_with_older_coordinator_epoch_is_fenced(closes: bool) -> None:
    writer = TransactionalWriter()
    send(writer, 1, 4, 0)
    end_transaction(writer.log, 1, 4, True, 7)
    first = send(writer, 1, 5, 0)  # the coordinator epoch survives a new producer epoch
    writer.world.sync()
    writer.restart(closes=closes)
    assert marker_code(writer, 5, 6) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert writer.last_stable_offset() == first
    end_transaction(writer.log, 1, 5, True, 7)
    end_transaction(writer.log, 1, 5, True, 8)


def test_marker_of_unknown_producer_is_appended() -> None:
    writer = TransactionalWriter()
    assert end_transaction(writer.log, 1, 0, False, 0) == 0
    producer = writer.log.producers.get(1)
    assert producer is not None
    assert (producer.epoch, producer.coordinator_epoch, producer.batches) == (0, 0, [])
