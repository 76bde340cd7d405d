"""Attacks with small requests that cause large responses or large state."""

from __future__ import annotations

import struct
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from chronik.protocol.messages.describe_groups import DescribeGroupsRequest
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from chronik.protocol.records import Record, encode_batch
from chronik.protocol.schema import Request
from tests.abuse.attack import SINGLE_NODE, Attack, AttackTarget
from tests.raw import RawClient

LARGE: Final = "large"
PARTITIONS: Final = 10_000
BROKER: Final = 4
CLAIMED_BYTES: Final = 100 * 1024 * 1024
NAME_BYTES: Final = 32_000


def ask(target: AttackTarget, request: Request, version: int) -> None:
    """Send one request and ignore its result."""
    with target.connect() as client:
        client.send(request, version)
        client.read_frame()


def large_topic(target: AttackTarget) -> None:
    with ClusterClient(str(target.kafka)) as cluster:
        create_topics(cluster, [NewTopic(LARGE, target.count(1_000, PARTITIONS))])


# Duplicate names


def metadata_of(name: str, count: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)] * count, allow_auto_topic_creation=False)


def one_topic_in_metadata(target: AttackTarget) -> None:
    ask(target, metadata_of(LARGE, target.count(1_000, 4_000)), 12)


def one_topic_in_metadata_of_the_largest_size(target: AttackTarget) -> None:
    ask(target, metadata_of(LARGE, 240_000), 12)


def one_topic_in_metadata_unread(target: AttackTarget) -> None:
    for _ in range(8):
        client = target.connect()
        client.send(metadata_of(LARGE, 1_000), 12)
        target.keep_open(client)


def unknown_topics_in_metadata(target: AttackTarget) -> None:
    topics = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(target.count(20_000, 240_000))]
    ask(target, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)


def one_broker_in_describe_configs(target: AttackTarget) -> None:
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(target.victim.node_id), configuration_keys=None
    )
    ask(target, DescribeConfigsRequest(resources=[resource] * target.count(2_000, 20_000)), 4)


def one_broker_in_many_spellings(target: AttackTarget) -> None:
    resources = [
        DescribeConfigsResource(
            resource_type=BROKER,
            resource_name=f"{target.victim.node_id:0{1 + number % 2_000}d}",
            configuration_keys=None,
        )
        for number in range(target.count(2_000, 20_000))
    ]
    ask(target, DescribeConfigsRequest(resources=resources), 4)


def one_group_in_offset_fetch(target: AttackTarget) -> None:
    groups = [OffsetFetchRequestGroup(group_id="offsets-0", topics=None)] * 10
    ask(target, OffsetFetchRequest(groups=groups), 8)


def one_partition_in_fetch(target: AttackTarget) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchTopic(topic=target.probe_topic, partitions=[partition] * target.count(10_000, 50_000))
    ask(target, FetchRequest(max_wait_ms=0, topics=[topic]), 11)


def unknown_partitions_in_fetch(target: AttackTarget) -> None:
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
        for index in range(target.count(10_000, 50_000))
    ]
    ask(target, FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="nowhere", partitions=partitions)]), 11)


def one_group_in_describe_groups(target: AttackTarget) -> None:
    ask(target, DescribeGroupsRequest(groups=["nobody"] * target.count(20_000, 200_000)), 5)


def unknown_groups_in_describe_groups(target: AttackTarget) -> None:
    names = [f"nobody-{number}" for number in range(target.count(20_000, 240_000))]
    ask(target, DescribeGroupsRequest(groups=names), 5)


def coordinators_of_many_groups(target: AttackTarget) -> None:
    names = [f"nobody-{number}" for number in range(target.count(20_000, 240_000))]
    ask(target, FindCoordinatorRequest(coordinator_keys=names), 4)


def topics_of_too_many_partitions(target: AttackTarget) -> None:
    topics = [
        CreatableTopic(name=f"plan-{number}", num_partitions=PARTITIONS, replication_factor=1)
        for number in range(target.count(20, 1_000))
    ]
    with target.connect() as client:
        response = client.request(CreateTopicsRequest(topics=topics, validate_only=True), 7, CreateTopicsResponse)
        assert response.topics[-1].error_code == ErrorCode.POLICY_VIOLATION


# Unread responses


def leave_metadata_unread(target: AttackTarget) -> None:
    """Request Metadata of a large topic, 250 kB per response, and do not read the responses."""
    for _ in range(target.count(50, 1_000)):
        client = target.connect()
        for _ in range(20):
            client.send(metadata_of(LARGE, 1), 12)
        target.keep_open(client)


# Incomplete frames


def claimed_frames(target: AttackTarget) -> None:
    """Announce large frames. A large produce request of another client must succeed meanwhile."""
    for _ in range(target.count(6, 2_000)):
        client = target.connect()
        client.send_bytes(struct.pack(">i", CLAIMED_BYTES) + bytes(68))
        target.keep_open(client)
    with target.connect() as honest:
        honest.socket.settimeout(5.0)
        honest.send(produce_to(target.probe_topic, bytes(2 * 1024 * 1024)), 9)
        assert honest.read_frame() is not None


def half_sent_frames(target: AttackTarget) -> None:
    for _ in range(target.count(4, 32)):
        client = target.connect()
        client.send_bytes(struct.pack(">i", CLAIMED_BYTES) + bytes(1024 * 1024))
        target.keep_open(client)
    with target.connect() as honest:
        honest.send(produce_to(target.probe_topic, bytes(2 * 1024 * 1024)), 9)
        assert honest.read_frame() is not None


def produce_to(topic: str, value: bytes) -> ProduceRequest:
    records = encode_batch([Record(0, -1, None, value)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])


# Large state


def produce_to_long_names(target: AttackTarget) -> None:
    records = encode_batch([Record(0, -1, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
    partition = PartitionProduceData(index=0, records=records)
    for request in range(target.count(1, 3)):
        names = (f"{request}-{number}-".ljust(NAME_BYTES, "x") for number in range(target.count(300, 3_000)))
        topics = [TopicProduceData(name=name, partition_data=[partition]) for name in names]
        ask(target, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), 9)


def names_in_fetch_sessions(target: AttackTarget) -> None:
    for request in range(target.count(1, 3)):
        topics = [
            FetchTopic(
                topic=f"{request}-{number}-".ljust(NAME_BYTES, "x"),
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
            )
            for number in range(target.count(300, 3_000))
        ]
        ask(target, FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics), 11)


def commit_large_metadata(client: RawClient, group: str, topic: str, partitions: int) -> ErrorCode:
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="m" * 4096)
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)])
    response = client.request(request, 8, OffsetCommitResponse)
    return ErrorCode(response.topics[0].partitions[-1].error_code)


def groups_with_large_offsets(target: AttackTarget) -> None:
    large_topic(target)
    with target.connect() as client:
        for number in range(target.count(1, 2)):
            commit_large_metadata(client, f"offsets-{number}", LARGE, target.count(1_000, 7_000))


def offsets_of_many_groups(target: AttackTarget) -> None:
    with target.connect() as client:
        for number in range(target.count(2, 20)):
            commit_large_metadata(client, f"hoard-{number}", LARGE, target.count(1_000, 7_000))


def large_joins(target: AttackTarget) -> None:
    for number in range(target.count(20, 400)):
        client = target.connect()
        protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(1_000_000))
        client.send(
            JoinGroupRequest(
                group_id=f"join-{number}",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            3,
        )
        target.keep_open(client)


def members_with_long_names(target: AttackTarget) -> None:
    """Join groups with member names of 32 kB that wait for a rebalance."""
    for number in range(target.count(50, 1_500)):
        client = target.connect()
        client.client_id = f"{number}-".ljust(NAME_BYTES, "x")
        client.send(
            JoinGroupRequest(
                group_id=f"long-{number % 10}",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            3,
        )
        target.keep_open(client)


ATTACKS: Final[tuple[Attack, ...]] = (
    Attack("metadata-same-topic", "Metadata of one topic, 4,000 times", one_topic_in_metadata, large_topic, quick=True),
    Attack(
        "metadata-same-topic-most",
        "Metadata of one topic, 240,000 times",
        one_topic_in_metadata_of_the_largest_size,
        large_topic,
    ),
    Attack(
        "metadata-same-topic-unread",
        "eight connections request Metadata of one topic 1,000 times and read nothing",
        one_topic_in_metadata_unread,
        large_topic,
    ),
    Attack("metadata-unknown-topics", "Metadata of 240,000 unknown topics", unknown_topics_in_metadata),
    Attack(
        "metadata-unread",
        "1,000 connections ask for 250 kB, 20 times, and read nothing",
        leave_metadata_unread,
        large_topic,
    ),
    Attack(
        "configs-same-broker", "DescribeConfigs of one broker, 20,000 times", one_broker_in_describe_configs, quick=True
    ),
    Attack("configs-spellings", "DescribeConfigs of one broker, as 1, 01, 001, …", one_broker_in_many_spellings),
    Attack(
        "offsets-same-group",
        "OffsetFetch of one group, ten times",
        one_group_in_offset_fetch,
        groups_with_large_offsets,
    ),
    Attack("fetch-same-partition", "Fetch of one partition, 50,000 times", one_partition_in_fetch, quick=True),
    Attack("fetch-unknown-partitions", "Fetch of 50,000 unknown partitions", unknown_partitions_in_fetch),
    Attack("groups-same", "DescribeGroups of one group, 200,000 times", one_group_in_describe_groups),
    Attack("groups-unknown", "DescribeGroups of 240,000 unknown groups", unknown_groups_in_describe_groups),
    Attack("coordinators", "FindCoordinator of 240,000 groups", coordinators_of_many_groups),
    Attack(
        "topics-of-too-many-partitions",
        "CreateTopics of 1,000 topics of 10,000 partitions",
        topics_of_too_many_partitions,
    ),
    Attack("frames-claimed", "2,000 connections claim 100 MB and send 72 bytes", claimed_frames, quick=True),
    Attack("frames-half-sent", "32 connections claim 100 MB and send 1 MB", half_sent_frames),
    Attack(
        "names-refused",
        "Produce with a producer id to 9,000 unknown topics of 32 kB names",
        produce_to_long_names,
        quick=True,
    ),
    Attack(
        "names-in-sessions",
        "fetch sessions of 9,000 unknown topics of 32 kB names",
        names_in_fetch_sessions,
        quick=True,
    ),
    Attack(
        "offsets-hoarded",
        "20 groups commit 7,000 offsets of 4 kB",
        offsets_of_many_groups,
        large_topic,
        targets=(SINGLE_NODE,),
    ),
    Attack("joins-of-a-megabyte", "400 joins of 1 MB", large_joins),
    Attack("members-with-long-names", "1,500 members with names of 32 kB", members_with_long_names),
)
