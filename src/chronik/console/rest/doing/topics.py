"""Topics: listed, shown, created, given partitions, deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chronik.client.admin import BROKER_DEFAULT, create_partitions, create_topics, delete_topics, list_topics
from chronik.client.admin import NewTopic as Creation
from chronik.client.cluster import raise_for
from chronik.client.configs import TOPIC_RESOURCE, Resource, describe_configs
from chronik.client.offsets import EARLIEST, LATEST, by_leader, by_topic
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call, wrong
from chronik.console.rest.doing.shared import (
    led_by,
    offsets_now,
    paged,
    sizes,
    summed,
)
from chronik.console.rest.refusals import sentence_of
from chronik.console.rest.shapes.common import Done, NoQuestion, Page, Plan
from chronik.console.rest.shapes.topics import (
    ListTopics,
    LowWatermarks,
    MorePartitions,
    NewTopic,
    PartitionView,
    RecordsToDelete,
    Topic,
    TopicDetails,
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
from chronik.protocol.permissions import Operation, ResourceType

CLEANUP = "cleanup.policy"


def list_all(call: Call, asked: ListTopics) -> Page[Topic]:
    known = {topic.name or "": topic for topic in list_topics(call.cluster)}
    names = [name for name, topic in known.items() if asked.internal or not topic.is_internal]
    page = paged(names, asked.search, asked.after, asked.limit)
    return Page([*_topics(call, [known[name] for name in page.items])], page.next, page.total)


def _topics(call: Call, topics: Sequence[MetadataResponseTopic]) -> Sequence[Topic]:
    led = led_by(topics)
    bytes_of = sizes(call, led)
    starts, ends = offsets_now(call, led, EARLIEST), offsets_now(call, led, LATEST)
    counts = {each: ends[each][0] - starts[each][0] for each in ends if each in starts}
    policies = _policies(call, [topic.name or "" for topic in topics])
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
                _under_replicated(topic),
                _offline(topic),
                summed(partitions, bytes_of),
                summed(partitions, counts),
                topic.is_internal,
                policies.get(name),
            )
        )
    return found


def _policies(call: Call, names: Sequence[str]) -> dict[str, str | None]:
    """Those who may not see configs see none."""
    allowed = call.allowed(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names)
    if not allowed:
        return {}
    try:
        configs = describe_configs(call.cluster, [Resource(TOPIC_RESOURCE, name) for name in allowed], [CLEANUP])
    except KafkaError:  # one of them is gone meanwhile
        return {}
    return {resource.name: values[0].value for resource, values in configs.items() if values}


def _replication_factor(topic: MetadataResponseTopic) -> int:
    return max((len(each.replica_nodes) for each in topic.partitions), default=0)


def _under_replicated(topic: MetadataResponseTopic) -> int:
    return sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions)


def _offline(topic: MetadataResponseTopic) -> int:
    return sum(each.leader_id < 0 for each in topic.partitions)


def show(call: Call, asked: NoQuestion) -> TopicDetails:
    name = call.path["topic"]
    topic = call.cluster.retrying(lambda: call.cluster.topic(name))
    (summary,) = _topics(call, [topic])
    led = led_by([topic])
    bytes_of = sizes(call, led)
    starts, ends = offsets_now(call, led, EARLIEST), offsets_now(call, led, LATEST)
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
                bytes_of.get(partition),
            )
        )
    changed = call.side.services.image.topics.get(name)
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
        max(changed.changed_ms, changed.created_ms) if changed is not None else None,
    )


def create(call: Call, asked: NewTopic) -> Plan:
    partitions = BROKER_DEFAULT if asked.partitions is None else asked.partitions
    factor = BROKER_DEFAULT if asked.replication_factor is None else asked.replication_factor
    new = Creation(asked.name, partitions, factor, asked.configs)
    of = "as many partitions as usual" if asked.partitions is None else f"{asked.partitions} partitions"
    on = "as many replicas as usual" if asked.replication_factor is None else f"{asked.replication_factor} replicas"
    plan = Plan([f"create topic {asked.name} with {of} and {on} of each"])
    plan.plan += [f"set {name} = {value}" for name, value in asked.configs.items()]
    return _planned(plan, asked.dry_run, lambda dry: create_topics(call.cluster, [new], validate_only=dry))


def add_partitions(call: Call, asked: MorePartitions) -> Plan:
    name = call.path["topic"]
    now = len(call.cluster.retrying(lambda: call.cluster.topic(name)).partitions)
    plan = Plan([f"topic {name} gets {asked.count - now} partitions more, and has {asked.count} then"])
    plan.plan.append("keys may go to other partitions from then on: what has one key is no longer all in one partition")
    if asked.count <= now:
        plan.plan = [f"leave topic {name} as it is, with {now} partitions"]

    def change(dry: bool) -> None:
        if not dry:
            create_partitions(call.cluster, name, asked.count)
            return
        wanted = CreatePartitionsTopic(name=name, count=asked.count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=5000, validate_only=True)
        (result,) = call.cluster.controller().request(request, CreatePartitionsResponse).results
        raise_for(result.error_code, f"topic {name}", result.error_message)

    return _planned(plan, asked.dry_run, change)


def _planned(plan: Plan, dry_run: bool, change: Callable[[bool], None]) -> Plan:
    if not dry_run:
        change(False)
        plan.done = True
        return plan
    try:
        change(True)
    except KafkaError as error:
        if error.code.name.endswith("AUTHORIZATION_FAILED"):
            raise
        plan.refused = sentence_of(error)
    return plan


def delete(call: Call, asked: NoQuestion) -> Done:
    delete_topics(call.cluster, [call.path["topic"]])
    return Done()


def delete_records(call: Call, asked: RecordsToDelete) -> LowWatermarks:
    name, cluster = call.path["topic"], call.cluster
    if not asked.offsets:
        raise wrong("offsets: expected one partition at least")
    wanted = {TopicPartition(name, index): offset for index, offset in asked.offsets.items()}
    found: dict[int, int] = {}

    def ask() -> None:
        for node_id, partitions in by_leader(cluster, [each for each in wanted if each.partition not in found]).items():
            asked_of = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=each, offset=wanted[TopicPartition(topic, each)])
                        for each in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ]
            request = DeleteRecordsRequest(topics=asked_of, timeout_ms=int(cluster.timeout_s * 1000))
            for answered in cluster.broker(node_id).request(request, DeleteRecordsResponse).topics:
                for each in answered.partitions:
                    raise_for(each.error_code, f"{name}-{each.partition_index}")
                    found[each.partition_index] = each.low_watermark

    cluster.retrying(ask)
    return LowWatermarks(found)
