"""What a partition's log tells of transactions: where the first one is that is not decided, and which were aborted."""

from __future__ import annotations

import pytest

from chronik.log.appends import AppendOrigin
from chronik.log.config import DAY_MS, LogConfig
from chronik.log.producers import Snapshot
from chronik.log.transactions import AbortedTransaction
from chronik.protocol.batch import parse_header
from chronik.protocol.control_records import TransactionMarker, encode_marker_batch

from .world import NOW_MS, World, batch

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
END = 1 << 40


class Writer:
    """Transactional producers of one log."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.world = World(config=config)
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, *values: bytes) -> int:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + len(values)
        data = batch(*values, producer_id=producer_id, producer_epoch=0, sequence=sequence, transactional=True)
        return self.world.append(data).base_offset

    def end(self, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        marker = TransactionMarker(commit, coordinator_epoch=3)
        data = bytearray(encode_marker_batch(marker, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=epoch))
        header = parse_header(data)
        return self.world.log.append(data, [header], 0, origin=AppendOrigin.COORDINATOR).base_offset

    def stable(self, high_watermark: int = END) -> int:
        return self.world.log.last_stable_offset(min(high_watermark, self.world.log.log_end_offset))

    def aborted(self, start: int = 0, end: int = END) -> list[AbortedTransaction]:
        return list(self.world.log.aborted_between(start, end))


def test_the_last_stable_offset_is_where_the_first_open_transaction_began() -> None:
    writer = Writer()
    writer.world.append(batch(b"plain"))
    first = writer.write(1, b"a")
    second = writer.write(2, b"b")
    assert (first, second, writer.stable()) == (1, 2, 1)
    assert writer.stable(high_watermark=1) == 1
    writer.end(1, commit=True)
    assert writer.stable() == second
    end = writer.end(2, commit=False) + 1
    assert writer.stable() == end


def test_a_transaction_is_open_until_its_marker_is_committed() -> None:
    """If the marker is lost with its leader, what the next one tells must not go back."""
    writer = Writer()
    first = writer.write(1, b"a")
    marker = writer.end(1, commit=True)
    assert writer.stable(high_watermark=marker) == first
    assert writer.stable(high_watermark=marker + 1) == marker + 1


def test_the_aborted_are_told_to_whoever_may_meet_them() -> None:
    writer = Writer()
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


def test_a_marker_for_a_producer_that_wrote_nothing_here_changes_nothing() -> None:
    writer = Writer()
    writer.end(5, commit=False)
    writer.write(1, b"a")
    writer.end(1, commit=False)
    writer.end(1, commit=False)  # told twice
    assert writer.aborted() == [(1, 1)]
    assert writer.stable() == writer.world.log.log_end_offset


@pytest.mark.parametrize("is_closed", [True, False])
def test_what_is_known_survives_a_restart(is_closed: bool) -> None:
    writer = Writer()
    for number in range(30):  # over several segments
        writer.write(1, b"%d" % number)
        writer.end(1, commit=number % 3 == 0)
    left_open = writer.write(2, b"open")
    unsafe = writer.write(1, b"ended")
    marker = writer.end(1, commit=True)
    writer.end(2, commit=True)
    reopened = writer.write(2, b"open again")

    def known() -> tuple[object, ...]:
        """As the high watermark rises, which it never takes back."""
        return writer.aborted(), writer.stable(marker), writer.stable(marker + 1), writer.stable()

    if is_closed:
        writer.world.close()
    else:
        writer.world.log.sync()
    writer.world = writer.world.reopened()
    assert known()[1:] == (left_open, left_open, reopened)
    assert len(writer.aborted()) == 20
    assert unsafe < marker


def test_truncation_opens_what_a_cut_off_marker_had_ended() -> None:
    writer = Writer()
    first = writer.write(1, b"a")
    marker = writer.end(1, commit=False)
    writer.world.log.sync()
    writer.world.log.truncate_to(marker)
    assert (writer.stable(), writer.aborted()) == (first, [])
    writer.end(1, commit=False)
    assert writer.aborted() == [(1, first)]


def test_what_was_aborted_before_the_logs_start_is_forgotten() -> None:
    writer = Writer()
    writer.write(1, b"a")
    marker = writer.end(1, commit=False)
    second = writer.write(1, b"b")
    writer.end(1, commit=False)
    writer.world.log.delete_records_before(marker + 1)
    assert writer.aborted() == [(1, second)]


def test_who_has_a_transaction_open_is_remembered_however_long_it_takes() -> None:
    writer = Writer()
    writer.write(1, b"a")
    writer.write(2, b"b")
    writer.end(2, commit=True)
    states = writer.world.log.producers
    states.expire(NOW_MS + 100 * DAY_MS, DAY_MS)
    assert states.get(1) is not None
    assert states.get(2) is None


def test_snapshots_of_before_are_still_read() -> None:
    assert Snapshot.__struct_fields__[:3] == ("version", "offset", "producers")
