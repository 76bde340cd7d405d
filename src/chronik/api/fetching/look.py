"""One look at the partitions that a fetch wants: what can be read of each, or why not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from chronik.api.shared.context import Services
from chronik.api.shared.leaders import partition_of
from chronik.api.shared.rights import Judge
from chronik.broker.replica import Replica
from chronik.broker.requests.fetch_sessions import FetchPartition
from chronik.protocol.batch import end_offset
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_ENDPOINTS = 16
NOTHING_KNOWN = -1
UNTOLD = ErrorCode.OFFSET_NOT_AVAILABLE
"""Waited out, as far as the fetch may wait. Told as NOT_LEADER_OR_FOLLOWER to clients that are too old to know it."""
LOST_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Answer(msgspec.Struct):
    """What one look at the partitions found."""

    partitions: list[tuple[FetchPartition, PartitionData]]
    replicas: list[Replica]
    """The replicas of the partitions, in the same order, unless one of them failed."""
    records_bytes: int
    urgent: bool
    """There is something to say besides records: an error, a divergence."""
    committed_only: bool = False
    """Whether only records of transactions that were committed are read, and those outside of any (read_committed)."""

    @property
    def is_doubtful(self) -> bool:
        """Whether an offset is said not to exist. A leader that was replaced may lack what its successor has, and a
        consumer that believes it begins elsewhere."""
        return self.urgent and any(data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE for _, data in self.partitions)


def is_cut_off(answer: Answer) -> bool:
    """Says whether more can be read after what was found, which ends at a segment's end or a limit: why wait then?"""
    return answer.records_bytes > 0 and any(
        data.records and end_offset(_plain(data)) < replica.readable_end(committed_only=answer.committed_only)
        for (_, data), replica in zip(answer.partitions, answer.replicas, strict=True)
    )


def lost(wanted: Iterable[FetchPartition], answer: Answer) -> Answer:
    """Says of each partition that others may lead it by now. After an error for the whole request some clients do not
    look for new leaders, they only ask again."""
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer.partitions += [(each, nothing(each.partition, code)) for each in wanted]
    answer.urgent = True
    return answer


def look(
    services: Services,
    wanted: Iterable[FetchPartition],
    max_bytes: int,
    version: int,
    answer: Answer,
    may_read: Judge | None = None,
) -> Answer:
    """Adds what is found to the answer."""
    if services.is_fenced():
        return lost(wanted, answer)
    budget = max_bytes - answer.records_bytes
    for partition in wanted:
        try:
            if may_read is not None:
                _check_right(services, partition.topic, may_read)
            replica = _find(services, partition, version)
            data = _read(replica, partition, budget, answer)
            answer.replicas.append(replica)
        except KafkaError as error:
            data = nothing(partition.partition, error.code)
            if error.code in LOST_LEADER and version >= FIRST_VERSION_WITH_ENDPOINTS:
                _name_leader(services, partition, data)
        if (data.error_code and data.error_code != UNTOLD) or data.diverging_epoch.epoch >= 0:
            answer.urgent = True
        if data.records:
            size = len(_plain(data))
            answer.records_bytes += size
            budget -= size
        answer.partitions.append((partition, data))
    return answer


def _name_leader(services: Services, wanted: FetchPartition, data: PartitionData) -> None:
    """Its id would fit answers from version 12 on; but an id without an address may be of a broker that the client has
    not heard of, and kafka-python gives up on such."""
    partition = partition_of(services, wanted.topic, wanted.partition)
    if partition is not None:
        data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def _plain(data: PartitionData) -> memoryview:
    assert isinstance(data.records, memoryview)
    return data.records


def _check_right(services: Services, topic: str | bytes, may_read: Judge) -> None:
    """Raises KafkaError. An id that nobody knows has no name to ask about, and is told to be unknown."""
    if isinstance(topic, bytes):
        known = services.image.topics_by_id.get(topic)
        if known is None:
            return
        topic = known.name
    if not may_read(topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _find(services: Services, partition: FetchPartition, version: int) -> Replica:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        assert isinstance(partition.topic, bytes)
        return services.replicas.by_id(partition.topic, partition.partition)
    assert isinstance(partition.topic, str)
    return services.replicas.by_name(partition.topic, partition.partition)


def _read(replica: Replica, wanted: FetchPartition, budget: int, answer: Answer) -> PartitionData:
    replica.check_epoch(wanted.current_leader_epoch)
    if not replica.knows_high_watermark:
        # What earlier leaders have told may be more. It is known in a moment, and until then nothing is told.
        return nothing(wanted.partition, UNTOLD)
    log, high_watermark = replica.log, replica.high_watermark
    stable = log.last_stable_offset(high_watermark)
    data = PartitionData(
        partition_index=wanted.partition,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if answer.committed_only else None,
        records=b"",
    )
    if wanted.last_fetched_epoch >= 0:
        if wanted.fetch_offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        diverging = replica.divergence(wanted.fetch_offset, wanted.last_fetched_epoch, ErrorCode.OFFSET_OUT_OF_RANGE)
        if diverging is not None:
            data.diverging_epoch = EpochEndOffset(*diverging)
            return data
    # A batch larger than every limit is still sent when it is the first, or its consumer would be stuck forever.
    size, is_first = min(wanted.max_bytes, budget), answer.records_bytes == 0
    if size > 0 or is_first:
        # Between what may be read and the log's end there is nothing to see yet, but the offset is not wrong.
        end = stable if answer.committed_only else high_watermark
        data.records = log.read(wanted.fetch_offset, max(size, 0), end, min_one_batch=is_first)
        if answer.committed_only and data.records and log.has_aborted:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.aborted_in(data.records, wanted.fetch_offset)
            ]
    return data


def nothing(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=NOTHING_KNOWN,
        last_stable_offset=NOTHING_KNOWN,
        log_start_offset=NOTHING_KNOWN,
        aborted_transactions=None,
        records=b"",
    )
