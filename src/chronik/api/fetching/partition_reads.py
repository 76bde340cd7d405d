"""Reads of the partitions that a fetch requests: the records and offsets of each, or its error."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chronik.api.shared.authorization import NamePredicate
from chronik.api.shared.context import Services
from chronik.api.shared.leaders import find_partition
from chronik.broker.replica import Replica
from chronik.broker.requests.fetch_sessions import SessionPartition
from chronik.protocol.batch import end_offset
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.fetch import (
    FetchAbortedTransaction,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    PartitionData,
)

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_ENDPOINTS = 16
UNKNOWN_OFFSET = -1
HIGH_WATERMARK_UNKNOWN = ErrorCode.OFFSET_NOT_AVAILABLE
"""The high watermark of a new leader is not known yet.

The fetch waits for it. Clients that are too old for this error receive NOT_LEADER_OR_FOLLOWER.
"""
LEADERSHIP_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchedPartitions(msgspec.Struct):
    """The partitions that one pass of a fetch has read."""

    partitions: list[tuple[SessionPartition, PartitionData]]
    replicas: list[Replica]
    """The replicas of the partitions, in the same order; incomplete if a partition has an error."""
    records_bytes: int
    is_urgent: bool
    """Whether the response must not wait for records: it contains an error or a diverging epoch."""
    committed_only: bool = False
    """Whether only committed records are read (isolation level read_committed)."""

    @property
    def needs_confirmation(self) -> bool:
        """Return whether a partition has OFFSET_OUT_OF_RANGE, which must be confirmed before it is returned.

        A leader that was replaced may lack records of its successor, and a consumer would reset its position.
        """
        return self.is_urgent and any(data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE for _, data in self.partitions)


def has_more_records(result: FetchedPartitions) -> bool:
    """Return whether a partition has more readable records than were read, so that the fetch need not wait.

    A read stops at the end of a segment or at a size limit.
    """
    return result.records_bytes > 0 and any(
        data.records
        and end_offset(_records_view(data)) < replica.readable_end_offset(committed_only=result.committed_only)
        for (_, data), replica in zip(result.partitions, result.replicas, strict=True)
    )


def add_not_leader_errors(wanted: Iterable[SessionPartition], result: FetchedPartitions) -> FetchedPartitions:
    """Add NOT_LEADER_OR_FOLLOWER for each partition.

    After an error for the whole request, some clients only retry instead of looking for new leaders.
    """
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    result.partitions += [(each, error_data(each.partition, code)) for each in wanted]
    result.is_urgent = True
    return result


def read_partitions(
    services: Services,
    wanted: Iterable[SessionPartition],
    max_bytes: int,
    version: int,
    result: FetchedPartitions,
    may_read: NamePredicate | None = None,
) -> FetchedPartitions:
    """Read the partitions up to `max_bytes` in total, and add them to the result."""
    if services.is_fenced():
        return add_not_leader_errors(wanted, result)
    budget = max_bytes - result.records_bytes
    for partition in wanted:
        try:
            if may_read is not None:
                _require_read_permission(services, partition.topic, may_read)
            replica = _find(services, partition, version)
            data = _read(replica, partition, budget, result)
            result.replicas.append(replica)
        except KafkaError as error:
            data = error_data(partition.partition, error.code)
            if error.code in LEADERSHIP_ERRORS and version >= FIRST_VERSION_WITH_ENDPOINTS:
                _set_current_leader(services, partition, data)
        if (data.error_code and data.error_code != HIGH_WATERMARK_UNKNOWN) or data.diverging_epoch.epoch >= 0:
            result.is_urgent = True
        if data.records:
            size = len(_records_view(data))
            result.records_bytes += size
            budget -= size
        result.partitions.append((partition, data))
    return result


def _set_current_leader(services: Services, wanted: SessionPartition, data: PartitionData) -> None:
    """Set the current leader in the partition's response.

    Versions from 12 on have a field for the leader's id, but only versions from 16 on for its endpoint. An id alone may
    belong to a broker that the client does not know, which is fatal for kafka-python.
    """
    partition = find_partition(services, wanted.topic, wanted.partition)
    if partition is not None:
        data.current_leader = FetchLeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def _records_view(data: PartitionData) -> memoryview:
    assert isinstance(data.records, memoryview)
    return data.records


def _require_read_permission(services: Services, topic: str | bytes, may_read: NamePredicate) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED unless the client may read the topic.

    An unknown topic id has no name to authorize; it fails later as unknown.
    """
    if isinstance(topic, bytes):
        known = services.image.topics_by_id.get(topic)
        if known is None:
            return
        topic = known.name
    if not may_read(topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _find(services: Services, partition: SessionPartition, version: int) -> Replica:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        assert isinstance(partition.topic, bytes)
        return services.replicas.get_leader_by_id(partition.topic, partition.partition)
    assert isinstance(partition.topic, str)
    return services.replicas.get_leader(partition.topic, partition.partition)


def _read(replica: Replica, wanted: SessionPartition, budget: int, result: FetchedPartitions) -> PartitionData:
    replica.check_epoch(wanted.current_leader_epoch)
    if not replica.is_high_watermark_known:
        # Earlier leaders may have returned a higher one. Wait until it is known.
        return error_data(wanted.partition, HIGH_WATERMARK_UNKNOWN)
    log, high_watermark = replica.log, replica.high_watermark
    stable = log.last_stable_offset(high_watermark)
    data = PartitionData(
        partition_index=wanted.partition,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if result.committed_only else None,
        records=b"",
    )
    if wanted.last_fetched_epoch >= 0:
        if wanted.fetch_offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        diverging = replica.find_divergence(
            wanted.fetch_offset, wanted.last_fetched_epoch, ErrorCode.OFFSET_OUT_OF_RANGE
        )
        if diverging is not None:
            data.diverging_epoch = FetchEpochEndOffset(*diverging)
            return data
    # Return the first batch even if it exceeds every limit; otherwise its consumer would make no progress.
    size, is_first = min(wanted.max_bytes, budget), result.records_bytes == 0
    if size > 0 or is_first:
        # An offset between the readable end and the log end is valid, although there are no records to read yet.
        end = stable if result.committed_only else high_watermark
        data.records = log.read(wanted.fetch_offset, max(size, 0), end, min_one_batch=is_first)
        if result.committed_only and data.records and log.has_aborted_transactions:
            data.aborted_transactions = [
                FetchAbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.find_aborted_transactions(data.records, wanted.fetch_offset)
            ]
    return data


def error_data(partition: int, code: ErrorCode) -> PartitionData:
    """Return the partition's response with an error code and without records."""
    return PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=UNKNOWN_OFFSET,
        last_stable_offset=UNKNOWN_OFFSET,
        log_start_offset=UNKNOWN_OFFSET,
        aborted_transactions=None,
        records=b"",
    )
