"""CreateTopics: creates topics with defaults, manual assignments and configs, or only checks that it could."""

from __future__ import annotations

from collections import Counter

from chronik.admin.topic_plans import TopicRequest
from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import Judge, may_do, may_with_cluster
from chronik.limits import TOPIC_PARTITIONS_MAX
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
from chronik.protocol.permissions import Operation, ResourceType

FIRST_STRICT_VERSION = 6
"""From here on clients know that a quota may be exceeded."""


async def handle(services: Services, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    accepted: list[TopicRequest] = []
    may_create = _may_create(services, context)
    may_see_configs = may_do(services, context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, audited=False)
    for topic in request.topics:
        try:
            if named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            if not may_create(topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            wanted = _topic_request(topic)
            if context.usage is not None:
                context.usage.mutated(_partitions(services, wanted), strict=context.version >= FIRST_STRICT_VERSION)
            accepted.append(wanted)
        except KafkaError as error:
            results[topic.name] = _failed(topic.name, error)
    outcomes = await services.topics.create(accepted, validate_only=request.validate_only)
    for wanted, outcome in zip(accepted, outcomes, strict=True):
        results[wanted.name] = (
            _failed(wanted.name, outcome)
            if isinstance(outcome, KafkaError)
            else _created(services, outcome, with_configs=may_see_configs(wanted.name))
        )
    return CreateTopicsResponse(topics=[results[name] for name in named])


def _partitions(services: Services, topic: TopicRequest) -> int:
    """Returns how many are asked for: as many as are assigned, if they are, or as the default has it. What is refused
    whatever its client has left costs nothing: a slip would use up hours of a quota."""
    count = max(len(topic.assignments) or topic.partition_count, 0) or services.configs.broker_int("num.partitions")
    return 0 if count > TOPIC_PARTITIONS_MAX or topic.name in services.image.topics else count


def _topic_request(topic: CreatableTopic) -> TopicRequest:
    assignments = {given.partition_index: tuple(given.broker_ids) for given in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned twice")
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) != len(topic.configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "A config is given twice")
    return TopicRequest(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _may_create(services: Services, context: Context) -> Judge:
    """Says of each topic whether it may be created: as this one, or as any of the cluster."""
    if may_with_cluster(services, context, Operation.CREATE, audited=False):
        return lambda _: True
    return may_do(services, context, Operation.CREATE, ResourceType.TOPIC)


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, **told(error))


def _created(services: Services, outcome: CreateTopic, *, with_configs: bool) -> CreatableTopicResult:
    if not with_configs:
        return CreatableTopicResult(
            name=outcome.name,
            topic_id=outcome.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreatableTopicResult(
        name=outcome.name,
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
