"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch."""

from __future__ import annotations

import threading

import pytest

from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from chronik.protocol.messages.produce import ProduceResponse
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from tests.api import request_builders
from tests.raw import RawClient

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def delete_records(client: RawClient, topic: str, offset: int) -> DeleteRecordsPartitionResult:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000)
    return client.request(request, 2, DeleteRecordsResponse).topics[0].partitions[0]


def epoch_end(client: RawClient, topic: str, epoch: int, current: int = -1) -> EpochEndOffset:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])])
    return client.request(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0]


@pytest.fixture
def topic(client: RawClient, chronik_topic: str) -> str:
    """Return a topic with offsets 0 to 3 at timestamps 1000, 3000, 2000 and 2000; offset 0 is deleted."""
    for time_ms in (1000, 3000, 2000, 2000):
        request_builders.produce(client, chronik_topic, request_builders.batch(b"v", timestamp=time_ms))
    assert delete_records(client, chronik_topic, 1).low_watermark == 1
    return chronik_topic


@pytest.mark.parametrize(
    ("requested", "version", "offset", "timestamp"),
    [
        (LATEST, 1, 4, -1),
        (EARLIEST, 1, 1, -1),
        (MAX_TIMESTAMP, 7, 1, 3000),
        (EARLIEST_LOCAL, 8, 1, -1),
        (LATEST_TIERED, 9, -1, -1),
        (0, 1, 1, 3000),
        (1000, 5, 1, 3000),
        (3000, 11, 1, 3000),
        (3001, 11, -1, -1),
    ],
)
def test_list_offsets_returns_offset_for_timestamp_or_special_value(
    client: RawClient, topic: str, requested: int, version: int, offset: int, timestamp: int
) -> None:
    answer = request_builders.list_offset(client, topic, requested, version)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, offset, timestamp)


@pytest.mark.parametrize(
    ("requested", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-7, 11)]
)
def test_special_timestamp_in_old_version_is_unsupported(
    client: RawClient, topic: str, requested: int, version: int
) -> None:
    assert request_builders.list_offset(client, topic, requested, version).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("requested", "count", "offsets"), [(LATEST, 1, [4]), (LATEST, 9, [4, 1]), (EARLIEST, 9, [1]), (LATEST, 0, [])]
)
def test_version_0_returns_offsets_in_descending_order(
    client: RawClient, topic: str, requested: int, count: int, offsets: list[int]
) -> None:
    assert legacy_offsets(client, topic, requested, count) == offsets


def test_version_0_returns_single_offset_of_empty_topic(client: RawClient, chronik_topic: str) -> None:
    assert legacy_offsets(client, chronik_topic, LATEST, 9) == [0]


def legacy_offsets(client: RawClient, topic: str, requested: int, count: int) -> list[int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=requested, max_num_offsets=count)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return client.request(request, 0, ListOffsetsResponse).topics[0].partitions[0].old_style_offsets


def test_list_offsets_ignores_replica_id(client: RawClient, topic: str) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=0, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = client.request(request, 7, ListOffsetsResponse).topics[0].partitions[0]
    assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 1)


@pytest.mark.chronik_topic(partitions=4)
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_list_offsets_finds_timestamps_in_compressed_batches(
    client: RawClient, chronik_topic: str, codec: Codec
) -> None:
    """The batches exceed what one request may decompress on the event loop."""
    sent = encode_batch([Record(n, 1_000 + n, b"k", bytes(4_500)) for n in range(200)], codec=codec)
    for index in range(4):
        assert request_builders.produce(client, chronik_topic, sent, partition=index).error_code == ErrorCode.NONE
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=1_199) for index in range(4)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=chronik_topic, partitions=wanted)])
    answers = client.request(request, 7, ListOffsetsResponse).topics[0].partitions
    assert [(each.error_code, each.offset, each.timestamp) for each in answers] == [(ErrorCode.NONE, 199, 1_199)] * 4


def test_list_offsets_of_unknown_topic_returns_error(client: RawClient) -> None:
    assert request_builders.list_offset(client, "no-such", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# DeleteRecords


def test_delete_records_is_limited_by_high_watermark(client: RawClient, topic: str) -> None:
    assert delete_records(client, topic, 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(client, topic, -2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(client, topic, 0).low_watermark == 1  # already deleted
    assert delete_records(client, topic, -1).low_watermark == 4
    assert request_builders.fetch(client, topic, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert request_builders.produce(client, topic, request_builders.batch(b"v")).base_offset == 4


@pytest.mark.chronik_topic(configs={"cleanup.policy": "compact"})
def test_delete_records_rejects_compacted_topic(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"v"))
    assert delete_records(client, chronik_topic, 1).error_code == ErrorCode.POLICY_VIOLATION


# OffsetForLeaderEpoch


def test_current_epoch_ends_at_log_end(client: RawClient, topic: str) -> None:
    current = request_builders.describe_topic(client, topic).partitions[0].leader_epoch
    newest = epoch_end(client, topic, current, current)
    assert (newest.error_code, newest.leader_epoch, newest.end_offset) == (ErrorCode.NONE, current, 4)
    unknown = epoch_end(client, topic, current + 1)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (ErrorCode.NONE, -1, -1)
    assert epoch_end(client, topic, 0, current + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_delete_records_succeeds_under_continuous_writes(
    chronik_broker: Broker, client: RawClient, chronik_topic: str
) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"v"))
    stop = threading.Event()

    def write() -> None:
        with RawClient(chronik_broker.bootstrap) as producer:
            request = request_builders.produce_request(chronik_topic, request_builders.batch(b"v" * 100_000))
            in_flight = 0
            while not stop.is_set() or in_flight:
                if not stop.is_set():
                    producer.send(request, 9)
                    in_flight += 1
                if in_flight == 10 or stop.is_set():
                    producer.receive(request, 9, ProduceResponse)
                    in_flight -= 1

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        client.socket.settimeout(20)
        for _ in range(10):
            end = request_builders.list_offset(client, chronik_topic, LATEST).offset
            assert delete_records(client, chronik_topic, end).low_watermark == end
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)


def test_delete_records_without_followers_ignores_zero_timeout(client: RawClient, chronik_topic: str) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"0", b"1", b"2"))
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsTopic(name=chronik_topic, partitions=[partition])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=0)
    answer = client.request(request, 2, DeleteRecordsResponse).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 2)
