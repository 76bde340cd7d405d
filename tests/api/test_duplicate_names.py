"""Duplicate names in a request are merged into one result."""

from __future__ import annotations

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from chronik.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from chronik.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from chronik.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.api.request_builders import BROKER, TOPIC, batch, describe_topic, produce, values
from tests.raw import RawClient

TIMES = 50


def test_metadata_merges_duplicate_topics(client: RawClient, chronik_topic: str) -> None:
    by_name = [MetadataRequestTopic(name=chronik_topic), MetadataRequestTopic(name="nowhere")] * TIMES
    response = client.request(MetadataRequest(topics=by_name, allow_auto_topic_creation=False), 12, MetadataResponse)
    assert [topic.name for topic in response.topics] == [chronik_topic, "nowhere"]


def test_metadata_merges_duplicate_topic_ids(client: RawClient, chronik_topic: str) -> None:
    topic_id = describe_topic(client, chronik_topic).topic_id
    wanted = [MetadataRequestTopic(name=f"name-{number}", topic_id=topic_id) for number in range(TIMES)]
    response = client.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, MetadataResponse)
    assert [topic.name for topic in response.topics] == [chronik_topic]


def test_describe_configs_merges_keys_of_duplicate_resources(client: RawClient, chronik_topic: str) -> None:
    def described(*keys: list[str] | None) -> list[list[str]]:
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=chronik_topic, configuration_keys=each)
            for each in keys
        ]
        response = client.request(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
        return [[config.name for config in result.configs] for result in response.results]

    assert described(*[["retention.ms"], ["retention.bytes"]] * TIMES) == [["retention.bytes", "retention.ms"]]
    assert len(described(*[["retention.ms"], None] * TIMES)[0]) > 20


def test_describe_configs_merges_duplicate_brokers(client: RawClient) -> None:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    response = client.request(DescribeConfigsRequest(resources=[resource] * TIMES), 4, DescribeConfigsResponse)
    assert len(response.results) == 1


def test_describe_configs_rejects_overlong_broker_id(client: RawClient) -> None:
    resources = [
        DescribeConfigsResource(resource_type=BROKER, resource_name="1".zfill(digits), configuration_keys=["node.id"])
        for digits in (10, 11, 5_000)
    ]
    response = client.request(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
    codes = [result.error_code for result in response.results]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


def commit(client: RawClient, group: str, topic: str, *offsets: int) -> list[int]:
    partitions = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        for offset in offsets
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])
    response = client.request(request, 8, OffsetCommitResponse)
    return [partition.error_code for partition in response.topics[0].partitions]


def test_offset_fetch_merges_duplicate_groups_and_partitions(client: RawClient, chronik_topic: str) -> None:
    assert set(commit(client, chronik_topic, chronik_topic, 7)) == {ErrorCode.NONE}
    topic = OffsetFetchRequestTopic(name=chronik_topic, partition_indexes=[0] * TIMES)
    for topics in (None, [topic] * TIMES):
        groups = [OffsetFetchRequestGroup(group_id=chronik_topic, topics=topics)] * TIMES
        response = client.request(OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse)
        assert [group.group_id for group in response.groups] == [chronik_topic]
        assert [topic.name for topic in response.groups[0].topics] == [chronik_topic]
        assert [part.committed_offset for part in response.groups[0].topics[0].partitions] == [7]


def test_offset_commit_uses_last_of_duplicate_partitions(client: RawClient, chronik_topic: str) -> None:
    assert set(commit(client, chronik_topic, chronik_topic, *range(TIMES))) == {ErrorCode.NONE}
    groups = [OffsetFetchRequestGroup(group_id=chronik_topic, topics=None)]
    response = client.request(OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse)
    assert response.groups[0].topics[0].partitions[0].committed_offset == TIMES - 1


@pytest.mark.parametrize("version", [4, 11])
def test_fetch_uses_last_of_duplicate_partitions(client: RawClient, chronik_topic: str, version: int) -> None:
    for value in (b"first", b"second"):
        assert produce(client, chronik_topic, batch(value)).error_code == ErrorCode.NONE
    wanted = [
        FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20) for offset in [0] * TIMES + [1]
    ]
    topics = [FetchTopic(topic=chronik_topic, partitions=wanted)] * 2
    response = client.request(FetchRequest(max_wait_ms=0, topics=topics), version, FetchResponse)
    (partition,) = response.responses[0].partitions
    assert len(response.responses) == 1
    assert values(partition) == [b"second"]


def test_describe_groups_and_find_coordinator_merge_duplicates(client: RawClient) -> None:
    described = client.request(DescribeGroupsRequest(groups=["a", "b"] * TIMES), 5, DescribeGroupsResponse)
    assert [group.group_id for group in described.groups] == ["a", "b"]
    found = client.request(FindCoordinatorRequest(coordinator_keys=["a", "b"] * TIMES), 4, FindCoordinatorResponse)
    assert [coordinator.key for coordinator in found.coordinators] == ["a", "b"]


def test_describe_log_dirs_merges_duplicate_partitions(client: RawClient, chronik_topic: str) -> None:
    topics = [DescribableLogDirTopic(topic=chronik_topic, partitions=[0] * TIMES)] * TIMES
    response = client.request(DescribeLogDirsRequest(topics=topics), 4, DescribeLogDirsResponse)
    assert [len(topic.partitions) for topic in response.results[0].topics] == [1]


def test_offset_for_leader_epoch_merges_duplicate_partitions(client: RawClient, chronik_topic: str) -> None:
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topics = [OffsetForLeaderTopic(topic=chronik_topic, partitions=[partition] * TIMES)] * TIMES
    response = client.request(OffsetForLeaderEpochRequest(topics=topics), 4, OffsetForLeaderEpochResponse)
    assert [len(topic.partitions) for topic in response.topics] == [1]


def test_delete_records_uses_last_of_duplicate_partitions(client: RawClient, chronik_topic: str) -> None:
    for _ in range(3):
        produce(client, chronik_topic, batch(b"x"))
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in [3] * TIMES + [1]]
    topic = DeleteRecordsTopic(name=chronik_topic, partitions=partitions)
    response = client.request(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 2, DeleteRecordsResponse)
    (result,) = response.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 1)


def test_duplicate_changes_are_rejected_once(client: RawClient, chronik_topic: str) -> None:
    resource = AlterConfigsResource(
        resource_type=TOPIC, resource_name=chronik_topic, configs=[AlterableConfig(name="retention.ms", value="1000")]
    )
    altered = client.request(AlterConfigsRequest(resources=[resource] * TIMES), 2, AlterConfigsResponse)
    assert [result.error_code for result in altered.responses] == [ErrorCode.INVALID_REQUEST]
    topics = [CreatableTopic(name=f"{chronik_topic}-twice", num_partitions=1, replication_factor=1)] * TIMES
    created = client.request(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in created.topics] == [ErrorCode.INVALID_REQUEST]
