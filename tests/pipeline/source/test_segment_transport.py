"""Tests of the segment transport while retention or compaction deletes files: lost records are reported exactly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.ids import format_id
from chronik.pipeline.errors import DataLossError
from chronik.pipeline.source import segment_transport
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import IsolationLevel, ReadSettings, Transport
from chronik.pipeline.source.range_reader import read_range
from chronik.pipeline.source.record_chunk import RecordChunk
from chronik.pipeline.source.segment_transport import (
    SegmentFile,
    find_aborted_transactions,
    has_records_at_or_after,
    list_segment_files,
    read_segment_chunks,
)
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from chronik.testing import Broker
from tests.clients.client_process import wait_for
from tests.pipeline.scripted_cluster import ScriptedCluster, build_batch, serve_batches

RECORDS_PER_SEGMENT = 4
SEGMENT_COUNT = 5
END = RECORDS_PER_SEGMENT * SEGMENT_COUNT


class SegmentDirectory(ScriptedCluster):
    """t-0 in a directory as Apache Kafka has it, in segments of four records; tests set the log start offset."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(serve_batches([], 0))
        self.data_dir = data_dir
        self.directory = data_dir / "t-0"
        self.directory.mkdir()
        for number in range(SEGMENT_COUNT):
            first = number * RECORDS_PER_SEGMENT
            self.path(number).write_bytes(build_batch(first, first + 1) + build_batch(first + 2, first + 3))

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        return MetadataResponseTopic(name=name, topic_id=bytes(15) + b"\1", partitions=[partition])

    def path(self, number: int) -> Path:
        return self.directory / f"{number * RECORDS_PER_SEGMENT:020d}.log"

    def delete_before(self, number: int, log_start: int | None = None) -> None:
        self._bounds[-2] = number * RECORDS_PER_SEGMENT if log_start is None else log_start
        for earlier in range(number):
            self.path(earlier).unlink(missing_ok=True)

    def chunks(self, *, fail: bool = True, end: int = END) -> Iterator[RecordChunk]:
        settings = ReadSettings(
            "unused",
            fail_on_data_loss=fail,
            isolation=IsolationLevel.READ_COMMITTED,
            transport=Transport.SEGMENTS,
            segment_dirs=(str(self.data_dir),),
        )
        return read_segment_chunks(self, OffsetRange("t", 0, 0, end), settings)


@pytest.fixture
def segment_directory(tmp_path: Path) -> SegmentDirectory:
    return SegmentDirectory(tmp_path)


def visible_offsets(chunks: Iterator[RecordChunk]) -> list[int]:
    """Return the offsets that a decoder sees."""
    found: list[int] = []
    for chunk in chunks:
        for each in chunk.batches:
            assert each.header is not None
            found += range(max(chunk.start, each.header.base_offset), each.last_offset + 1)
    return found


def call_after_listing(number: int, callback: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the callback right after the given listing of the files, before any of them is opened."""
    listings = 0

    def list_then_call(directory: str) -> list[SegmentFile]:
        nonlocal listings
        found = list_segment_files(directory)
        listings += 1
        if listings == number:
            callback()
        return found

    monkeypatch.setattr(segment_transport, "list_segment_files", list_then_call)


@pytest.mark.parametrize("listing_number", [1, 2])
def test_segment_deleted_between_listing_and_open_raises_data_loss(
    segment_directory: SegmentDirectory,
    listing_number: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first listing is for aborted transactions, the second one for the records."""
    call_after_listing(listing_number, lambda: segment_directory.delete_before(2), monkeypatch)
    with pytest.raises(DataLossError, match=r"t-0: offsets 0 to 7 cannot be read: the partition now starts at 8"):
        list(segment_directory.chunks())
    assert visible_offsets(segment_directory.chunks(fail=False)) == list(range(8, END))
    assert "t-0: offsets 0 to 7 cannot be read" in caplog.text


def test_segment_deleted_while_reading_earlier_one_raises_data_loss(
    segment_directory: SegmentDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    chunks = segment_directory.chunks()
    assert next(chunks).next_offset == 4, "expected the first segment"
    segment_directory.delete_before(3)
    with pytest.raises(DataLossError, match=r"t-0: offsets 4 to 11 cannot be read: the partition now starts at 12"):
        list(chunks)
    assert not caplog.text


def test_read_continues_at_first_remaining_segment(
    segment_directory: SegmentDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    chunks = segment_directory.chunks(fail=False)
    offsets = visible_offsets(iter([next(chunks)]))
    segment_directory.delete_before(3)
    assert offsets + visible_offsets(chunks) == [*range(4), *range(12, END)]
    assert "t-0: offsets 4 to 11 cannot be read: the partition now starts at 12" in caplog.text


def test_open_segment_is_read_to_its_end_after_deletion(segment_directory: SegmentDirectory) -> None:
    chunks = segment_directory.chunks(end=4)
    segment_directory.delete_before(0)
    offsets = visible_offsets(iter([next(chunks)]))
    segment_directory.delete_before(1)
    assert offsets + visible_offsets(chunks) == list(range(4)), "the whole range was available"


def test_records_before_log_start_offset_are_not_read(
    segment_directory: SegmentDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Records may be deleted up to the middle of a segment."""
    chunks = segment_directory.chunks(fail=False)
    offsets = visible_offsets(iter([next(chunks)]))
    segment_directory.delete_before(2, log_start=11)
    assert offsets + visible_offsets(chunks) == [*range(4), *range(11, END)]
    assert "t-0: offsets 4 to 10 cannot be read: the partition now starts at 11" in caplog.text


def test_data_loss_names_directory_that_starts_after_log_start(segment_directory: SegmentDirectory) -> None:
    """An in-sync follower may delete segments before its leader, and a copied directory may be newer than the range."""
    segment_directory.delete_before(2, log_start=0)
    with pytest.raises(DataLossError, match=r"t-0: offsets 0 to 7 cannot be read: \S+t-0 now starts at 8"):
        list(segment_directory.chunks())
    assert visible_offsets(segment_directory.chunks(fail=False)) == list(range(8, END))


@pytest.mark.parametrize("end", [9, 12, END])
def test_data_loss_covers_whole_deleted_range(segment_directory: SegmentDirectory, end: int) -> None:
    chunks = segment_directory.chunks(end=end)
    next(chunks)
    segment_directory.delete_before(SEGMENT_COUNT)
    segment_directory.path(SEGMENT_COUNT).write_bytes(bytes(100))
    with pytest.raises(
        DataLossError, match=rf"t-0: offsets 4 to {end - 1} cannot be read: the partition now starts at 20"
    ):
        list(chunks)


def test_segments_deleted_during_end_check_raise_data_loss(
    segment_directory: SegmentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment_directory.path(3).unlink()
    segment_directory.path(4).unlink()

    def delete_then_check(directory: Path, offset: int) -> bool:
        segment_directory.delete_before(SEGMENT_COUNT)
        segment_directory.path(SEGMENT_COUNT).write_bytes(bytes(100))
        return has_records_at_or_after(directory, offset)

    monkeypatch.setattr(segment_transport, "has_records_at_or_after", delete_then_check)
    with pytest.raises(DataLossError, match=r"t-0: offsets 12 to 19 cannot be read: the partition now starts at 20"):
        list(segment_directory.chunks())


def test_deleted_partition_directory_raises_data_loss(segment_directory: SegmentDirectory) -> None:
    chunks = segment_directory.chunks()
    next(chunks)
    for path in segment_directory.directory.iterdir():
        path.unlink()
    segment_directory.directory.rmdir()
    with pytest.raises(DataLossError, match=r"t-0: offsets 4 to 19 cannot be read: \S+t-0 ends there"):
        list(chunks)


@pytest.mark.parametrize("step", ["swap created", "old files deleted", "swap renamed"])
def test_compaction_swap_during_read_loses_no_records(segment_directory: SegmentDirectory, step: str) -> None:
    chunks = segment_directory.chunks()
    offsets = visible_offsets(iter([next(chunks)]))
    # Of segments 1 to 3, only offset 9 remains; Apache Kafka also leaves segments with an empty end.
    swap = segment_directory.directory / f"{4:020d}-{16:020d}.swap"
    swap.write_bytes(build_batch(9))
    if step != "swap created":
        for number in (1, 2, 3):
            segment_directory.path(number).unlink()
    if step == "swap renamed":
        swap.rename(segment_directory.path(1))
    found = offsets + visible_offsets(chunks)
    # Listed files may be read unchanged as long as they exist.
    assert found == (list(range(END)) if step == "swap created" else [0, 1, 2, 3, 9, 16, 17, 18, 19])


def test_file_renamed_during_listing_is_found(
    segment_directory: SegmentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that starts before a rename may contain neither name of the file."""
    names = sorted(os.listdir(segment_directory.directory))
    lists = iter([names[:2] + names[3:], names, names])
    monkeypatch.setattr(os, "listdir", lambda directory: next(lists))
    assert [file.base_offset for file in list_segment_files(str(segment_directory.directory))] == [0, 4, 8, 12, 16]


def test_aborted_transactions_are_searched_from_first_remaining_segment(segment_directory: SegmentDirectory) -> None:
    """The search for aborted transactions does not report data loss."""
    segment_directory.delete_before(2)
    assert find_aborted_transactions(segment_directory.directory, 0, END) == ()


# With a broker


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


def delete_records(cluster: ClusterClient, topic: str, before: int) -> None:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=before)])
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000)
    response = cluster.any_broker().request(request, DeleteRecordsResponse)
    assert [each.error_code for found in response.topics for each in found.partitions] == [0]


@pytest.mark.chronik_topic(configs={"segment.bytes": str(1024 * 1024)})
@pytest.mark.parametrize("fail", [True, False])
def test_records_deleted_during_segment_read_are_reported(
    chronik_broker: Broker,
    cluster: ClusterClient,
    chronik_topic: str,
    fail: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(segment_transport, "CHUNK_BYTES", 100_000)
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
    directory = chronik_broker.data_dir / "topics" / format_id(cluster.topic(chronik_topic).topic_id) / "0"
    assert len(list_segment_files(str(directory))) > 3
    delete_records(cluster, chronik_topic, 4500)
    wait_for("segment files to be deleted", lambda: list_segment_files(str(directory))[0].base_offset > 3000)
    if fail:
        with pytest.raises(DataLossError, match=rf"{chronik_topic}-0: offsets \d+ to 4499 cannot be read"):
            list(rows)
        return
    for found in rows:
        offsets += found["offset"].to_pylist()
    (gap,) = [(low, high) for low, high in pairwise(offsets) if high != low + 1]
    assert gap[1] == 4500
    assert f"{chronik_topic}-0: offsets {gap[0] + 1} to 4499 cannot be read" in caplog.text
