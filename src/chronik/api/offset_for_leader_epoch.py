"""OffsetForLeaderEpoch: where an epoch ends, so that a reader can tell what still holds."""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do, may_with_cluster
from chronik.exchange import Reply
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from chronik.protocol.permissions import Operation, ResourceType


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: Context
) -> Reply[OffsetForLeaderEpochResponse]:
    return Reply.of_steps(_answer_all(services, request, context))


def _answer_all(
    services: Services, request: OffsetForLeaderEpochRequest, context: Context
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics: dict[str, dict[int, EpochEndOffset]] = {}
    sees_all = may_with_cluster(services, context, Operation.CLUSTER_ACTION, audited=False)
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC)
    for topic in request.topics:
        answers = topics.setdefault(topic.topic, {})
        for partition in topic.partitions:
            if partition.partition not in answers:
                is_seen = sees_all or may_see(topic.topic)
                answers[partition.partition] = (
                    _answer(services, topic.topic, partition) if is_seen else _refused(partition)
                )
                yield
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=name, partitions=list(answers.values()))
            for name, answers in topics.items()
        ]
    )


def _refused(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _answer(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        replica = services.replicas.by_name(topic, wanted.partition)
        replica.check_epoch(wanted.current_leader_epoch)
        epoch, end_offset = replica.log.epoch_end_offset(wanted.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    # Not only up to the high watermark: after an election that may still be behind what the reader has seen.
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
