"""A cluster goes by the partitions of its own topics, and by their epochs: no client deletes or enlarges them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.api import create_partitions, delete_topics
from chronik.api.shared.context import Context, Services
from chronik.exchange import Peer
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.groups.shared_image import OFFSETS_TOPIC_ID, SharedImage

CONTEXT = Context(6, "", cast(Peer, SimpleNamespace(number=1)))
REFUSED = ErrorCode.INVALID_TOPIC_EXCEPTION


class Recorder:
    """In place of the controller of topics: what it was asked to do."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def delete(self, topic: Any) -> None:
        self.done.append(f"delete {topic.name}")

    async def add_partitions(self, name: str, count: int, given: Any, *, validate_only: bool) -> None:
        self.done.append(f"{'validate' if validate_only else 'enlarge'} {name}")


def services_of(recorder: Recorder, *, alone: bool) -> Services:
    image = SharedImage().image
    parts = SimpleNamespace(
        image=image,
        topics=recorder,
        store=SimpleNamespace(image=image),
        coordinators=SimpleNamespace(stands_alone=alone),
        configs=SimpleNamespace(broker_flag=lambda name: True),
    )
    return cast(Services, parts)


def delete(services: Services, *wanted: DeleteTopicState) -> list[int]:
    request = DeleteTopicsRequest(topics=list(wanted))
    return [each.error_code for each in asyncio.run(delete_topics.handle(services, request, CONTEXT)).responses]


def enlarge(services: Services, *names: str, validate_only: bool = False) -> list[int]:
    topics = [CreatePartitionsTopic(name=name, count=200) for name in names]
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    return [each.error_code for each in asyncio.run(create_partitions.handle(services, request, CONTEXT)).results]


@pytest.mark.parametrize(
    "wanted", [DeleteTopicState(name=OFFSETS_TOPIC), DeleteTopicState(name=None, topic_id=OFFSETS_TOPIC_ID)]
)
def test_a_cluster_keeps_its_own_topics_and_deletes_others(wanted: DeleteTopicState) -> None:
    recorder = Recorder()
    services = services_of(recorder, alone=False)
    assert delete(services, wanted, DeleteTopicState(name="t")) == [REFUSED, ErrorCode.NONE]
    assert recorder.done == ["delete t"]


@pytest.mark.parametrize("validate_only", [False, True])
def test_groups_never_fall_into_other_partitions(validate_only: bool) -> None:
    recorder = Recorder()
    services = services_of(recorder, alone=False)
    assert enlarge(services, OFFSETS_TOPIC, "t", validate_only=validate_only) == [REFUSED, ErrorCode.NONE]
    assert recorder.done == ["validate t" if validate_only else "enlarge t"]


def test_a_node_that_stands_alone_has_no_coordinators_to_confuse() -> None:
    recorder = Recorder()
    services = services_of(recorder, alone=True)
    assert enlarge(services, OFFSETS_TOPIC) == [ErrorCode.NONE]
    assert delete(services, DeleteTopicState(name=OFFSETS_TOPIC)) == [ErrorCode.NONE]
    assert recorder.done == [f"enlarge {OFFSETS_TOPIC}", f"delete {OFFSETS_TOPIC}"]
