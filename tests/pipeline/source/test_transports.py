"""Tests of both transports: transactions, offset gaps, data loss, and brokers with slow or partial responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.client.cluster import ClusterClient
from chronik.ids import format_id
from chronik.pipeline.errors import DataLossError, OptionError
from chronik.pipeline.records.batches import AbortedProducerRange, filter_visible_batches
from chronik.pipeline.records.decoder import decode_batches
from chronik.pipeline.source import segment_transport
from chronik.pipeline.source.fetch_transport import fetch_chunks
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import IsolationLevel, ReadSettings, Transport
from chronik.pipeline.source.record_chunk import CHUNK_BYTES
from chronik.pipeline.source.segment_transport import (
    find_aborted_transactions,
    has_records_at_or_after,
    read_segment_chunks,
    read_segments,
)
from chronik.protocol.control_records import TransactionMarker, encode_transaction_marker_batch
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.fetch import PartitionData
from chronik.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.pipeline.scripted_cluster import ScriptedCluster, build_batch, serve_batches

COMMITTED = ReadSettings("unused", isolation=IsolationLevel.READ_COMMITTED)
TOLERANT = ReadSettings("unused", fail_on_data_loss=False)


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    return encode_transaction_marker_batch(
        TransactionMarker(committed, 0), timestamp=1, producer_id=producer_id, producer_epoch=0, base_offset=offset
    )


# Producer 1 commits 0-1 and aborts 5, producer 2 aborts 2 and 6; 4, 8 and 10 are not transactional.
TRANSACTIONS = [
    build_batch(0, 1, producer_id=1, transactional=True),
    build_batch(2, producer_id=2, transactional=True),
    marker(3, 1, committed=True),
    build_batch(4),
    build_batch(5, producer_id=1, transactional=True),
    build_batch(6, producer_id=2, transactional=True),
    marker(7, 2, committed=False),
    build_batch(8),
    marker(9, 1, committed=False),
    build_batch(10),
    build_batch(11, producer_id=2, transactional=True),
    marker(12, 2, committed=True),
]
ABORTED = [AbortedProducerRange(2, 2), AbortedProducerRange(5, 1)]
SEEN_COMMITTED = [0, 1, 4, 8, 10, 11]
SEEN_ALL = [0, 1, 2, 4, 5, 6, 8, 10, 11]


def read_offsets(cluster: ClusterClient, start: int, end: int, settings: ReadSettings) -> list[int]:
    offsets: list[int] = []
    for chunk in fetch_chunks(cluster, OffsetRange("t", 0, start, end), settings):
        visible = filter_visible_batches(chunk.buffer, chunk.batches, chunk.aborted)
        for columns in decode_batches(chunk.buffer, visible, chunk.start, end):
            offsets += columns.offset.to_pylist()
    return offsets


@pytest.mark.parametrize("per_answer", [1, 3, 100])
def test_read_committed_skips_aborted_and_control_records(per_answer: int) -> None:
    def respond(offset: int, _: int) -> PartitionData:
        # A broker lists the aborted transactions that overlap the returned records.
        data = serve_batches(TRANSACTIONS, 13, per_answer=per_answer)(offset, 0)
        ends = {2: 7, 5: 9}
        listed = [each for each in ABORTED if ends[each.first_offset] >= offset]
        return serve_batches(TRANSACTIONS, 13, per_answer=per_answer, aborted=listed)(offset, 0) if listed else data

    assert read_offsets(ScriptedCluster(respond), 0, 13, COMMITTED) == SEEN_COMMITTED


def test_read_uncommitted_skips_control_records_only() -> None:
    assert read_offsets(ScriptedCluster(serve_batches(TRANSACTIONS, 13)), 0, 13, TOLERANT) == SEEN_ALL


def test_fetch_skips_offset_gaps_left_by_compaction() -> None:
    compacted = ScriptedCluster(serve_batches([build_batch(3, 7), build_batch(20), build_batch(41, 45)], 60))
    assert read_offsets(compacted, 0, 43, TOLERANT) == [3, 7, 20, 41]
    assert read_offsets(compacted, 0, 60, ReadSettings("unused")) == [3, 7, 20, 41, 45]


def test_fetch_waits_for_lagging_leader() -> None:
    answers = [serve_batches([], 0), serve_batches([], 5), serve_batches([build_batch(*range(10))], 10)]

    def respond(offset: int, limit: int) -> PartitionData:
        return (answers.pop(0) if len(answers) > 1 else answers[0])(0, limit)

    cluster = ScriptedCluster(respond)
    assert read_offsets(cluster, 0, 10, ReadSettings("unused")) == list(range(10))
    assert cluster.fetched_from[:3] == [0, 0, 0]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_fetch_times_out_if_leader_lacks_records(fail_on_data_loss: bool) -> None:
    settings = ReadSettings("unused", fail_on_data_loss=fail_on_data_loss, poll_timeout_s=0.05)
    with pytest.raises(KafkaError, match=r"t-0: no records of offsets 5 to 9 within 0.05 s"):
        read_offsets(ScriptedCluster(serve_batches([build_batch(*range(5))], 5)), 0, 10, settings)


def test_records_deleted_by_retention_fail_or_are_skipped() -> None:
    cluster = ScriptedCluster(serve_batches([build_batch(4, 5, 6, 7), build_batch(8)], 9, log_start=6), log_start=6)
    with pytest.raises(DataLossError, match=r"t-0: offsets 2 to 5 cannot be read: the partition now starts at 6"):
        read_offsets(cluster, 2, 9, ReadSettings("unused"))
    assert read_offsets(cluster, 2, 9, TOLERANT) == [6, 7, 8]
    assert read_offsets(cluster, 2, 5, TOLERANT) == []


def test_truncated_records_fail_or_are_skipped() -> None:
    cluster = ScriptedCluster(serve_batches([build_batch(*range(4))], 4), log_end=4)
    with pytest.raises(DataLossError, match=r"t-0: offsets 6 to 8 cannot be read: the partition now ends at 4"):
        read_offsets(cluster, 6, 9, ReadSettings("unused"))
    assert read_offsets(cluster, 6, 9, TOLERANT) == []


def test_deleted_partition_raises_data_loss() -> None:
    def deleted(offset: int, _: int) -> PartitionData:
        return PartitionData(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, high_watermark=-1)

    with pytest.raises(DataLossError, match="no longer exists"):
        read_offsets(ScriptedCluster(deleted), 0, 1, ReadSettings("unused"))


def test_other_broker_errors_are_raised_unchanged() -> None:
    def unauthorized(offset: int, _: int) -> PartitionData:
        return PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, high_watermark=-1)

    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        read_offsets(ScriptedCluster(unauthorized), 0, 1, TOLERANT)


def test_fetch_size_grows_for_batch_truncated_by_old_broker() -> None:
    complete = build_batch(0, 1)
    # Pretend that the batch is twice as long as a chunk.
    head = complete[:8] + (2 * CHUNK_BYTES).to_bytes(4, "big") + complete[12:30]

    def respond(offset: int, limit: int) -> PartitionData:
        cut = head.ljust(limit, b"x") if limit < 2 * CHUNK_BYTES else complete
        return PartitionData(high_watermark=2, records=memoryview(cut))

    assert read_offsets(ScriptedCluster(respond), 0, 2, ReadSettings("unused")) == [0, 1]


# Segment files


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create two segments, the second one with preallocated zeros after its last batch."""
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(TRANSACTIONS[:6]))
    (tmp_path / f"{7:020d}.log").write_bytes(b"".join(TRANSACTIONS[6:]) + bytes(5000))
    (tmp_path / f"{0:020d}.index").write_bytes(b"unused")
    return tmp_path


@pytest.mark.parametrize("start", range(14))
@pytest.mark.parametrize("end", [0, 3, 6, 7, 8, 13])
def test_segment_files_return_same_records_as_fetch(directory: Path, start: int, end: int) -> None:
    aborted = find_aborted_transactions(directory, start, end)
    seen: list[int] = []
    committed: list[int] = []
    for chunk in read_segments(directory, start, end):
        for offsets, listed in (
            (seen, ()),
            (committed, [AbortedProducerRange(a.first_offset, a.producer_id) for a in aborted]),
        ):
            for columns in decode_batches(
                chunk.buffer, filter_visible_batches(chunk.buffer, chunk.batches, listed), start, end
            ):
                offsets += columns.offset.to_pylist()
    assert seen == [offset for offset in SEEN_ALL if start <= offset < end]
    assert committed == [offset for offset in SEEN_COMMITTED if start <= offset < end]


def test_corrupt_segment_raises_corrupt_message(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[: len(TRANSACTIONS[0])] + b"\x07" * 500)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        list(read_segments(directory, 0, 7))


@pytest.mark.parametrize("deleted_segments", [(), (0,), (0, 7)])
def test_swap_file_is_read_during_compaction(directory: Path, deleted_segments: tuple[int, ...]) -> None:
    """The old segments may still exist; without the swap file, their records would be skipped silently."""
    (directory / f"{0:020d}-{13:020d}.swap").write_bytes(b"".join(TRANSACTIONS))
    for base in deleted_segments:
        (directory / f"{base:020d}.log").unlink()
    batches = [batch for chunk in read_segments(directory, 0, 13) for batch in chunk.batches]
    assert [batch.size for batch in batches] == [len(each) for each in TRANSACTIONS]


TOPIC_ID = bytes(15) + b"\1"


class ReplicatedCluster(ScriptedCluster):
    """A cluster with a partition that node 1 leads, with node 2 in sync and node 3 out of sync."""

    def __init__(self, leader_id: int = 1) -> None:
        super().__init__(serve_batches([], 0))
        self._leader_id = leader_id

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=self._leader_id, replica_nodes=[1, 2, 3], isr_nodes=[1, 2]
        )
        return MetadataResponseTopic(name=name, topic_id=TOPIC_ID, partitions=[partition])


def create_data_dir(root: Path, node_id: int | None, *batches: bytes) -> str:
    """Create the data directory of a node, or with None of an Apache Kafka broker, which has no node.json."""
    data_dir = root / f"node{node_id}"
    directory = data_dir / "t-0" if node_id is None else data_dir / "topics" / format_id(TOPIC_ID) / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    if node_id is not None:
        (data_dir / "node.json").write_text(f'{{"node_id":{node_id},"directory_id":"{format_id(TOPIC_ID)}"}}')
    return str(data_dir)


def read_last_offsets(data_dirs: list[str], end: int, cluster: ClusterClient | None = None) -> list[int]:
    settings = ReadSettings("unused", transport=Transport.SEGMENTS, segment_dirs=tuple(data_dirs))
    portions = read_segment_chunks(cluster or ReplicatedCluster(), OffsetRange("t", 0, 0, end), settings)
    return [each.last_offset for chunk in portions for each in chunk.batches]


def test_segments_are_read_from_leader_then_in_sync_replica(tmp_path: Path) -> None:
    """An out-of-sync replica may lack records or have uncommitted ones. Here each has batches of another length."""
    out_of_sync = create_data_dir(tmp_path, 3, build_batch(0, 1, 2, 3))
    in_sync = create_data_dir(tmp_path, 2, build_batch(0, 1), build_batch(2, 3))
    leader = create_data_dir(tmp_path, 1, build_batch(0), build_batch(1, 2, 3))
    assert read_last_offsets([out_of_sync, in_sync, leader], 4) == [0, 3]
    assert read_last_offsets([out_of_sync, in_sync], 4) == [1, 3]
    assert read_last_offsets([out_of_sync, in_sync, leader], 4, ReplicatedCluster(leader_id=2)) == [1, 3]
    with pytest.raises(OptionError, match=r"segmentDirs: t-0 is only in .*node3, whose node is not in sync"):
        read_last_offsets([out_of_sync], 4)


def test_directories_without_owner_are_read_in_given_order(tmp_path: Path) -> None:
    kafka = create_data_dir(tmp_path, None, build_batch(0, 1, 2), build_batch(3))
    assert read_last_offsets([str(tmp_path / "nowhere"), kafka], 4) == [2, 3]
    out_of_sync = create_data_dir(tmp_path, 3, build_batch(0, 1, 2, 3))
    assert read_last_offsets([out_of_sync, kafka], 4) == [2, 3]
    (Path(out_of_sync) / "node.json").write_text("cut off")
    assert read_last_offsets([out_of_sync, kafka], 4) == [3]


def test_range_ending_in_compaction_gap_is_not_data_loss(tmp_path: Path) -> None:
    data_dir = create_data_dir(tmp_path, 1, build_batch(0, 1), build_batch(50), build_batch(120))
    assert read_last_offsets([data_dir], 100) == [1, 50]
    assert read_last_offsets([data_dir], 121) == [1, 50, 120]
    with pytest.raises(DataLossError, match=r"t-0: offsets 121 to 129 cannot be read: .* ends there"):
        read_last_offsets([data_dir], 130)
    (Path(data_dir) / "topics" / format_id(TOPIC_ID) / "0" / f"{130:020d}.log").write_bytes(bytes(100))
    assert read_last_offsets([data_dir], 130) == [1, 50, 120], (
        "a segment that starts there shows that the log continues"
    )


def test_records_appended_during_end_check_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = create_data_dir(tmp_path, 1, build_batch(0, 1))
    log = Path(data_dir) / "topics" / format_id(TOPIC_ID) / "0" / f"{0:020d}.log"

    def append_then_check(directory: Path, offset: int) -> bool:
        log.write_bytes(log.read_bytes() + build_batch(2, 3) + build_batch(4))
        return has_records_at_or_after(directory, offset)

    monkeypatch.setattr(segment_transport, "has_records_at_or_after", append_then_check)
    assert read_last_offsets([data_dir], 4) == [1, 3]
