"""Reads records by partition and offset. There is no group membership here: who reads what is the caller's choice.

Records of transactions that are open or aborted are read too (Kafka's `read_uncommitted`, its default).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from chronik.client.cluster import Cluster, raise_for
from chronik.client.offsets import by_leader, by_topic, earliest_offsets, latest_offsets
from chronik.client.records import ConsumedRecord, TopicPartition
from chronik.limits import MIB
from chronik.protocol.batch import iter_batches
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from chronik.protocol.records import Record, decode_batch

FETCH_BYTES_MAX: Final = 16 * MIB
PARTITION_BYTES_MAX: Final = MIB
"""Kafka's `max.partition.fetch.bytes`: no partition starves the others."""

NO_SESSION_EPOCH: Final = -1


class Consumer:
    """`positions` says for every partition which offset comes next; it may be changed between two polls."""

    def __init__(self, cluster: Cluster, positions: Mapping[TopicPartition, int]) -> None:
        self._cluster = cluster
        self.positions = dict(positions)

    def poll(self, wait_s: float = 0.5, only: Sequence[TopicPartition] | None = None) -> list[ConsumedRecord]:
        """Returns what comes next, in order within each partition; an empty list when nothing came in `wait_s`.

        Raises ClientError or KafkaError, with OFFSET_OUT_OF_RANGE when a position no longer exists; then no position
        has moved.
        """
        partitions = list(self.positions) if only is None else only
        fetched = self._cluster.retrying(lambda: self._poll(partitions, wait_s))
        self.positions.update((each.partition, each.next_offset) for each in fetched)
        return [record for each in fetched for record in each.records]

    def read_until(self, ends: Mapping[TopicPartition, int]) -> Iterator[ConsumedRecord]:
        """Yields everything before these offsets; partitions that `ends` does not name are left alone."""
        while unfinished := [each for each, offset in self.positions.items() if offset < ends.get(each, 0)]:
            for record in self.poll(only=unfinished):
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    yield record

    def _poll(self, partitions: Sequence[TopicPartition], wait_s: float) -> list[_Fetched]:
        fetched: list[_Fetched] = []
        led = by_leader(self._cluster, partitions)
        for leader_id, its_partitions in led.items():
            # When something was found, the brokers that come after are not waited for.
            share_s = 0.0 if any(each.records for each in fetched) else wait_s / len(led)
            fetched += self._fetch(leader_id, its_partitions, share_s)
        return fetched

    def _fetch(self, leader_id: int, partitions: list[TopicPartition], wait_s: float) -> list[_Fetched]:
        request = FetchRequest(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            session_epoch=NO_SESSION_EPOCH,
            topics=[
                FetchTopic(topic=topic, partitions=[self._wanted(TopicPartition(topic, index)) for index in indexes])
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        response = self._cluster.broker(leader_id).request(request, FetchResponse, wait_s=wait_s)
        raise_for(response.error_code, "fetch")
        return [
            _opened(partition, self.positions[partition], data)
            for topic in response.responses
            for data in topic.partitions
            if (partition := TopicPartition(topic.topic, data.partition_index))
        ]

    def _wanted(self, partition: TopicPartition) -> FetchPartition:
        return FetchPartition(
            partition=partition.partition,
            fetch_offset=self.positions[partition],
            partition_max_bytes=PARTITION_BYTES_MAX,
        )


class _Fetched(NamedTuple):
    partition: TopicPartition
    records: list[ConsumedRecord]
    next_offset: int


def _opened(partition: TopicPartition, wanted_from: int, data: PartitionData) -> _Fetched:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        message = f"{partition}: offset {wanted_from} is outside the range that the partition holds"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    raise_for(data.error_code, str(partition))
    records: list[ConsumedRecord] = []
    next_offset = wanted_from
    raw = cast(memoryview, data.records or b"")  # a decoder yields no lists
    for position, header in iter_batches(raw, partial_tail=True):
        if not header.is_control:
            records += _consumed(partition, wanted_from, decode_batch(raw, position))
        # Also past batches without a record for us: control batches, and those that compaction has emptied.
        next_offset = max(next_offset, header.next_offset)
    return _Fetched(partition, records, next_offset)


def _consumed(partition: TopicPartition, wanted_from: int, batch: list[Record]) -> Iterator[ConsumedRecord]:
    """A broker sends whole batches: what stands before the wanted offset is left out."""
    for offset, timestamp, key, value, headers in batch:
        if offset >= wanted_from:
            yield ConsumedRecord(*partition, offset, timestamp, key, value, headers)


def read_all(cluster: Cluster, topic: str) -> list[ConsumedRecord]:
    """Returns everything that a topic holds now, ordered by partition and offset."""
    partitions = cluster.retrying(lambda: cluster.partitions(topic))
    consumer = Consumer(cluster, earliest_offsets(cluster, partitions))
    records = consumer.read_until(latest_offsets(cluster, partitions))
    return sorted(records, key=lambda record: (record.partition, record.offset))
