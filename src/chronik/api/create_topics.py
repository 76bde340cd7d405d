"""CreateTopics (API key 19): creates topics with defaults, replica assignments and configs, or validates them."""

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
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def handle(services: Services, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    occurrences = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    accepted: list[TopicRequest] = []
    may_create = _creation_check(services, context)
    may_see_configs = may_do(services, context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, audited=False)
    for topic in request.topics:
        try:
            if occurrences[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            if not may_create(topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            topic_request = _decode_topic(topic)
            if context.usage is not None:
                context.usage.mutated(
                    _count_partitions(services, topic_request), strict=context.version >= FIRST_STRICT_VERSION
                )
            accepted.append(topic_request)
        except KafkaError as error:
            results[topic.name] = _failure_result(topic.name, error)
    outcomes = await services.topics.create(accepted, validate_only=request.validate_only)
    for topic_request, outcome in zip(accepted, outcomes, strict=True):
        results[topic_request.name] = (
            _failure_result(topic_request.name, outcome)
            if isinstance(outcome, KafkaError)
            else _success_result(services, outcome, with_configs=may_see_configs(topic_request.name))
        )
    return CreateTopicsResponse(topics=[results[name] for name in occurrences])


def _count_partitions(services: Services, topic: TopicRequest) -> int:
    """Return the number of partitions to charge to the client's quota.

    It is the number of assigned partitions, the requested number or the default. Topics that will be rejected anyway
    are free, so that a typo does not use up hours of a quota.
    """
    count = max(len(topic.assignments) or topic.partition_count, 0) or services.configs.broker_int("num.partitions")
    return 0 if count > TOPIC_PARTITIONS_MAX or topic.name in services.image.topics else count


def _decode_topic(topic: CreatableTopic) -> TopicRequest:
    assignments = {given.partition_index: tuple(given.broker_ids) for given in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The assignments contain a partition more than once")
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) != len(topic.configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "The configs contain a name more than once")
    return TopicRequest(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _creation_check(services: Services, context: Context) -> Judge:
    """Return the predicate that authorizes a topic's creation, by CREATE on the cluster or on the topic."""
    if may_with_cluster(services, context, Operation.CREATE, audited=False):
        return lambda _: True
    return may_do(services, context, Operation.CREATE, ResourceType.TOPIC)


def _failure_result(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, **told(error))


def _success_result(services: Services, outcome: CreateTopic, *, with_configs: bool) -> CreatableTopicResult:
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
