"""Segment files that retention or compaction takes while they are read: what is gone is told, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chronik.client.cluster import Cluster
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.ids import format_id
from chronik.pipeline.errors import DataLoss
from chronik.pipeline.reading import segments
from chronik.pipeline.reading.options import IsolationLevel, ReadSettings, Transport
from chronik.pipeline.reading.portions import Portion
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.reading.reader import read_range
from chronik.pipeline.reading.segment_files import SegmentFile, segments_of
from chronik.pipeline.reading.segments import aborted_transactions, has_records_from, segment_portions
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from chronik.testing import Broker
from tests.clients.running import wait_for
from tests.pipeline.scripted import ScriptedCluster, batch, holding

RECORDS_PER_SEGMENT = 4
SEGMENT_COUNT = 5
END = RECORDS_PER_SEGMENT * SEGMENT_COUNT


class Partition(ScriptedCluster):
    """t-0 in a folder as Apache Kafka has it, in segments of four records; where the log starts is what a test says."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(holding([], 0))
        self.data_dir = data_dir
        self.folder = data_dir / "t-0"
        self.folder.mkdir()
        for number in range(SEGMENT_COUNT):
            first = number * RECORDS_PER_SEGMENT
            self.path(number).write_bytes(batch(first, first + 1) + batch(first + 2, first + 3))

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        return MetadataResponseTopic(name=name, topic_id=bytes(15) + b"\1", partitions=[partition])

    def path(self, number: int) -> Path:
        return self.folder / f"{number * RECORDS_PER_SEGMENT:020d}.log"

    def delete_before(self, number: int, log_start: int | None = None) -> None:
        self._bounds[-2] = number * RECORDS_PER_SEGMENT if log_start is None else log_start
        for earlier in range(number):
            self.path(earlier).unlink(missing_ok=True)

    def portions(self, *, fail: bool = True, end: int = END) -> Iterator[Portion]:
        settings = ReadSettings(
            "unused",
            fail_on_data_loss=fail,
            isolation=IsolationLevel.READ_COMMITTED,
            transport=Transport.SEGMENTS,
            segment_dirs=(str(self.data_dir),),
        )
        return segment_portions(self, OffsetRange("t", 0, 0, end), settings)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def offsets_in(portions: Iterator[Portion]) -> list[int]:
    """What a decoder sees of them."""
    found: list[int] = []
    for portion in portions:
        for each in portion.batches:
            assert each.header is not None
            found += range(max(portion.start, each.header.base_offset), each.last_offset + 1)
    return found


def at_listing(number: int, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets something happen right after the files were listed for this time, before any of them is opened."""
    listings = 0

    def listing(folder: str) -> list[SegmentFile]:
        nonlocal listings
        found = segments_of(folder)
        listings += 1
        if listings == number:
            happens()
        return found

    monkeypatch.setattr(segments, "segments_of", listing)


@pytest.mark.parametrize("listing", [1, 2])
def test_segment_deleted_between_listing_and_open_raises_data_loss(
    partition: Partition, listing: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first listing is for aborted transactions, the second for the records."""
    at_listing(listing, lambda: partition.delete_before(2), monkeypatch)
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 7 cannot be read: the partition now starts at 8"):
        list(partition.portions())
    assert offsets_in(partition.portions(fail=False)) == list(range(8, END))
    assert "t-0: offsets 0 to 7 cannot be read" in caplog.text


def test_segment_deleted_while_reading_earlier_one_raises_data_loss(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    portions = partition.portions()
    assert next(portions).next_offset == 4, "the first segment"
    partition.delete_before(3)
    with pytest.raises(DataLoss, match=r"t-0: offsets 4 to 11 cannot be read: the partition now starts at 12"):
        list(portions)
    assert not caplog.text


def test_read_continues_at_first_remaining_segment(partition: Partition, caplog: pytest.LogCaptureFixture) -> None:
    portions = partition.portions(fail=False)
    offsets = offsets_in(iter([next(portions)]))
    partition.delete_before(3)
    assert offsets + offsets_in(portions) == [*range(4), *range(12, END)]
    assert "t-0: offsets 4 to 11 cannot be read: the partition now starts at 12" in caplog.text


def test_open_segment_is_read_to_its_end_after_deletion(partition: Partition) -> None:
    portions = partition.portions(end=4)
    partition.delete_before(0)
    offsets = offsets_in(iter([next(portions)]))
    partition.delete_before(1)
    assert offsets + offsets_in(portions) == list(range(4)), "all of the range was there"


def test_records_before_log_start_offset_are_not_read(partition: Partition, caplog: pytest.LogCaptureFixture) -> None:
    """Records may be deleted up to the middle of a segment."""
    portions = partition.portions(fail=False)
    offsets = offsets_in(iter([next(portions)]))
    partition.delete_before(2, log_start=11)
    assert offsets + offsets_in(portions) == [*range(4), *range(11, END)]
    assert "t-0: offsets 4 to 10 cannot be read: the partition now starts at 11" in caplog.text


def test_data_loss_names_directory_that_starts_after_log_start(partition: Partition) -> None:
    """A follower in sync may delete earlier than its leader, and a copy of a folder be younger than the range."""
    partition.delete_before(2, log_start=0)
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 7 cannot be read: \S+t-0 now starts at 8"):
        list(partition.portions())
    assert offsets_in(partition.portions(fail=False)) == list(range(8, END))


@pytest.mark.parametrize("end", [9, 12, END])
def test_data_loss_covers_whole_deleted_range(partition: Partition, end: int) -> None:
    portions = partition.portions(end=end)
    next(portions)
    partition.delete_before(SEGMENT_COUNT)
    partition.path(SEGMENT_COUNT).write_bytes(bytes(100))
    with pytest.raises(DataLoss, match=rf"t-0: offsets 4 to {end - 1} cannot be read: the partition now starts at 20"):
        list(portions)


def test_segments_deleted_during_end_check_raise_data_loss(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition.path(3).unlink()
    partition.path(4).unlink()

    def too_late(folder: Path, offset: int) -> bool:
        partition.delete_before(SEGMENT_COUNT)
        partition.path(SEGMENT_COUNT).write_bytes(bytes(100))
        return has_records_from(folder, offset)

    monkeypatch.setattr(segments, "has_records_from", too_late)
    with pytest.raises(DataLoss, match=r"t-0: offsets 12 to 19 cannot be read: the partition now starts at 20"):
        list(partition.portions())


def test_deleted_partition_directory_raises_data_loss(partition: Partition) -> None:
    portions = partition.portions()
    next(portions)
    for path in partition.folder.iterdir():
        path.unlink()
    partition.folder.rmdir()
    with pytest.raises(DataLoss, match=r"t-0: offsets 4 to 19 cannot be read: \S+t-0 ends there"):
        list(portions)


@pytest.mark.parametrize("step", ["the swap is there", "the old files are gone", "it has its final name"])
def test_compaction_swap_during_read_loses_no_records(partition: Partition, step: str) -> None:
    portions = partition.portions()
    offsets = offsets_in(iter([next(portions)]))
    # Of segments 1 to 3, offset 9 alone is left; an empty end of one is what Apache Kafka leaves.
    swap = partition.folder / f"{4:020d}-{16:020d}.swap"
    swap.write_bytes(batch(9))
    if step != "the swap is there":
        for number in (1, 2, 3):
            partition.path(number).unlink()
    if step == "it has its final name":
        swap.rename(partition.path(1))
    found = offsets + offsets_in(portions)
    # The files that were listed may be read as they were, as long as they are there.
    assert found == (list(range(END)) if step == "the swap is there" else [0, 1, 2, 3, 9, 16, 17, 18, 19])


def test_file_renamed_during_listing_is_found(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that was begun before a renaming may have the file under neither name."""
    names = sorted(os.listdir(partition.folder))
    lists = iter([names[:2] + names[3:], names, names])
    monkeypatch.setattr(os, "listdir", lambda folder: next(lists))
    assert [file.base_offset for file in segments_of(str(partition.folder))] == [0, 4, 8, 12, 16]


def test_aborted_transactions_are_searched_from_first_remaining_segment(partition: Partition) -> None:
    """Who only wants to know which were aborted has lost nothing."""
    partition.delete_before(2)
    assert aborted_transactions(partition.folder, 0, END) == ()


# A real broker


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[Cluster]:
    with chronik_broker.cluster() as cluster:
        yield cluster


def delete_records(cluster: Cluster, topic: str, before: int) -> None:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=before)])
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000)
    response = cluster.any_broker().request(request, DeleteRecordsResponse)
    assert [each.error_code for found in response.topics for each in found.partitions] == [0]


@pytest.mark.chronik_topic(configs={"segment.bytes": str(1024 * 1024)})
@pytest.mark.parametrize("fail", [True, False])
def test_records_deleted_during_segment_read_are_reported(
    chronik_broker: Broker,
    cluster: Cluster,
    chronik_topic: str,
    fail: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(segments, "PORTION_BYTES", 100_000)
    for _ in range(50):
        Producer(cluster).send(chronik_topic, [OutgoingRecord(bytes(1000)) for _ in range(100)])
    settings = ReadSettings(
        chronik_broker.bootstrap,
        fail_on_data_loss=fail,
        columns=("offset",),
        transport=Transport.SEGMENTS,
        segment_dirs=(str(chronik_broker.data_dir),),
    )
    rows = read_range(OffsetRange(chronik_topic, 0, 0, 5000), settings)
    offsets = next(rows)["offset"].to_pylist()
    folder = chronik_broker.data_dir / "topics" / format_id(cluster.topic(chronik_topic).topic_id) / "0"
    assert len(segments_of(str(folder))) > 3
    delete_records(cluster, chronik_topic, 4500)
    wait_for("files to go", lambda: segments_of(str(folder))[0].base_offset > 3000)
    if fail:
        with pytest.raises(DataLoss, match=rf"{chronik_topic}-0: offsets \d+ to 4499 cannot be read"):
            list(rows)
        return
    for found in rows:
        offsets += found["offset"].to_pylist()
    (hole,) = [(low, high) for low, high in pairwise(offsets) if high != low + 1]
    assert hole[1] == 4500
    assert f"{chronik_topic}-0: offsets {hole[0] + 1} to 4499 cannot be read" in caplog.text
