"""ListOffsets, versions 0 to 11: the earliest offset, the next one, that of the newest record, or the first at a time.

Nothing is tiered here: the earliest local offset is the earliest, and there is no latest tiered one.
Version 0 answers a list of offsets, newest first, as it did when segments were all a broker could tell.
"""

from __future__ import annotations

from chronik.api.context import Context, Services
from chronik.broker.replica import Replica
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
UNKNOWN = -1
FIRST_VERSION_WITH_NOT_AVAILABLE = 5


def handle(services: Services, request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse:
    """Whoever asks is a consumer: no replica asks here, and kafka-python 3.0.11 calls itself replica 0."""
    response = ListOffsetsResponse()
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            try:
                replica = services.replicas.by_name(topic.name, wanted.partition_index)
                partitions.append(_answer(replica, wanted, context.version))
            except KafkaError as error:
                partitions.append(_failed(wanted, error.code))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return response


def failure(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_failed(partition, code) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _answer(replica: Replica, wanted: ListOffsetsPartition, version: int) -> ListOffsetsPartitionResponse:
    replica.check_epoch(wanted.current_leader_epoch)
    offset, timestamp, epoch = _find(replica, wanted.timestamp, version)
    answer = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, offset=offset, timestamp=timestamp, leader_epoch=epoch
    )
    if version == 0:
        answer.old_style_offsets = _old_style(replica, wanted, offset)
    return answer


def _find(replica: Replica, timestamp: int, version: int) -> tuple[int, int, int]:
    """Offset, timestamp and leader epoch; each -1 where there is none."""
    log = replica.log
    if version < FIRST_VERSION_OF.get(timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp not in (EARLIEST, EARLIEST_LOCAL) and not replica.knows_high_watermark:
        known = version >= FIRST_VERSION_WITH_NOT_AVAILABLE
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
    if timestamp == LATEST:
        return replica.last_stable_offset, UNKNOWN, replica.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, UNKNOWN, log.epochs.range_at(log.log_start_offset)[0]
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp_offset()
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        found = None
    elif timestamp < 0:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    else:
        found = log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= replica.high_watermark:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return found.offset, found.timestamp, found.leader_epoch


def _old_style(replica: Replica, wanted: ListOffsetsPartition, offset: int) -> list[int]:
    if wanted.max_num_offsets <= 0:
        return []
    if wanted.timestamp == LATEST:
        return sorted({offset, replica.log.log_start_offset}, reverse=True)[: wanted.max_num_offsets]
    return [offset if offset != UNKNOWN else replica.high_watermark]
