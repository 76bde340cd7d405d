"""Internal topics cannot be deleted or enlarged in cluster mode: coordinators depend on their partitions and epochs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.api import create_partitions, delete_topics
from chronik.api.shared.context import RequestContext, Services
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.topics import CreatePartitions, DeleteTopic
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from chronik.request_reply import ConnectedClient
from tests.admin.factories import topic_admin
from tests.groups.shared_image import OFFSETS_TOPIC_ID, SharedImage

CONTEXT = RequestContext(6, "", cast(ConnectedClient, SimpleNamespace(number=1)))
REJECTED = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordingStore:
    """A store that records commands without applying them."""

    def __init__(self, *, alone: bool) -> None:
        shared = SharedImage()
        self.image = shared.image
        for broker in list(self.image.brokers.values()):
            shared.apply(UpdateBrokerStatus(broker.id, BrokerStatus.ONLINE, broker.epoch))
        self.is_shared = not alone
        self.done: list[str] = []

    async def propose(self, command: Command) -> ApplyResult:
        assert isinstance(command, DeleteTopic | CreatePartitions)
        verb = "delete" if isinstance(command, DeleteTopic) else "enlarge"
        self.done.append(f"{verb} {self.image.topics_by_id[command.topic_id].name}")
        return ApplyResult()


def services_of(recorder: RecordingStore) -> Services:
    return cast(Services, SimpleNamespace(authorizer=None, topics=topic_admin(cast(MetadataStore, recorder))))


def delete(services: Services, *wanted: DeleteTopicState) -> list[int]:
    request = DeleteTopicsRequest(topics=list(wanted))
    return [each.error_code for each in asyncio.run(delete_topics.handle(services, request, CONTEXT)).responses]


def enlarge(services: Services, *names: str, validate_only: bool = False) -> list[int]:
    topics = [CreatePartitionsTopic(name=name, count=200, assignments=None) for name in names]
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return [each.error_code for each in asyncio.run(create_partitions.handle(services, request, CONTEXT)).results]


@pytest.mark.parametrize(
    "wanted", [DeleteTopicState(name=OFFSETS_TOPIC), DeleteTopicState(name=None, topic_id=OFFSETS_TOPIC_ID)]
)
def test_cluster_rejects_deletion_of_internal_topic(wanted: DeleteTopicState) -> None:
    recorder = RecordingStore(alone=False)
    services = services_of(recorder)
    assert delete(services, wanted, DeleteTopicState(name="t")) == [REJECTED, ErrorCode.NONE]
    assert recorder.done == ["delete t"]


@pytest.mark.parametrize("validate_only", [False, True])
def test_cluster_rejects_new_partitions_of_internal_topic(validate_only: bool) -> None:
    recorder = RecordingStore(alone=False)
    services = services_of(recorder)
    assert enlarge(services, OFFSETS_TOPIC, "t", validate_only=validate_only) == [REJECTED, ErrorCode.NONE]
    assert recorder.done == ([] if validate_only else ["enlarge t"])


def test_standalone_node_allows_changes_of_internal_topic() -> None:
    recorder = RecordingStore(alone=True)
    services = services_of(recorder)
    assert enlarge(services, OFFSETS_TOPIC) == [ErrorCode.NONE]
    assert delete(services, DeleteTopicState(name=OFFSETS_TOPIC)) == [ErrorCode.NONE]
    assert recorder.done == [f"enlarge {OFFSETS_TOPIC}", f"delete {OFFSETS_TOPIC}"]
