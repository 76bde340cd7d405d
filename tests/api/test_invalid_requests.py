"""Invalid input: the client gets a typed error or a closed connection, and the broker keeps running."""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Iterator

import pytest

from chronik.protocol.apis import APIS, KAFKA_APIS
from chronik.protocol.batch import BatchHeader, build_batch, parse_header
from chronik.protocol.codec import decode_response
from chronik.protocol.compression import Codec, compress
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from chronik.protocol.messages.fetch import FetchPartition, FetchReplicaState, FetchRequest, FetchResponse, FetchTopic
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from tests.raw import RawClient

FRAME_BYTES_MAX = 104_857_600


@pytest.fixture
def client(chronik_broker: Broker) -> Iterator[RawClient]:
    with RawClient(chronik_broker.bootstrap) as client:
        yield client


def is_alive(broker: Broker) -> bool:
    with RawClient(broker.bootstrap) as client:
        return bool(client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys)


def produce(client: RawClient, topic: str, records: bytes | None, version: int = 9) -> tuple[ErrorCode, int]:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    response = client.request(request, version, ProduceResponse)
    partition = response.responses[0].partition_responses[0]
    return ErrorCode(partition.error_code), partition.base_offset


def batch(key: bytes | None = b"k", value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    return encode_batch([Record(0, -1, key, value)], codec=codec)


@pytest.mark.parametrize("size", [-1, 0, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_invalid_frame_length_closes_connection(chronik_broker: Broker, client: RawClient, size: int) -> None:
    client.socket.sendall(struct.pack(">i", size))
    assert client.wait_for_close()
    assert is_alive(chronik_broker)


def test_unknown_api_key_closes_connection_with_one_log_line(chronik_broker: Broker, client: RawClient) -> None:
    port = client.socket.getsockname()[1]
    client.send_frame(struct.pack(">hhih", 9999, 0, 7, -1))
    assert client.wait_for_close()
    lines = [line for line in chronik_broker.log.splitlines() if f":{port} closed" in line]
    assert len(lines) == 1
    assert "9999" in lines[0]
    assert is_alive(chronik_broker)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_unsupported_version_response_has_request_correlation_id(client: RawClient, api: object) -> None:
    assert isinstance(api, tuple)
    for version in (api.max_version + 1, 32767):  # type: ignore[attr-defined]
        client.send_frame(struct.pack(">hhih", api.key, version, 4711, -1))  # type: ignore[attr-defined]
        frame = client.read_frame()
        assert frame is not None
        assert struct.unpack_from(">i", frame) == (4711,)


def test_unsupported_api_versions_request_is_answered_in_version_0(client: RawClient) -> None:
    client.send_frame(struct.pack(">hhih", 18, 99, 7, -1))
    frame = client.read_frame()
    assert frame is not None
    correlation_id, response = decode_response(18, 0, memoryview(frame))
    assert isinstance(response, ApiVersionsResponse)
    assert correlation_id == 7
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {key.api_key for key in response.api_keys} == set(KAFKA_APIS)


def test_truncated_request_closes_connection(chronik_broker: Broker, client: RawClient) -> None:
    client.send_frame(struct.pack(">hhih", 3, 9, 1, -1) + b"\x00")
    assert client.wait_for_close()
    assert is_alive(chronik_broker)


def test_array_count_beyond_frame_end_closes_connection(chronik_broker: Broker, client: RawClient) -> None:
    client.send_frame(struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1))
    assert client.wait_for_close()
    assert is_alive(chronik_broker)


def test_millions_of_tagged_fields_close_connection(chronik_broker: Broker, client: RawClient) -> None:
    count = 20_000_000
    varint = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14 & 0x7F | 0x80, count >> 21])
    header = struct.pack(">hhih", 18, 3, 1, -1) + varint
    try:
        client.send_frame(header + b"\x01\x00" * count)
        assert client.wait_for_close()
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert is_alive(chronik_broker)


def test_disconnect_within_a_frame_leaves_broker_running(chronik_broker: Broker) -> None:
    for _ in range(50):
        with RawClient(chronik_broker.bootstrap) as client:
            client.socket.sendall(struct.pack(">i", FRAME_BYTES_MAX) + bytes(100))
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert is_alive(chronik_broker)


# Records


@pytest.mark.parametrize("version", [0, 2, 3, 9, 12])
def test_batch_with_wrong_checksum_is_rejected_as_corrupt(
    chronik_broker: Broker, client: RawClient, chronik_topic: str, version: int
) -> None:
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    code, offset = produce(client, chronik_topic, bytes(damaged), version)
    assert (code, offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert chronik_broker.records(chronik_topic) == []


@pytest.mark.parametrize("cut", [1, 10, 60, 61, 70])
def test_truncated_batch_is_rejected_as_corrupt(
    chronik_broker: Broker, client: RawClient, chronik_topic: str, cut: int
) -> None:
    code, _ = produce(client, chronik_topic, batch(value=b"v" * 20)[:cut])
    assert code is ErrorCode.CORRUPT_MESSAGE
    assert chronik_broker.records(chronik_topic) == []


@pytest.mark.parametrize("records", [None, b""])
def test_produce_without_records_returns_invalid_record(
    client: RawClient, chronik_topic: str, records: bytes | None
) -> None:
    assert produce(client, chronik_topic, records)[0] is ErrorCode.INVALID_RECORD


def test_record_count_that_contradicts_offsets_is_rejected(client: RawClient, chronik_topic: str) -> None:
    good = batch()
    header: BatchHeader = parse_header(good)
    lying = build_batch(header._replace(record_count=2), good[61:])
    assert produce(client, chronik_topic, lying)[0] is ErrorCode.INVALID_RECORD


@pytest.mark.chronik_topic(configs={"max.message.bytes": "1000"})
def test_max_message_bytes_accepts_exact_limit_only(client: RawClient, chronik_topic: str) -> None:
    overhead = len(batch(value=b"v" * 500)) - 500
    assert produce(client, chronik_topic, batch(value=b"v" * (1000 - overhead)))[0] is ErrorCode.NONE
    assert produce(client, chronik_topic, batch(value=b"v" * (1001 - overhead)))[0] is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.chronik_topic(configs={"cleanup.policy": "compact"})
def test_compacted_topic_rejects_records_without_key(
    chronik_broker: Broker, client: RawClient, chronik_topic: str
) -> None:
    assert produce(client, chronik_topic, batch(key=None))[0] is ErrorCode.INVALID_RECORD
    assert produce(client, chronik_topic, batch(key=b""))[0] is ErrorCode.NONE
    assert [record.key for record in chronik_broker.records(chronik_topic)] == [b""]


@pytest.mark.chronik_topic(configs={"cleanup.policy": "compact"})
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompression_bomb_is_rejected_for_compacted_topic(
    chronik_broker: Broker, client: RawClient, chronik_topic: str, codec: Codec
) -> None:
    zeros = bytes(1 << 20)
    if codec is Codec.GZIP:  # concatenated members form one stream
        bomb = gzip.compress(zeros, 9) * 900
    elif codec is Codec.SNAPPY:
        bomb = compress(codec, bytes(1 << 24))
    else:
        bomb = compress(codec, bytes(1 << 28))
    header = parse_header(batch())._replace(attributes=int(codec))
    before = _resident_bytes(chronik_broker.pid)
    code, _ = produce(client, chronik_topic, build_batch(header, bomb[:1_000_000]))
    assert code in {ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD}
    assert _resident_bytes(chronik_broker.pid) - before < 400 << 20
    assert chronik_broker.records(chronik_topic) == []


def _resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_produce_with_invalid_acks_is_rejected(client: RawClient, chronik_topic: str, acks: int) -> None:
    partition = PartitionProduceData(index=0, records=batch())
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=chronik_topic, partition_data=[partition])]
    )
    response = client.request(request, 9, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_failed_produce_with_acks_0_closes_connection(client: RawClient, chronik_topic: str) -> None:
    partition = PartitionProduceData(index=99, records=batch())
    request = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name=chronik_topic, partition_data=[partition])]
    )
    client.send(request, 9)
    assert client.wait_for_close()


# Followers and topics


@pytest.mark.parametrize("version", [0, 11, 14, 15, 17])
def test_fetch_with_replica_id_is_rejected(client: RawClient, chronik_topic: str, version: int) -> None:
    request = FetchRequest(
        max_wait_ms=0,
        topics=[FetchTopic(topic=chronik_topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    if version < 15:
        request.replica_id = 2
    else:
        request.replica_state = FetchReplicaState(replica_id=2, replica_epoch=1)
    response = client.request(request, version, FetchResponse)
    assert response.responses[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_create_topics_rejects_invalid_name(client: RawClient, name: str) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    assert client.request(request, 7, CreateTopicsResponse).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_create_topics_accepts_name_of_249_characters(client: RawClient) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="x" * 249, num_partitions=1, replication_factor=1)])
    assert client.request(request, 7, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("config", "value"),
    [("no.such.config", "1"), ("retention.ms", "soon"), ("cleanup.policy", "burn"), ("segment.ms", None)],
)
def test_create_topics_rejects_invalid_config(client: RawClient, config: str, value: str | None) -> None:
    topic = CreatableTopic(name="never-made", num_partitions=1, replication_factor=1)
    topic.configs = [CreatableTopicConfig(name=config, value=value)]
    response = client.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG
    assert config in (response.topics[0].error_message or "")


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (10_001, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_create_topics_rejects_invalid_partition_count_or_replication_factor(
    client: RawClient, partitions: int, factor: int, code: ErrorCode
) -> None:
    topic = CreatableTopic(name="never-made", num_partitions=partitions, replication_factor=factor)
    response = client.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert response.topics[0].error_code == code
