"""Standalone mode: `__consumer_offsets` is created by the first commit for tools, and stays empty."""

from __future__ import annotations

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
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
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.api.request_builders import BROKER
from tests.api.test_configs import describe_configs
from tests.raw import RawClient

OFFSETS = "__consumer_offsets"
PARTITIONS = 50


def list_topics(client: RawClient) -> dict[str, MetadataResponseTopic]:
    topics = client.request(MetadataRequest(topics=None), 12, MetadataResponse).topics
    return {topic.name or "": topic for topic in topics}


def commit(client: RawClient, topic: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return client.request(request, 8, OffsetCommitResponse).topics[0].partitions[0].error_code


def committed(client: RawClient, topic: str) -> int:
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])])
    return client.request(request, 8, OffsetFetchResponse).groups[0].topics[0].partitions[0].committed_offset


def coordinator(client: RawClient) -> tuple[int, int]:
    answer = client.request(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse).coordinators[0]
    return answer.error_code, answer.node_id


@pytest.fixture
def broker(chronik_broker_factory: BrokerFactory) -> Broker:
    broker = chronik_broker_factory()
    broker.create_topic("orders")
    return broker


def test_first_successful_commit_creates_offsets_topic(broker: Broker) -> None:
    with RawClient(broker.bootstrap) as client:
        assert coordinator(client) == (ErrorCode.NONE, 1)
        assert commit(client, "no-such-topic", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert set(list_topics(client)) == {"orders"}
        assert commit(client, "orders", 7) == ErrorCode.NONE
        topic = list_topics(client)[OFFSETS]
        assert topic.is_internal
        assert [(each.leader_id, each.replica_nodes, each.isr_nodes) for each in topic.partitions] == (
            [(1, [1], [1])] * PARTITIONS
        )
        assert commit(client, "orders", 8) == ErrorCode.NONE
        assert (committed(client, "orders"), coordinator(client)) == (8, (ErrorCode.NONE, 1))
    broker.kill()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert OFFSETS in list_topics(client)
        assert (committed(client, "orders"), coordinator(client)) == (8, (ErrorCode.NONE, 1))


def test_offsets_topic_is_empty_and_rejects_records(broker: Broker) -> None:
    with RawClient(broker.bootstrap) as client:
        commit(client, "orders", 7)
        assert (
            request_builders.produce(client, OFFSETS, request_builders.batch(b"v")).error_code
            == ErrorCode.INVALID_TOPIC_EXCEPTION
        )
        data = request_builders.fetch(client, OFFSETS, 0)
        assert (data.error_code, data.high_watermark) == (ErrorCode.NONE, 0)
        assert not data.records
        assert request_builders.list_offset(client, OFFSETS, -1).offset == 0


def test_offsets_topic_uses_configured_partition_count(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(broker={"offsets.topic.num.partitions": 5, "offsets.topic.replication.factor": 3})
    broker.create_topic("orders")
    with RawClient(broker.bootstrap) as client:
        assert commit(client, "orders", 7) == ErrorCode.NONE
        assert len(list_topics(client)[OFFSETS].partitions) == 5
        configs = describe_configs(client, BROKER, "1")
        assert configs["offsets.topic.num.partitions"].value == "5"
        assert configs["offsets.topic.replication.factor"].value == "1"
