"""CreateTopics (API key 19): creates topics with defaults, replica assignments and configs, or validates them."""

from __future__ import annotations

from collections import Counter

from chronik.admin.topic_planner import NewTopicRequest
from chronik.api.shared.authorization import NamePredicate, build_authorization_predicate, is_authorized_on_cluster
from chronik.api.shared.context import RequestContext, Services
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.metadata.commands.topics import CreateTopic
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType

FIRST_VERSION_WITH_QUOTA_ERROR = 6
"""First CreateTopics version whose clients support THROTTLING_QUOTA_EXCEEDED."""


async def handle(services: Services, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    occurrences = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    accepted: list[NewTopicRequest] = []
    may_create = _build_creation_predicate(services, context)
    may_see_configs = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, audited=False
    )
    for topic in request.topics:
        try:
            if occurrences[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            if not may_create(topic.name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            topic_request = _decode_topic(topic)
            if context.usage is not None:
                context.usage.charge_mutation(
                    _count_partitions(services, topic_request), strict=context.version >= FIRST_VERSION_WITH_QUOTA_ERROR
                )
            accepted.append(topic_request)
        except KafkaError as error:
            results[topic.name] = _build_topic_failure_result(topic.name, error)
    outcomes = await services.topics.create(accepted, validate_only=request.validate_only)
    for topic_request, outcome in zip(accepted, outcomes, strict=True):
        results[topic_request.name] = (
            _build_topic_failure_result(topic_request.name, outcome)
            if isinstance(outcome, KafkaError)
            else _build_topic_success_result(services, outcome, with_configs=may_see_configs(topic_request.name))
        )
    return CreateTopicsResponse(topics=[results[name] for name in occurrences])


def _count_partitions(services: Services, topic: NewTopicRequest) -> int:
    """Return the number of new partitions to charge to the client's controller mutation quota.

    It is the number of assigned partitions, the requested number or the default. Topics that will be rejected anyway
    are free, so that a typo does not use up hours of a quota.
    """
    count = max(len(topic.assignments) or topic.partition_count, 0) or services.configs.broker_int("num.partitions")
    return 0 if count > TOPIC_PARTITIONS_MAX or topic.name in services.image.topics else count


def _decode_topic(topic: CreatableTopic) -> NewTopicRequest:
    assignments = {given.partition_index: tuple(given.broker_ids) for given in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The assignments contain a partition more than once")
    configs = {config.name: config.value for config in topic.configs}
    if len(configs) != len(topic.configs):
        raise KafkaError(ErrorCode.INVALID_CONFIG, "The configs contain a name more than once")
    return NewTopicRequest(topic.name, topic.num_partitions, topic.replication_factor, assignments, configs)


def _build_creation_predicate(services: Services, context: RequestContext) -> NamePredicate:
    """Return the predicate that authorizes the creation of a topic by CREATE on the cluster or on the topic."""
    if is_authorized_on_cluster(services, context, AclOperation.CREATE, audited=False):
        return lambda _: True
    return build_authorization_predicate(services, context, AclOperation.CREATE, AclResourceType.TOPIC)


def _build_topic_failure_result(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, **build_error_fields(error))


def _build_topic_success_result(
    services: Services, outcome: CreateTopic, *, with_configs: bool
) -> CreatableTopicResult:
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
                is_sensitive=entry.key.is_sensitive,
            )
            for entry in services.configs.describe_topic(outcome.configs)
        ],
    )
