"""The one entry point that changes an image.

Same image and same commands in the same order give the same image, results and state hash, on every node and in
every process: nothing here reads a clock, a random number, the environment or the order of a set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from chronik.errors import invariant
from chronik.metadata import commands as c
from chronik.metadata.delta import Delta
from chronik.metadata.handlers import brokers, cluster, groups, partitions, topics
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.rejection import Rejected
from chronik.metadata.sessions import answer_known
from chronik.metadata.writer import ImageWriter

Handler = Callable[[ImageWriter, Any, int], Result]

HANDLERS: Final[dict[type[c.Base], Handler]] = {
    c.CreateCluster: cluster.create_cluster,
    c.AddNode: cluster.add_node,
    c.RemoveNode: cluster.remove_node,
    c.SetFeatureLevel: cluster.set_feature_level,
    c.AllocateProducerIds: cluster.allocate_producer_ids,
    c.RegisterBroker: brokers.register_broker,
    c.UpdateBrokerStatus: brokers.update_broker_status,
    c.RemoveBroker: brokers.remove_broker,
    c.UpdateBrokerConfig: brokers.update_broker_config,
    c.CreateTopic: topics.create_topic,
    c.CreateTopics: topics.create_topics,
    c.DeleteTopic: topics.delete_topic,
    c.UpdateTopicConfig: topics.update_topic_config,
    c.CreatePartitions: topics.create_partitions,
    c.AssignPartition: partitions.assign_partition,
    c.SetPartitionLeader: partitions.set_partition_leader,
    c.UpdateISR: partitions.update_isr,
    c.UpdatePartitionOffset: partitions.update_partition_offset,
    c.ReassignPartitions: partitions.reassign_partitions,
    c.ElectLeaders: partitions.elect_leaders,
    c.ReportLostRecords: partitions.report_lost_records,
    c.CreateConsumerGroup: groups.create_consumer_group,
    c.UpdateConsumerGroup: groups.update_consumer_group,
    c.DeleteConsumerGroup: groups.delete_consumer_group,
    c.UpdateGroupConfig: groups.update_group_config,
    c.CommitOffset: groups.commit_offset,
    c.CommitOffsetBatch: groups.commit_offset_batch,
    c.DeleteOffsets: groups.delete_offsets,
    c.ExpireOffsets: groups.expire_offsets,
}


class Applied(NamedTuple):
    result: Result
    delta: Delta


def apply(image: Image, envelope: c.Envelope, index: int) -> Applied:
    """Applies the command at `index` of the log, once: one that was applied before gets its first result again."""
    invariant(index == image.applied_index + 1, f"index {index} applied after {image.applied_index}")
    writer = ImageWriter(image)
    session = image.session(envelope.node_id)
    result = answer_known(session, envelope.incarnation, envelope.sequence)
    if result is None:
        result = _handle(writer, envelope.command, index)
        writer.remember(envelope.node_id, envelope.incarnation, envelope.sequence, envelope.answered, result)
    return Applied(result, writer.finish(index))


def skip(image: Image, index: int) -> None:
    """Skips an entry of the log that holds no command, such as the one with which a new leader begins its term."""
    invariant(index == image.applied_index + 1, f"index {index} applied after {image.applied_index}")
    ImageWriter(image).finish(index)


def _handle(writer: ImageWriter, command: c.Command, index: int) -> Result:
    try:
        return replace(HANDLERS[type(command)](writer, command, index), index=index)
    except Rejected as rejected:
        invariant(not writer.touched, f"{type(command).__name__} was rejected after it had changed the image")
        return Result(rejected.code, rejected.message, index=index)
