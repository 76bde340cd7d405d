"""Handlers of topic commands: creation, configs, partitions and deletion."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from chronik.ids import ZERO_ID, format_id
from chronik.limits import TOPIC_PARTITIONS_MAX
from chronik.metadata.commands.topics import (
    NO_LEADER,
    TOPICS_PER_COMMAND_MAX,
    CreatePartitions,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    PartitionAssignment,
    UpdateTopicConfig,
)
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.configs import apply_config_changes, validate_configs
from chronik.metadata.image import Image
from chronik.metadata.names import find_topic_name_error, format_topic_metric_name
from chronik.metadata.records import ApplyResult, CommandRejectedError, ItemFailure, Partition, Topic
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode
from chronik.wording import pluralize


def create_topic(writer: ImageWriter, command: CreateTopic, index: int) -> ApplyResult:
    """Apply a CreateTopic command: create a topic with all its partitions."""
    check_topic_name(writer.image, command)
    partitions = build_partitions(writer.image, command.partitions, existing=0)
    configs = validate_configs(command.configs)
    writer.add_topic(
        Topic(
            id=command.topic_id,
            name=command.name,
            partitions=partitions,
            configs=configs,
            created_ms=command.time_ms,
            internal=command.internal,
        )
    )
    return ApplyResult()


def create_topics(writer: ImageWriter, command: CreateTopics, index: int) -> ApplyResult:
    """Apply a CreateTopics command: create several topics, each of which succeeds or fails separately."""
    if len(command.topics) > TOPICS_PER_COMMAND_MAX:
        raise CommandRejectedError(
            ErrorCode.INVALID_REQUEST, f"more than {TOPICS_PER_COMMAND_MAX} topics in one command"
        )
    failures: list[ItemFailure] = []
    for item, topic in enumerate(command.topics):
        try:
            create_topic(writer, topic, index)
        except CommandRejectedError as rejected:
            failures.append(ItemFailure(item, rejected.code, rejected.message))
    return ApplyResult(failures=tuple(failures))


def delete_topic(writer: ImageWriter, command: DeleteTopic, index: int) -> ApplyResult:
    """Apply a DeleteTopic command: delete a topic, its offsets, and its partitions in open transactions."""
    topic = require_topic(writer.image, command.topic_id)
    for group_id in writer.image.find_groups_with_offsets_of_topic(topic.name):
        writer.remove_offsets_of_topic(group_id, topic.name)
    writer.remove_staged_offsets_of_topic(topic.name)
    for transaction in writer.image.transactions_with_topic(topic.id):
        left = tuple(each for each in transaction.partitions if each.topic_id != topic.id)
        writer.put_transaction(replace(transaction, partitions=left))
    writer.remove_topic(topic)
    return ApplyResult()


def update_topic_config(writer: ImageWriter, command: UpdateTopicConfig, index: int) -> ApplyResult:
    """Apply an UpdateTopicConfig command: change the configs of a topic."""
    topic = require_topic(writer.image, command.topic_id)
    configs = apply_config_changes(topic.configs, command.set, command.delete, replace=command.replace)
    if configs != topic.configs:
        writer.set_topic_configs(topic, configs, _get_changed_ms(topic, command.time_ms))
    return ApplyResult()


def create_partitions(writer: ImageWriter, command: CreatePartitions, index: int) -> ApplyResult:
    """Apply a CreatePartitions command: add partitions to a topic."""
    topic = require_topic(writer.image, command.topic_id)
    count = len(topic.partitions)
    if command.partition_count != count:
        found = pluralize(count, "partition")
        message = f"topic {topic.name} has {found}, not {command.partition_count} as when this was asked for"
        raise CommandRejectedError(ErrorCode.INVALID_PARTITIONS, message)
    if any(partition.is_reassigning for partition in topic.partitions):
        raise CommandRejectedError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of topic {topic.name} are being reassigned"
        )
    partitions = build_partitions(writer.image, command.partitions, existing=count)
    if len(partitions[0].replicas) != topic.replication_factor:
        message = f"the replication factor of topic {topic.name} is {topic.replication_factor}"
        raise CommandRejectedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    writer.add_partitions(topic, partitions, _get_changed_ms(topic, command.time_ms))
    return ApplyResult()


def _get_changed_ms(topic: Topic, time_ms: int) -> int:
    return topic.changed_ms if time_ms < 0 else time_ms


def require_topic(image: Image, topic_id: bytes) -> Topic:
    """Return the topic with this id, or reject the command if the topic does not exist.

    Raises:
        CommandRejectedError: The topic does not exist.
    """
    topic = image.all_topics_by_id.get(topic_id)
    if topic is None:
        raise CommandRejectedError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {format_id(topic_id)}")
    return topic


def require_partition(image: Image, topic_id: bytes, number: int) -> tuple[Topic, Partition]:
    """Return a topic and one of its partitions, or reject the command if either does not exist.

    Raises:
        CommandRejectedError: The topic or the partition does not exist.
    """
    topic = require_topic(image, topic_id)
    if number >= len(topic.partitions):
        raise CommandRejectedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {number}"
        )
    return topic, topic.partitions[number]


def check_topic_name(image: Image, command: CreateTopic) -> None:
    """Check that a new topic's name and id are valid and unused.

    Raises:
        CommandRejectedError: They are not.
    """
    name = command.name
    fault = find_topic_name_error(name)
    if fault is not None:
        raise CommandRejectedError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name in image.topics:
        raise CommandRejectedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    if name in image.importing_topics:
        raise CommandRejectedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} is being imported")
    other = image.find_topic_by_metric_name(format_topic_metric_name(name))
    if other is not None:
        message = f"topic {name} collides with {other}: '.' and '_' are the same in the names of metrics"
        raise CommandRejectedError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    if command.topic_id == ZERO_ID or command.topic_id in image.all_topics_by_id:
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, f"topic id {format_id(command.topic_id)} cannot be used")


def build_partitions(
    image: Image, assignments: Sequence[PartitionAssignment], *, existing: int
) -> tuple[Partition, ...]:
    """Return new partitions with the given assignments.

    Raises:
        CommandRejectedError: An assignment is invalid.
    """
    if not assignments:
        raise CommandRejectedError(ErrorCode.INVALID_PARTITIONS, "no partitions")
    if existing + len(assignments) > TOPIC_PARTITIONS_MAX:
        raise CommandRejectedError(
            ErrorCode.INVALID_PARTITIONS, f"more than {TOPIC_PARTITIONS_MAX} partitions in one topic"
        )
    factor = len(assignments[0].replicas)
    # Equal assignments are checked once: a large topic has many, and checking 10,000 would block the event loop.
    partitions: dict[PartitionAssignment, Partition] = {}
    for number, assignment in enumerate(assignments, existing):
        if assignment in partitions:
            continue
        if len(assignment.replicas) != factor:
            message = f"partition {number} has {len(assignment.replicas)} replicas, others have {factor}"
            raise CommandRejectedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        check_replicas(image, number, assignment.replicas)
        _check_isr_and_leader(image, number, assignment)
        # The ISR usually equals the replicas: share one tuple.
        isr = assignment.replicas if assignment.isr == assignment.replicas else assignment.isr
        partitions[assignment] = Partition(assignment.replicas, isr, assignment.leader)
    return tuple(partitions[assignment] for assignment in assignments)


def check_replicas(image: Image, number: int, replicas: tuple[int, ...]) -> None:
    """Check that the replicas of a partition are known and distinct brokers.

    A replica may be a node that has not registered as a broker yet: the creation of system topics does not wait for it.
    """
    if not replicas:
        raise CommandRejectedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} has no replicas")
    for position, replica in enumerate(replicas):
        if replica in replicas[:position]:
            raise CommandRejectedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} names broker {replica} twice"
            )
        if replica not in image.brokers and replica not in image.nodes:
            raise CommandRejectedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} names unknown broker {replica}"
            )


def _check_isr_and_leader(image: Image, number: int, assignment: PartitionAssignment) -> None:
    """Reject a new partition whose leader is not in its ISR, or whose ISR contains an unknown or fenced broker."""
    isr, leader = assignment.isr, assignment.leader
    for position, member in enumerate(isr):
        if member not in assignment.replicas or member in isr[:position]:
            raise CommandRejectedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"ISR of partition {number} is not of its replicas"
            )
        if not is_broker_alive(image, member):
            raise CommandRejectedError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {member} in the ISR of partition {number} is away"
            )
    if leader == NO_LEADER and isr:
        raise CommandRejectedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} has an ISR and no leader")
    if leader != NO_LEADER and leader not in isr:
        raise CommandRejectedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"leader of partition {number} is not in its ISR"
        )


def is_broker_alive(image: Image, broker_id: int) -> bool:
    """Return whether the broker is registered and not fenced."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced


HANDLERS: CommandHandlers = {
    CreateTopic: create_topic,
    CreateTopics: create_topics,
    DeleteTopic: delete_topic,
    UpdateTopicConfig: update_topic_config,
    CreatePartitions: create_partitions,
}
