"""CreatePartitions: a topic gets more partitions, placed by the broker or as given."""

from __future__ import annotations

from collections import Counter
from functools import partial

from chronik.admin.second_look import with_second_look
from chronik.api.shared.admission import refuse_system_topic
from chronik.api.shared.context import Context, Services
from chronik.api.shared.long_answers import Pace
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(services: Services, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = {}
    pace = Pace()
    for topic in request.topics:
        await pace.breathe()
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            await with_second_look(services.store, partial(_create, services, topic, request.validate_only))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[topic.name] = result
    return CreatePartitionsResponse(results=list(results.values()))


async def _create(services: Services, topic: CreatePartitionsTopic, validate_only: bool) -> None:
    refuse_system_topic(services, topic.name)
    given = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
    await services.topics.add_partitions(topic.name, topic.count, given, validate_only=validate_only)
