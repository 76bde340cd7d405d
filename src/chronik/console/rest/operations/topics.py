"""Operations on topics: list, describe, create, add partitions, delete records and delete."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from chronik.client.admin import BROKER_DEFAULT, create_partitions, create_topics, delete_topics, list_topics
from chronik.client.admin import NewTopic as Creation
from chronik.client.cluster import raise_for_code
from chronik.client.configs import TOPIC_RESOURCE, ConfigTarget, describe_configs
from chronik.client.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, group_by_leader, group_by_topic
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.errors import error_message
from chronik.console.rest.models.common import Done, NoQuestion, Page, Plan
from chronik.console.rest.models.topics import (
    ListTopics,
    LowWatermarks,
    MorePartitions,
    NewTopic,
    PartitionView,
    RecordsToDelete,
    Topic,
    TopicDetails,
)
from chronik.console.rest.operations.shared import (
    fetch_available_offsets,
    fetch_partition_sizes,
    group_partitions_by_leader,
    paginate,
    paginate_names,
    sum_or_none,
)
from chronik.ids import format_id
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.metadata import MetadataResponseTopic
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.wording import pluralize

CLEANUP_POLICY = "cleanup.policy"


def list_all(context: OperationContext, params: ListTopics) -> Page[Topic]:
    """List topics by name."""
    known = {topic.name or "": topic for topic in list_topics(context.cluster)}
    names = [name for name, topic in known.items() if params.internal or not topic.is_internal]
    if params.sort != "name" or params.descending:
        wanted = [known[name] for name in paginate_names(names, params.search, None, len(names) or 1).items]
        return _list_sorted(context, wanted, params)
    page = paginate_names(names, params.search, params.after, params.limit)
    return Page([*_build_topics(context, [known[name] for name in page.items])], page.next, page.total)


SORTED_TOPICS_MAX: Final = 1_000
SORTED_PARTITIONS_MAX: Final = 10_000
"""Maximum numbers of topics and partitions that are sorted by size or number of records, because these are requested
from the leaders."""


def _list_sorted(context: OperationContext, topics: Sequence[MetadataResponseTopic], params: ListTopics) -> Page[Topic]:
    """Return a page of topics in the order of the query. Topics whose value is unknown come last.

    Raises:
        RestError: There are too many topics for the order.
    """
    if params.sort in ("messages", "bytes"):
        count = sum(len(topic.partitions) for topic in topics)
        if len(topics) > SORTED_TOPICS_MAX or count > SORTED_PARTITIONS_MAX:
            message = (
                f"{pluralize(len(topics), 'topic')} with {pluralize(count, 'partition')} cannot be sorted by"
                f" {params.sort}, only {SORTED_TOPICS_MAX:,} with {SORTED_PARTITIONS_MAX:,}: search for fewer topics"
            )
            raise build_bad_request_error(message)
        values = {each.name: getattr(each, params.sort) for each in _build_topics(context, topics)}
        unknown = -1 if params.descending else math.inf
        keys = {name: unknown if value is None else value for name, value in values.items()}
    else:
        keys = {topic.name or "": _SORT_KEYS[params.sort](topic) for topic in topics}
    ordered = sorted(topics, key=lambda topic: keys[topic.name or ""], reverse=params.descending)
    page = paginate(ordered, params.after, params.limit)
    return Page([*_build_topics(context, page.items)], page.next, page.total)


def _build_topics(context: OperationContext, topics: Sequence[MetadataResponseTopic]) -> Sequence[Topic]:
    led = group_partitions_by_leader(topics)
    partition_bytes = fetch_partition_sizes(context, led)
    starts, ends = (
        fetch_available_offsets(context, led, EARLIEST_TIMESTAMP),
        fetch_available_offsets(context, led, LATEST_TIMESTAMP),
    )
    counts = {each: ends[each][0] - starts[each][0] for each in ends if each in starts}
    operations = context.find_authorized_operations(AclResourceType.TOPIC, [topic.name or "" for topic in topics])
    policies = _fetch_cleanup_policies(context, [topic.name or "" for topic in topics])
    found = []
    for topic in topics:
        name = topic.name or ""
        partitions = [TopicPartition(name, each.partition_index) for each in topic.partitions]
        found.append(
            Topic(
                name,
                format_id(topic.topic_id),
                len(partitions),
                _replication_factor(topic),
                _count_under_replicated(topic),
                _count_offline(topic),
                sum_or_none(partitions, partition_bytes),
                sum_or_none(partitions, counts),
                topic.is_internal,
                policies.get(name),
                operations[name],
            )
        )
    return found


def _fetch_cleanup_policies(context: OperationContext, names: Sequence[str]) -> dict[str, str | None]:
    """Return the topics' cleanup policies, or an empty dict if the principal lacks the DescribeConfigs permission."""
    allowed = context.filter_authorized(AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, names)
    if not allowed:
        return {}
    try:
        configs = describe_configs(
            context.cluster, [ConfigTarget(TOPIC_RESOURCE, name) for name in allowed], [CLEANUP_POLICY]
        )
    except KafkaError:  # A topic was deleted concurrently.
        return {}
    return {resource.name: values[0].value for resource, values in configs.items() if values}


def _replication_factor(topic: MetadataResponseTopic) -> int:
    return max((len(each.replica_nodes) for each in topic.partitions), default=0)


def _count_under_replicated(topic: MetadataResponseTopic) -> int:
    return sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)


def _count_offline(topic: MetadataResponseTopic) -> int:
    return sum(each.leader_id < 0 for each in topic.partitions)


_SORT_KEYS: Final[dict[str, Callable[[MetadataResponseTopic], Any]]] = {
    "name": lambda topic: topic.name,
    "partitions": lambda topic: len(topic.partitions),
    "replication_factor": _replication_factor,
    "status": lambda topic: (_count_offline(topic), _count_under_replicated(topic)),
}


def show(context: OperationContext, params: NoQuestion) -> TopicDetails:
    """Describe a topic and its partitions."""
    name = context.path_parameters["topic"]
    topic = context.cluster.retry(lambda: context.cluster.topic(name))
    (summary,) = _build_topics(context, [topic])
    led = group_partitions_by_leader([topic])
    partition_bytes = fetch_partition_sizes(context, led)
    starts, ends = (
        fetch_available_offsets(context, led, EARLIEST_TIMESTAMP),
        fetch_available_offsets(context, led, LATEST_TIMESTAMP),
    )
    views = []
    for each in topic.partitions:
        partition = TopicPartition(name, each.partition_index)
        views.append(
            PartitionView(
                each.partition_index,
                each.leader_id if each.leader_id >= 0 else None,
                each.leader_epoch,
                each.replica_nodes,
                each.isr_nodes,
                each.offline_replicas,
                starts[partition][0] if partition in starts else None,
                ends[partition][0] if partition in ends else None,
                partition_bytes.get(partition),
            )
        )
    changed = context.node.services.image.topics.get(name)
    return TopicDetails(
        name,
        summary.id,
        summary.internal,
        summary.replication_factor,
        summary.under_replicated,
        summary.offline,
        summary.bytes,
        summary.messages,
        summary.cleanup_policy,
        views,
        summary.authorized_operations,
        max(changed.changed_ms, changed.created_ms) if changed is not None else None,
    )


def create(context: OperationContext, params: NewTopic) -> Plan:
    """Create a topic."""
    partitions = BROKER_DEFAULT if params.partitions is None else params.partitions
    factor = BROKER_DEFAULT if params.replication_factor is None else params.replication_factor
    new = Creation(params.name, partitions, factor, params.configs)
    partitions_text = (
        "the default number of partitions" if params.partitions is None else pluralize(params.partitions, "partition")
    )
    factor_text = (
        "the default replication factor" if params.replication_factor is None else f"replication factor {factor}"
    )
    plan = Plan([f"create topic {params.name} with {partitions_text} and {factor_text}"])
    plan.plan += [f"set {name} = {value}" for name, value in params.configs.items()]
    return _execute_plan(plan, params.dry_run, lambda dry: create_topics(context.cluster, [new], validate_only=dry))


def add_partitions(context: OperationContext, params: MorePartitions) -> Plan:
    """Increase the number of partitions of a topic."""
    name = context.path_parameters["topic"]
    now = len(context.cluster.retry(lambda: context.cluster.topic(name)).partitions)
    plan = Plan([f"add {pluralize(params.count - now, 'partition')} to topic {name}, {params.count} in total"])
    plan.plan.append("keys may be assigned to other partitions: records with the same key may span two partitions")
    if params.count <= now:
        plan.plan = [f"leave topic {name} as it is, with {pluralize(now, 'partition')}"]

    def change(dry: bool) -> None:
        if not dry:
            create_partitions(context.cluster, name, params.count)
            return
        wanted = CreatePartitionsTopic(name=name, count=params.count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000, validate_only=True)
        (result,) = context.cluster.controller().request(request, CreatePartitionsResponse).results
        raise_for_code(result.error_code, f"topic {name}", result.error_message)

    return _execute_plan(plan, params.dry_run, change)


def _execute_plan(plan: Plan, dry_run: bool, change: Callable[[bool], None]) -> Plan:
    if not dry_run:
        change(False)
        plan.done = True
        return plan
    try:
        change(True)
    except KafkaError as error:
        if error.code.name.endswith("AUTHORIZATION_FAILED"):
            raise
        plan.refused = error_message(error)
    return plan


def delete(context: OperationContext, params: NoQuestion) -> Done:
    """Delete a topic."""
    delete_topics(context.cluster, [context.path_parameters["topic"]])
    return Done()


def delete_records(context: OperationContext, params: RecordsToDelete) -> LowWatermarks:
    """Delete the records before given offsets."""
    name, cluster = context.path_parameters["topic"], context.cluster
    if not params.offsets:
        raise build_bad_request_error("offsets: expected at least one partition")
    wanted = {TopicPartition(name, index): offset for index, offset in params.offsets.items()}
    found: dict[int, int] = {}

    def send() -> None:
        for node_id, partitions in group_by_leader(
            cluster, [each for each in wanted if each.partition not in found]
        ).items():
            request_topics = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=each, offset=wanted[TopicPartition(topic, each)])
                        for each in indexes
                    ],
                )
                for topic, indexes in group_by_topic(partitions).items()
            ]
            request = DeleteRecordsRequest(topics=request_topics, timeout_ms=int(cluster.timeout_s * 1000))
            for topic_result in cluster.broker(node_id).request(request, DeleteRecordsResponse).topics:
                for each in topic_result.partitions:
                    raise_for_code(each.error_code, f"{name}-{each.partition_index}")
                    found[each.partition_index] = each.low_watermark

    cluster.retry(send)
    return LowWatermarks(found)
