"""What a partition is to hold in the cluster: the source's batches, and an end for each transaction that is open."""

from __future__ import annotations

import pytest

from chronik.moving.carrying import Carrier, Wanted
from chronik.moving.source import CannotMove
from chronik.protocol.batch import iter_batches, verify_crc
from chronik.protocol.control_records import TransactionMarker, marker_within
from chronik.protocol.messages.import_records import ImportedPartitionResult
from tests.moving.logs import MemoryLog, batch, joined, marker, stream


def test_batches_stay_as_they_are() -> None:
    batches = [batch(0, 3), batch(3, producer=7), batch(4, 2, producer=8, epoch=4)]
    stretches = list(stream(MemoryLog(batches)))
    assert joined(stretches) == b"".join(batches)
    assert sum(stretch.record_count for stretch in stretches) == 6


def test_a_log_that_starts_within_a_batch_comes_with_all_of_it() -> None:
    stretches = list(stream(MemoryLog([batch(0, 5), batch(5)], start=3)))
    assert stretches[0].first_offset == 0
    assert stretches[-1].end_offset == 6


def test_open_transactions_are_ended_in_the_order_of_their_beginning() -> None:
    log = MemoryLog(
        [
            batch(0, producer=9, in_transaction=True),
            batch(1, producer=8, in_transaction=True),
            batch(2, producer=7, in_transaction=True),
            marker(3, 8, commit=True),
            batch(4, producer=9, in_transaction=True, epoch=6),
        ]
    )
    *_, first, last = stream(log, committed=frozenset({7, 8}))
    assert [(each.first_offset, marker_within(each.data), each.record_count) for each in (first, last)] == [
        (5, TransactionMarker(False, 0), 0),
        (6, TransactionMarker(True, 0), 0),
    ]
    ((_, header),) = iter_batches(first.data)
    assert (header.producer_id, header.partition_leader_epoch, header.max_timestamp) == (9, 6, 1004)
    assert header.is_control
    assert joined(list(stream(log))) == joined(list(stream(log)))


def test_producer_ids_are_moved_with_their_checksums() -> None:
    log = MemoryLog([batch(0, producer=7), batch(1), batch(2, producer=0, in_transaction=True)])
    data = joined(list(stream(log, first_producer_id=5000)))
    found = [(position, header) for position, header in iter_batches(data)]
    assert [header.producer_id for _, header in found] == [5007, -1, 5000, 5000]
    assert all(verify_crc(data, position, header.size) for position, header in found)


def test_an_id_that_was_never_given_out_a_gap_and_damage_are_refused() -> None:
    with pytest.raises(CannotMove, match="producer 100 at offset 1 was never given its id"):
        list(stream(MemoryLog([batch(0), batch(1, producer=100)])))
    with pytest.raises(CannotMove, match="offset 2 stands where 1 is due"):
        list(stream(MemoryLog([batch(0), batch(2)])))
    damaged = bytearray(batch(1))
    damaged[-1] ^= 1
    with pytest.raises(CannotMove, match="the batch at offset 1 is damaged"):
        list(stream(MemoryLog([batch(0), bytes(damaged)])))


# --- what is sent ---


def carrier(log: MemoryLog) -> Carrier:
    return Carrier(Wanted((bytes(16), 0), "orders-0", log, lambda: stream(log)))


def ends(end: int, start: int = 0) -> ImportedPartitionResult:
    return ImportedPartitionResult(log_start_offset=start, log_end_offset=end)


def test_a_partition_is_sent_and_then_asked_for() -> None:
    carried = carrier(MemoryLog([batch(0, 3), batch(3)]))
    portion = carried.portion()
    assert (portion.expected_end, len(portion.records or b"")) == (0, len(batch(0, 3) + batch(3)))
    assert carried.answered(ends(4)) == 4
    assert not carried.is_done
    assert (carried.portion().expected_end, carried.portion().records) == (4, None)
    assert carried.answered(ends(4)) == 0
    assert carried.is_done


def test_it_goes_on_where_the_cluster_ends() -> None:
    carried = carrier(MemoryLog([batch(0, 3), batch(3), batch(4, 2)]))
    carried.answered(ends(3))
    portion = carried.portion()
    assert (portion.expected_end, bytes(portion.records or b"")) == (3, batch(3) + batch(4, 2))
    carried.answered(ends(0))  # another leader, which has less
    assert carried.portion().expected_end == 0
    carried.answered(ends(6))
    carried.answered(ends(3))
    assert carried.portion().expected_end == 3
    assert not carried.is_done


def test_an_empty_log_only_has_to_begin() -> None:
    carried = carrier(MemoryLog([], start=40))
    portion = carried.portion()
    assert (portion.expected_end, portion.log_start_offset, portion.records) == (40, 40, None)
    carried.answered(ends(0, 0))
    assert not carried.is_done
    carried.answered(ends(40, 40))
    assert carried.is_done


def test_what_the_source_cannot_have_written_is_refused() -> None:
    log = MemoryLog([batch(0, 3), batch(3)])
    with pytest.raises(CannotMove, match="within a batch"):
        carrier(log).answered(ends(2))
    with pytest.raises(CannotMove, match="holds offsets 0 to 8 in the cluster, and 0 to 3 in the source"):
        carrier(log).answered(ends(9))
