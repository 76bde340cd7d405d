"""ListOffsets: the earliest offset, the next one, that of the newest record, or the first at a time.

Whoever reads only what was committed (`isolation_level` 1) is told of nothing from the last stable offset on. Nothing
is tiered here: the earliest local offset is the earliest, and there is no latest tiered one.
Version 0 answers a list of offsets, newest first, as it did when segments were all a broker could tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.broker.replica import Replica
from chronik.exchange import Reply
from chronik.log.times import TimedBatch, TimedOffset, first_in, first_or_start
from chronik.metadata.slices import in_pieces
from chronik.protocol.budget import Budget
from chronik.protocol.errors import ErrorCode, KafkaError, RecordsTooLarge
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from chronik.protocol.permissions import Operation, ResourceType
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

_Found = tuple[int, int, int]
"""Offset, timestamp and leader epoch; each UNKNOWN where there is none."""
NOWHERE: _Found = (UNKNOWN, UNKNOWN, UNKNOWN)

AT_ONCE_MAX = 500
"""Partitions for which an answer need not wait for a task's turn. Each takes some µs."""


def handle(services: Services, request: ListOffsetsRequest, context: Context) -> Reply[ListOffsetsResponse]:
    """Takes everybody for a consumer: no replica asks here, and kafka-python 3.0.11 calls itself replica 0."""
    listing = _Listing(services, context, committed_only=request.isolation_level == READ_COMMITTED)
    if sum(len(topic.partitions) for topic in request.topics) > AT_ONCE_MAX:
        return Reply.of_steps(listing.in_steps(request))
    wanted = _wanted(request)
    if any(_is_by_time(partition) for _, partition in wanted):
        return Reply.of_steps(listing.in_steps(request))
    listing.count(wanted)
    return Reply.of(_response(request, [listing.by_name(topic, partition) for topic, partition in wanted]))


def _wanted(request: ListOffsetsRequest) -> list[tuple[str, ListOffsetsPartition]]:
    return [(topic.name, partition) for topic in request.topics for partition in topic.partitions]


def _response(request: ListOffsetsRequest, answers: Iterable[ListOffsetsPartitionResponse]) -> ListOffsetsResponse:
    in_order = iter(answers)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[next(in_order) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _is_by_time(wanted: ListOffsetsPartition) -> bool:
    return wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP


class _Listing:
    """One request, while its partitions are looked for."""

    def __init__(
        self,
        services: Services,
        context: Context,
        *,
        committed_only: bool,
    ) -> None:
        self._services = services
        self._committed_only = committed_only
        self._version = context.version
        self._may_see = may_do(services, context, Operation.DESCRIBE, ResourceType.TOPIC)
        self._named: Counter[tuple[str, int]] = Counter()
        self._at_once = Budget.on_loop()

    def count(self, wanted: Iterable[tuple[str, ListOffsetsPartition]]) -> None:
        """Count how often each partition is named: one that is named twice is rejected."""
        self._named.update((topic, partition.partition_index) for topic, partition in wanted)

    def in_steps(self, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
        wanted = _wanted(request)
        for some in in_pieces(wanted):
            self.count(some)
            yield None
        answers = []
        for topic, partition in wanted:
            if _is_by_time(partition):
                answers.append((yield from self._by_time(topic, partition)))
            else:
                answers.append(self.by_name(topic, partition))
            yield None
        return _response(request, answers)

    def by_name(self, topic: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        try:
            replica = self._find(topic, wanted)
            end_offset = replica.readable_end(committed_only=self._committed_only)
            return self._answer(replica, wanted, _named(replica, wanted.timestamp, end_offset))
        except KafkaError as error:
            return _failed(wanted, error.code)

    def _by_time(self, topic: str, wanted: ListOffsetsPartition) -> Steps[ListOffsetsPartitionResponse]:
        try:
            replica = self._find(topic, wanted)
            return self._answer(replica, wanted, (yield from self._search(replica, topic, wanted)))
        except KafkaError as error:
            return _failed(wanted, error.code)

    def _answer(self, replica: Replica, wanted: ListOffsetsPartition, found: _Found) -> ListOffsetsPartitionResponse:
        offset, timestamp, epoch = found
        answer = ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, offset=offset, timestamp=timestamp, leader_epoch=epoch
        )
        if self._version == 0:
            answer.old_style_offsets = _old_style(replica, wanted, offset)
        return answer

    def _find(self, topic: str, wanted: ListOffsetsPartition) -> Replica:
        """Raises KafkaError, also when the replica cannot tell yet; INVALID_REQUEST as Kafka does."""
        if not self._may_see(topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._named[topic, wanted.partition_index] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        replica = self._services.replicas.by_name(topic, wanted.partition_index)
        replica.check_epoch(wanted.current_leader_epoch)
        if self._version < FIRST_VERSION_OF.get(wanted.timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if wanted.timestamp not in (EARLIEST, EARLIEST_LOCAL) and not replica.knows_high_watermark:
            known = self._version >= FIRST_VERSION_WITH_NOT_AVAILABLE
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
        return replica

    def _search(self, replica: Replica, topic: str, wanted: ListOffsetsPartition) -> Steps[_Found]:
        """Looks in the batch where it must be; and in the next one, if it was among deleted records of the first."""
        found, start_offset = None, 0
        while found is None:
            if self._find(topic, wanted) is not replica:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            timed = _batch_of(replica, wanted.timestamp, start_offset)
            if timed is None:
                return NOWHERE
            found = yield from self._record_of(timed)
            start_offset = timed.end_offset
        return NOWHERE if found.offset >= replica.readable_end(committed_only=self._committed_only) else found

    def _record_of(self, timed: TimedBatch) -> Steps[TimedOffset | None]:
        try:
            return first_in(timed, self._at_once)
        except RecordsTooLarge:
            budget = Budget.for_bytes(len(timed.batch))
            return (yield from self._services.openings.steps_in_thread(partial(first_or_start, timed), budget))


def _batch_of(replica: Replica, timestamp: int, start_offset: int) -> TimedBatch | None:
    if timestamp == MAX_TIMESTAMP:
        return replica.log.batch_with_max_timestamp(start_offset)
    return replica.log.batch_for_timestamp(timestamp, start_offset)


def _named(replica: Replica, timestamp: int, end_offset: int) -> _Found:
    log = replica.log
    if timestamp == LATEST:
        return end_offset, UNKNOWN, replica.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, UNKNOWN, log.epochs.range_at(log.log_start_offset)[0]
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOWHERE
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _old_style(replica: Replica, wanted: ListOffsetsPartition, offset: int) -> list[int]:
    if wanted.max_num_offsets <= 0:
        return []
    if wanted.timestamp == LATEST:
        return sorted({offset, replica.log.log_start_offset}, reverse=True)[: wanted.max_num_offsets]
    return [offset if offset != UNKNOWN else replica.high_watermark]
