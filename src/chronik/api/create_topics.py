"""CreateTopics: creates topics with defaults, manual assignments and configs, or only checks that it could."""

from __future__ import annotations

from collections import Counter

from chronik.admin.topic_plans import TopicRequest
from chronik.api.shared.context import Context, Services
from chronik.metadata.commands.topics import CreateTopic
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import told
from chronik.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(services: Services, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    accepted: list[TopicRequest] = []
    for topic in request.topics:
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            accepted.append(_topic_request(topic))
        except KafkaError as error:
            results[topic.name] = _result(services, topic.name, error)
    outcomes = await services.topics.create(accepted, validate_only=request.validate_only)
    for wanted, outcome in zip(accepted, outcomes, strict=True):
        results[wanted.name] = _result(services, wanted.name, outcome)
    return CreateTopicsResponse(topics=[results[name] for name in named])


def _topic_request(topic: CreatableTopic) -> TopicRequest:
    assignments = {given.partition_index: tuple(given.broker_ids) for given in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned twice")
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) != len(topic.configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "A config is given twice")
    return TopicRequest(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _result(services: Services, name: str, outcome: CreateTopic | KafkaError) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(name=name, **told(outcome))
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.key.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.key.sensitive,
            )
            for entry in services.configs.describe_topic(outcome.configs)
        ],
    )
