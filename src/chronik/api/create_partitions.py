"""CreatePartitions (API key 37): adds partitions to topics, with replicas assigned by the broker or by the request."""

from __future__ import annotations

from chronik.admin.topics import NewPartitions
from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.bulk_changes import apply_change_to_each, index_by_unique_key
from chronik.api.shared.context import RequestContext, Services
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from chronik.protocol.permissions import AclOperation, AclResourceType

FIRST_VERSION_WITH_QUOTA_ERROR = 3
"""First CreatePartitions version whose clients support THROTTLING_QUOTA_EXCEEDED."""


async def handle(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    may_alter = build_authorization_predicate(services, context, AclOperation.ALTER, AclResourceType.TOPIC)

    async def add_partitions(topic: CreatePartitionsTopic) -> None:
        if not may_alter(topic.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if context.usage is not None:
            context.usage.charge_mutation(
                _count_new_partitions(services, topic), strict=context.version >= FIRST_VERSION_WITH_QUOTA_ERROR
            )
        await services.topics.create_partitions(_decode_topic(topic), validate_only=request.validate_only)

    topics = await index_by_unique_key(request.topics, lambda topic: topic.name)
    outcomes = apply_change_to_each(topics, add_partitions, lambda name: f"Duplicate topic name: {name}")
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=name, **outcome) async for name, outcome in outcomes]
    )


def _decode_topic(topic: CreatePartitionsTopic) -> NewPartitions:
    given = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
    return NewPartitions(topic.name, topic.count, given)


def _count_new_partitions(services: Services, topic: CreatePartitionsTopic) -> int:
    known = services.image.topics.get(topic.name)
    if known is None or topic.count > TOPIC_PARTITIONS_MAX:
        return 0  # the request is rejected
    return max(topic.count - len(known.partitions), 0)
