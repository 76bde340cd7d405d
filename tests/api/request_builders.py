"""Helpers that send common requests over a raw connection."""

from __future__ import annotations

from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.records import Record, encode_batch, iter_records
from tests.raw import RawClient

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def batch(*values: bytes, timestamp: int = -1, codec: Codec = Codec.NONE, key: bytes | None = b"k") -> bytes:
    return encode_batch([Record(n, timestamp, key, value) for n, value in enumerate(values)], codec=codec)


def produce_request(
    topic: str | bytes, records: bytes | None, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    data = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)])
    if isinstance(topic, str):
        data.name = topic
    else:
        data.topic_id = topic
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])


def produce(
    client: RawClient, topic: str | bytes, records: bytes | None, version: int = 9, partition: int = 0
) -> PartitionProduceResponse:
    response = client.request(produce_request(topic, records, partition), version, ProduceResponse)
    return response.responses[0].partition_responses[0]


def fetch_request(
    *wanted: tuple[str | bytes, int, int],
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    """Return a fetch request for `wanted`, which are tuples of topic, partition and offset."""
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
    )
    for name, index, offset in wanted:
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        topic = FetchTopic(partitions=[partition])
        if isinstance(name, str):
            topic.topic = name
        else:
            topic.topic_id = name
        request.topics.append(topic)
    return request


def fetch(client: RawClient, topic: str | bytes, offset: int, version: int = 12, partition: int = 0) -> PartitionData:
    response = client.request(fetch_request((topic, partition, offset)), version, FetchResponse)
    return response.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in iter_records(records_of(data))]


def records_of(data: PartitionData) -> bytes:
    assert isinstance(data.records, bytes | memoryview)
    return bytes(data.records)


def list_offset(
    client: RawClient, topic: str, timestamp: int, version: int = 7, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    return client.request(request, version, ListOffsetsResponse).topics[0].partitions[0]


def describe_topic(client: RawClient, topic: str, *, create: bool = False, version: int = 12) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create)
    return client.request(request, version, MetadataResponse).topics[0]


def alter_configs(client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    resource = IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return ErrorCode(client.request(request, 1, IncrementalAlterConfigsResponse).responses[0].error_code)
