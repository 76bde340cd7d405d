"""OffsetForLeaderEpoch (API key 23): returns the end offset of a leader epoch, so that clients detect truncation."""

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
    return Reply.of_steps(_find_all(services, request, context))


def _find_all(
    services: Services, request: OffsetForLeaderEpochRequest, context: Context
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics: dict[str, dict[int, EpochEndOffset]] = {}
    may_see_all = may_with_cluster(services, context, Operation.CLUSTER_ACTION, audited=False)
    may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC)
    for topic in request.topics:
        answers = topics.setdefault(topic.topic, {})
        for partition in topic.partitions:
            if partition.partition not in answers:
                is_visible = may_see_all or may_see(topic.topic)
                answers[partition.partition] = (
                    _find_end_offset(services, topic.topic, partition) if is_visible else _unauthorized(partition)
                )
                yield
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=name, partitions=list(answers.values()))
            for name, answers in topics.items()
        ]
    )


def _unauthorized(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _find_end_offset(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        replica = services.replicas.by_name(topic, wanted.partition)
        replica.check_epoch(wanted.current_leader_epoch)
        epoch, end_offset = replica.log.epoch_end_offset(wanted.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    # Not limited to the high watermark, which may be behind the client's position after an election.
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
