"""ListOffsets (API key 2): returns the earliest or latest offset, or the offset of a timestamp.

With isolation level read_committed, offsets from the last stable offset on are not returned. There is no tiered
storage: the earliest local offset is the earliest offset, and there is no latest tiered offset. Version 0 returns a
list of offsets in descending order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.broker.replica import Replica
from chronik.log.timestamp_lookup import TimestampedBatch, TimestampedOffset, find_record, find_record_or_batch_start
from chronik.metadata.chunking import iter_chunks
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.errors import ErrorCode, KafkaError, RecordsTooLarge
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply
from chronik.scheduler import Steps

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

FIRST_VERSION_OF = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
UNKNOWN = -1
READ_COMMITTED = 1
FIRST_VERSION_WITH_NOT_AVAILABLE = 5

_OffsetResult = tuple[int, int, int]
"""Result of an offset lookup: offset, timestamp and leader epoch; UNKNOWN for missing values."""
NOT_FOUND: _OffsetResult = (UNKNOWN, UNKNOWN, UNKNOWN)

IMMEDIATE_PARTITIONS_MAX = 500
"""Maximum number of partitions of a ListOffsets request that are looked up in one event-loop iteration."""


def handle(services: Services, request: ListOffsetsRequest, context: RequestContext) -> Reply[ListOffsetsResponse]:
    """Return the requested offsets of partitions that this node leads (ListOffsets).

    The lookup is that of a consumer, regardless of the replica id in the request.

    Replicas use the peer protocol, and kafka-python 3.0.11 sends replica id 0.
    """
    lookup = _OffsetLookup(services, context, committed_only=request.isolation_level == READ_COMMITTED)
    if sum(len(topic.partitions) for topic in request.topics) > IMMEDIATE_PARTITIONS_MAX:
        return Reply.from_steps(lookup.look_up_all_offsets(request))
    wanted = _list_requested_partitions(request)
    if any(_is_timestamp_lookup(partition) for _, partition in wanted):
        return Reply.from_steps(lookup.look_up_all_offsets(request))
    lookup.count_partition_occurrences(wanted)
    return Reply.from_response(
        _build_response(request, [lookup.look_up_special_offset(topic, partition) for topic, partition in wanted])
    )


def _list_requested_partitions(request: ListOffsetsRequest) -> list[tuple[str, ListOffsetsPartition]]:
    return [(topic.name, partition) for topic in request.topics for partition in topic.partitions]


def _build_response(
    request: ListOffsetsRequest, answers: Iterable[ListOffsetsPartitionResponse]
) -> ListOffsetsResponse:
    in_order = iter(answers)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[next(in_order) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _build_offset_lookup_error(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _is_timestamp_lookup(wanted: ListOffsetsPartition) -> bool:
    return wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP


class _OffsetLookup:
    """A lookup of the offsets that a ListOffsets request asks for, by timestamp or by special offset."""

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        *,
        committed_only: bool,
    ) -> None:
        self._services = services
        self._committed_only = committed_only
        self._version = context.version
        self._may_see = build_authorization_predicate(services, context, AclOperation.DESCRIBE, AclResourceType.TOPIC)
        self._occurrences: Counter[tuple[str, int]] = Counter()
        self._loop_budget = DecompressionBudget.for_event_loop()

    def count_partition_occurrences(self, wanted: Iterable[tuple[str, ListOffsetsPartition]]) -> None:
        """Count how often a ListOffsets request contains each partition, to reject duplicates."""
        self._occurrences.update((topic, partition.partition_index) for topic, partition in wanted)

    def look_up_all_offsets(self, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
        """Look up the offsets of all requested partitions, in short event-loop steps."""
        wanted = _list_requested_partitions(request)
        for chunk in iter_chunks(wanted):
            self.count_partition_occurrences(chunk)
            yield None
        answers = []
        for topic, partition in wanted:
            if _is_timestamp_lookup(partition):
                answers.append((yield from self._look_up_timestamp(topic, partition)))
            else:
                answers.append(self.look_up_special_offset(topic, partition))
            yield None
        return _build_response(request, answers)

    def look_up_special_offset(self, topic: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        """Look up a special offset of a partition, such as LATEST or EARLIEST."""
        try:
            replica = self._find(topic, wanted)
            end_offset = replica.readable_end_offset(committed_only=self._committed_only)
            return self._build_offset_response(
                replica, wanted, _find_special_offset(replica, wanted.timestamp, end_offset)
            )
        except KafkaError as error:
            return _build_offset_lookup_error(wanted, error.code)

    def _look_up_timestamp(self, topic: str, wanted: ListOffsetsPartition) -> Steps[ListOffsetsPartitionResponse]:
        try:
            replica = self._find(topic, wanted)
            return self._build_offset_response(
                replica, wanted, (yield from self._search_offset_by_timestamp(replica, topic, wanted))
            )
        except KafkaError as error:
            return _build_offset_lookup_error(wanted, error.code)

    def _build_offset_response(
        self, replica: Replica, wanted: ListOffsetsPartition, found: _OffsetResult
    ) -> ListOffsetsPartitionResponse:
        offset, timestamp, epoch = found
        answer = ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, offset=offset, timestamp=timestamp, leader_epoch=epoch
        )
        if self._version == 0:
            answer.old_style_offsets = _list_legacy_offsets(replica, wanted, offset)
        return answer

    def _find(self, topic: str, wanted: ListOffsetsPartition) -> Replica:
        """Return the leader replica in which to look up an offset.

        Raise KafkaError if this node cannot serve the lookup or it is a duplicate.
        """
        if not self._may_see(topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._occurrences[topic, wanted.partition_index] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        replica = self._services.replicas.get_leader(topic, wanted.partition_index)
        replica.check_leader_epoch(wanted.current_leader_epoch)
        if self._version < FIRST_VERSION_OF.get(wanted.timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL) and not replica.is_high_watermark_known:
            known = self._version >= FIRST_VERSION_WITH_NOT_AVAILABLE
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
        return replica

    def _search_offset_by_timestamp(
        self, replica: Replica, topic: str, wanted: ListOffsetsPartition
    ) -> Steps[_OffsetResult]:
        """Return the offset of the first readable record at or after the requested timestamp, or NOT_FOUND.

        Search the first batch that may contain the record, then later batches if compaction removed the record.
        """
        found, start_offset = None, 0
        while found is None:
            if self._find(topic, wanted) is not replica:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            timed = _find_batch(replica, wanted.timestamp, start_offset)
            if timed is None:
                return NOT_FOUND
            found = yield from self._find_record(timed)
            start_offset = timed.end_offset
        return NOT_FOUND if found.offset >= replica.readable_end_offset(committed_only=self._committed_only) else found

    def _find_record(self, timed: TimestampedBatch) -> Steps[TimestampedOffset | None]:
        try:
            return find_record(timed, self._loop_budget)
        except RecordsTooLarge:
            budget = DecompressionBudget.for_request(len(timed.batch))
            return (
                yield from self._services.decompressor.run_in_thread_as_step(
                    partial(find_record_or_batch_start, timed), budget
                )
            )


def _find_batch(replica: Replica, timestamp: int, start_offset: int) -> TimestampedBatch | None:
    if timestamp == MAX_TIMESTAMP:
        return replica.log.find_batch_with_max_timestamp(start_offset)
    return replica.log.find_batch_by_timestamp(timestamp, start_offset)


def _find_special_offset(replica: Replica, timestamp: int, end_offset: int) -> _OffsetResult:
    log = replica.log
    if timestamp == LATEST:
        return end_offset, UNKNOWN, replica.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, UNKNOWN, log.epochs.find_epoch_at(log.log_start_offset)[0]
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _list_legacy_offsets(replica: Replica, wanted: ListOffsetsPartition, offset: int) -> list[int]:
    if wanted.max_num_offsets <= 0:
        return []
    if wanted.timestamp == LATEST:
        return sorted({offset, replica.log.log_start_offset}, reverse=True)[: wanted.max_num_offsets]
    return [offset if offset != UNKNOWN else replica.high_watermark]
