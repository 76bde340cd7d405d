"""OffsetForLeaderEpoch (API key 23): returns the end offset of a leader epoch, so that clients detect truncation."""

from __future__ import annotations

from collections.abc import Generator

from chronik.api.shared.authorization import build_authorization_predicate, is_authorized_on_cluster
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply


def handle(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Reply[OffsetForLeaderEpochResponse]:
    return Reply.from_steps(_find_epoch_end_offsets(services, request, context))


def _find_epoch_end_offsets(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics: dict[str, dict[int, EpochEndOffset]] = {}
    may_see_all = is_authorized_on_cluster(services, context, AclOperation.CLUSTER_ACTION, audited=False)
    may_see = build_authorization_predicate(services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC)
    for topic in request.topics:
        answers = topics.setdefault(topic.topic, {})
        for partition in topic.partitions:
            if partition.partition not in answers:
                is_visible = may_see_all or may_see(topic.topic)
                answers[partition.partition] = (
                    _find_epoch_end_offset(services, topic.topic, partition)
                    if is_visible
                    else _build_unauthorized_epoch_result(partition)
                )
                yield
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=name, partitions=list(answers.values()))
            for name, answers in topics.items()
        ]
    )


def _build_unauthorized_epoch_result(wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _find_epoch_end_offset(services: Services, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        replica = services.replicas.get_leader(topic, wanted.partition)
        replica.check_leader_epoch(wanted.current_leader_epoch)
        epoch, end_offset = replica.log.find_end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    # Not limited to the high watermark, which may be behind the client's position after an election.
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
