"""DescribeTopicPartitions (API key 75): returns topics in pages, for clusters too large for a Metadata response."""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.authorization import authorized_operations, build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.leaders import (
    list_brokers_without_listener,
    list_unreachable_brokers,
    offline_replicas,
    select_advertised_leader,
)
from chronik.limits import PARTITIONS_PER_PAGE_MAX
from chronik.metadata.names import find_topic_name_error
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply


def handle(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Reply[DescribeTopicPartitionsResponse]:
    if context.may_be_stale:  # the partitions in the image may be outdated
        code = ErrorCode.LEADER_NOT_AVAILABLE
        may_see = build_authorization_predicate(
            services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, audited=bool(request.topics)
        )
        names = sorted({topic.name for topic in request.topics} or filter(may_see, services.image.topics))
        topics = [
            DescribeTopicPartitionsResponseTopic(name=name, error_code=code)
            if may_see(name)
            else _build_unauthorized_topic(name)
            for name in names
        ]
        return Reply.from_response(DescribeTopicPartitionsResponse(topics=topics))
    return Reply.from_steps(_describe_topic_page(services, request, context))


def _describe_topic_page(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    image = services.image
    may_see = build_authorization_predicate(
        services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC, audited=bool(request.topics)
    )
    names = sorted({topic.name for topic in request.topics} or image.topics)
    first_partition = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = max(0, request.cursor.partition_index)
    remaining = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        yield
        if not may_see(name):
            if request.topics:
                response.topics.append(_build_unauthorized_topic(name))
            first_partition = 0
            continue
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_build_unknown_topic(name))
            first_partition = 0
            continue
        page = _describe_topic(services, topic, first_partition, remaining, context)
        response.topics.append(page)
        remaining -= len(page.partitions)
        next_partition = first_partition + len(page.partitions)
        first_partition = 0
        if next_partition < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=next_partition)
            break
    return response


def _build_unknown_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = find_topic_name_error(name) is None
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=code)


def _build_unauthorized_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _describe_topic(
    services: Services, topic: Topic, first: int, remaining: int, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    brokers = services.image.brokers
    unreachable, unlisted = list_unreachable_brokers(services), list_brokers_without_listener(brokers, context.listener)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        topic_authorized_operations=authorized_operations(services, context, AclResourceType.TOPIC, topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=[],  # Java's admin client throws on null
                last_known_elr=[],
                offline_replicas=offline_replicas(partition, brokers, unlisted),
            )
            for index, partition in enumerate(topic.partitions[first : first + remaining], first)
            for leader, error in [select_advertised_leader(partition, unreachable, unlisted)]
        ],
    )
