"""CreatePartitions (API key 37): adds partitions to topics, with replicas assigned by the broker or by the request."""

from __future__ import annotations

from chronik.admin.topics import Enlargement
from chronik.api.shared.context import Context, Services
from chronik.api.shared.many_changes import changed, named_once
from chronik.api.shared.rights import may_do
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from chronik.protocol.permissions import Operation, ResourceType

FIRST_STRICT_VERSION = 3
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle(services: Services, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    may_alter = may_do(services, context, Operation.ALTER, ResourceType.TOPIC)

    async def add_partitions(topic: CreatePartitionsTopic) -> None:
        if not may_alter(topic.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if context.usage is not None:
            context.usage.mutated(
                _count_new_partitions(services, topic), strict=context.version >= FIRST_STRICT_VERSION
            )
        await services.topics.enlarge(_decode_topic(topic), validate_only=request.validate_only)

    topics = await named_once(request.topics, lambda topic: topic.name)
    outcomes = changed(topics, add_partitions, lambda name: f"Duplicate topic name: {name}")
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=name, **outcome) async for name, outcome in outcomes]
    )


def _decode_topic(topic: CreatePartitionsTopic) -> Enlargement:
    given = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
    return Enlargement(topic.name, topic.count, given)


def _count_new_partitions(services: Services, topic: CreatePartitionsTopic) -> int:
    known = services.image.topics.get(topic.name)
    if known is None or topic.count > TOPIC_PARTITIONS_MAX:
        return 0  # the request is rejected
    return max(topic.count - len(known.partitions), 0)
