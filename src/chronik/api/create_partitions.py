"""CreatePartitions: a topic gets more partitions, placed by the broker or as given."""

from __future__ import annotations

from chronik.admin.topics import Enlargement
from chronik.api.shared.context import Context, Services
from chronik.api.shared.many_changes import changed, named_once
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(services: Services, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    async def enlarge(topic: CreatePartitionsTopic) -> None:
        await services.topics.enlarge(_wanted(topic), validate_only=request.validate_only)

    topics = await named_once(request.topics, lambda topic: topic.name)
    outcomes = changed(topics, enlarge, lambda name: f"Duplicate topic name: {name}")
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=name, **outcome) async for name, outcome in outcomes]
    )


def _wanted(topic: CreatePartitionsTopic) -> Enlargement:
    given = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
    return Enlargement(topic.name, topic.count, given)
