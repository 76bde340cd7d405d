"""Default limits of `chronik.limits`: the maximum is accepted, one more is rejected."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from chronik import limits
from chronik.api.fetch import compute_fetch_wait_seconds
from chronik.broker.requests.fetch_sessions import FetchSessionCache, SessionPartition
from chronik.files import DiskFileSystem, FileCache
from chronik.principals import ANONYMOUS
from chronik.protocol.codec import RequestHeader, decode_response, encode_request
from chronik.protocol.compression import Codec, compress, decompress
from chronik.protocol.errors import ErrorCode, RecordsTooLarge
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
)
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.server.connection import ListenerLimits
from chronik.testing import Broker
from tests.raw import RawClient


def test_listener_limits_default_to_global_limits() -> None:
    """Their effects are tested in tests/server."""
    default = ListenerLimits()
    assert default.frame_bytes == limits.FRAME_BYTES_MAX
    assert default.frames_bytes == limits.FRAMES_BYTES_MAX
    assert default.frame_receive_seconds == limits.FRAME_RECEIVE_SECONDS_MAX
    assert default.connections == limits.CONNECTIONS_MAX
    assert default.idle_seconds == limits.CONNECTION_IDLE_SECONDS_MAX
    assert default.responses_bytes == limits.RESPONSES_BYTES_MAX
    assert default.response_stalled_seconds == limits.RESPONSE_STALLED_SECONDS_MAX
    assert default.unauthenticated_frame_bytes == limits.UNAUTHENTICATED_FRAME_BYTES_MAX
    assert default.authentication_seconds == limits.AUTHENTICATION_SECONDS_MAX


def produce_frame_with_size(size: int, topic: str) -> bytes:
    """Return a produce request whose frame has exactly `size` bytes after the size prefix."""

    def frame(records: bytes) -> bytes:
        partition = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
        )
        return encode_request(RequestHeader(0, 3, 1, None), request)

    return frame(bytes(size - (len(frame(b"")) - 4)))


def test_request_of_maximum_size_is_answered_and_larger_one_disconnects(
    chronik_broker: Broker, chronik_topic: str
) -> None:
    largest = produce_frame_with_size(limits.FRAME_BYTES_MAX, chronik_topic)
    assert len(largest) == limits.FRAME_BYTES_MAX + 4
    with RawClient(chronik_broker.bootstrap) as client:
        client.socket.sendall(largest)
        answer = client.read_frame()
        assert answer is not None
        _, response = decode_response(0, 3, memoryview(answer))
        assert isinstance(response, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code != ErrorCode.NONE
    with RawClient(chronik_broker.bootstrap) as client:
        client.socket.sendall(struct.pack(">i", limits.FRAME_BYTES_MAX + 1))
        assert client.wait_for_close()


def test_fetch_sessions_are_limited() -> None:
    sessions = FetchSessionCache()
    wanted = [SessionPartition("topic", 0, 0, 1)]
    for _ in range(limits.FETCH_SESSIONS_MAX):
        assert sessions.create(wanted, now=0, uses_topic_ids=False, owner=("h", ANONYMOUS)) is not None
    assert sessions.create(wanted, now=0, uses_topic_ids=False, owner=("h", ANONYMOUS)) is None


def test_partitions_in_fetch_sessions_are_limited() -> None:
    wanted = [SessionPartition("topic", index, 0, 1) for index in range(limits.FETCH_SESSION_PARTITIONS_MAX + 1)]
    assert FetchSessionCache().create(wanted[:-1], now=0, uses_topic_ids=False, owner=("h", ANONYMOUS)) is not None
    assert FetchSessionCache().create(wanted, now=0, uses_topic_ids=False, owner=("h", ANONYMOUS)) is None


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompressed_batch_size_is_limited(codec: Codec) -> None:
    largest = bytes(limits.DECOMPRESSED_BYTES_MAX)
    assert len(decompress(codec, compress(codec, largest))) == limits.DECOMPRESSED_BYTES_MAX
    with pytest.raises(RecordsTooLarge):
        decompress(codec, compress(codec, largest + b"\0"))


@pytest.mark.parametrize(
    ("partitions", "code"),
    [
        (limits.TOPIC_PARTITIONS_MAX, ErrorCode.NONE),
        (limits.TOPIC_PARTITIONS_MAX + 1, ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_partitions_of_one_topic_are_limited(chronik_broker: Broker, partitions: int, code: ErrorCode) -> None:
    wanted = CreatableTopic(name="large", num_partitions=partitions, replication_factor=1)
    with RawClient(chronik_broker.bootstrap) as client:
        response = client.request(CreateTopicsRequest(topics=[wanted], validate_only=True), 7, CreateTopicsResponse)
    assert response.topics[0].error_code == code


def test_partitions_created_by_one_request_are_limited(chronik_broker: Broker) -> None:
    half = limits.PARTITIONS_PER_REQUEST_MAX // 2
    wanted = [CreatableTopic(name=name, num_partitions=half, replication_factor=1) for name in ("one", "two")]
    wanted.append(CreatableTopic(name="three", num_partitions=1, replication_factor=1))
    with RawClient(chronik_broker.bootstrap) as client:
        response = client.request(CreateTopicsRequest(topics=wanted, validate_only=True), 7, CreateTopicsResponse)
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {"one": 0, "two": 0, "three": ErrorCode.POLICY_VIOLATION}


@pytest.mark.chronik_topic(partitions=limits.PARTITIONS_PER_PAGE_MAX + 1)
def test_partitions_per_describe_topic_partitions_page_are_limited(chronik_broker: Broker, chronik_topic: str) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name=chronik_topic)],
        response_partition_limit=limits.PARTITIONS_PER_PAGE_MAX + 1,
    )
    with RawClient(chronik_broker.bootstrap) as client:
        first = client.request(request, 0, DescribeTopicPartitionsResponse)
        assert len(first.topics[0].partitions) == limits.PARTITIONS_PER_PAGE_MAX
        request.cursor = first.next_cursor
        second = client.request(request, 0, DescribeTopicPartitionsResponse)
        assert [partition.partition_index for partition in second.topics[0].partitions] == [
            limits.PARTITIONS_PER_PAGE_MAX
        ]
        assert second.next_cursor is None


def test_open_segment_files_are_limited(tmp_path: Path) -> None:
    cache = FileCache(DiskFileSystem(tmp_path), limits.OPEN_FILES_MAX)
    for number in range(limits.OPEN_FILES_MAX + 50):
        cache.create(f"file-{number}")
        assert len(cache) <= limits.OPEN_FILES_MAX
    assert len(cache) == limits.OPEN_FILES_MAX
    cache.close()


def test_fetch_wait_time_is_limited() -> None:
    longest_ms = int(limits.FETCH_WAIT_SECONDS_MAX * 1000)
    assert compute_fetch_wait_seconds(longest_ms) == limits.FETCH_WAIT_SECONDS_MAX
    assert compute_fetch_wait_seconds(longest_ms + 1) == limits.FETCH_WAIT_SECONDS_MAX
    assert compute_fetch_wait_seconds(500) == 0.5
