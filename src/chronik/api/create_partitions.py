"""CreatePartitions: a topic gets more partitions, placed by the broker or as given."""

from __future__ import annotations

from chronik.admin.topics import Enlargement
from chronik.api.shared.context import Context, Services
from chronik.protocol.failures import told
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(services: Services, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    outcomes = await services.topics.enlarge(list(map(_wanted, request.topics)), validate_only=request.validate_only)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=name, **told(error)) for name, error in outcomes.items()]
    )


def _wanted(topic: CreatePartitionsTopic) -> Enlargement:
    given = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
    return Enlargement(topic.name, topic.count, given)
