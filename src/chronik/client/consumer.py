"""A consumer that reads records by partition and offset, without group membership."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.offsets import group_by_leader, group_by_topic, list_earliest_offsets, list_latest_offsets
from chronik.client.records import ConsumedRecord, TopicPartition
from chronik.limits import MIB
from chronik.protocol.batch import iter_batches
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from chronik.protocol.records import Record, decode_batch

FETCH_BYTES_MAX: Final = 16 * MIB
PARTITION_BYTES_MAX: Final = MIB
"""Maximum number of bytes per partition in a fetch response (Kafka's `max.partition.fetch.bytes`), so that one
partition cannot fill the whole response."""

NO_SESSION_EPOCH: Final = -1


class Consumer:
    """A consumer of assigned partitions. `positions` maps each partition to its next offset; modify it to seek.

    It returns records of open and aborted transactions, too (Kafka's default, `read_uncommitted`).
    """

    def __init__(self, cluster: ClusterClient, positions: Mapping[TopicPartition, int]) -> None:
        self._cluster = cluster
        self.positions = dict(positions)

    def poll(self, wait_s: float = 0.5, only: Sequence[TopicPartition] | None = None) -> list[ConsumedRecord]:
        """Return the next records, in order within each partition, or an empty list after `wait_s` seconds.

        Raises ClientError or KafkaError, with OFFSET_OUT_OF_RANGE if a position no longer exists. Positions change
        only on success.
        """
        partitions = list(self.positions) if only is None else only
        fetched = self._cluster.retry(lambda: self._poll(partitions, wait_s))
        self.positions.update((each.partition, each.next_offset) for each in fetched)
        return [record for each in fetched for record in each.records]

    def read_until(self, ends: Mapping[TopicPartition, int]) -> Iterator[ConsumedRecord]:
        """Yield all records before the given end offsets. Partitions without an end offset are not read."""
        while unfinished := [each for each, offset in self.positions.items() if offset < ends.get(each, 0)]:
            for record in self.poll(only=unfinished):
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    yield record

    def _poll(self, partitions: Sequence[TopicPartition], wait_s: float) -> list[_FetchedPartition]:
        fetched: list[_FetchedPartition] = []
        by_broker = group_by_leader(self._cluster, partitions)
        for leader_id, led_partitions in by_broker.items():
            # Once records were found, the remaining brokers are polled without waiting.
            broker_wait_s = 0.0 if any(each.records for each in fetched) else wait_s / len(by_broker)
            fetched += self._fetch(leader_id, led_partitions, broker_wait_s)
        return fetched

    def _fetch(self, leader_id: int, partitions: list[TopicPartition], wait_s: float) -> list[_FetchedPartition]:
        request = FetchRequest(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            session_epoch=NO_SESSION_EPOCH,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[self._build_fetch_partition(TopicPartition(topic, index)) for index in indexes],
                )
                for topic, indexes in group_by_topic(partitions).items()
            ],
        )
        response = self._cluster.broker(leader_id).request(request, FetchResponse, wait_s=wait_s)
        raise_for_code(response.error_code, "fetch")
        return [
            _decode_partition(partition, self.positions[partition], data)
            for topic in response.responses
            for data in topic.partitions
            if (partition := TopicPartition(topic.topic, data.partition_index))
        ]

    def _build_fetch_partition(self, partition: TopicPartition) -> FetchPartition:
        return FetchPartition(
            partition=partition.partition,
            fetch_offset=self.positions[partition],
            partition_max_bytes=PARTITION_BYTES_MAX,
        )


class _FetchedPartition(NamedTuple):
    partition: TopicPartition
    records: list[ConsumedRecord]
    next_offset: int


def _decode_partition(partition: TopicPartition, wanted_from: int, data: PartitionData) -> _FetchedPartition:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        message = f"{partition}: offset {wanted_from} is out of range"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    raise_for_code(data.error_code, str(partition))
    records: list[ConsumedRecord] = []
    next_offset = wanted_from
    raw = cast(memoryview, data.records or b"")  # a decoder never returns a list here
    for position, header in iter_batches(raw, partial_tail=True):
        if not header.is_control:
            records += _iter_records_from(partition, wanted_from, decode_batch(raw, position))
        # Also skip batches without records for us: control batches, and batches that compaction has emptied.
        next_offset = max(next_offset, header.next_offset)
    return _FetchedPartition(partition, records, next_offset)


def _iter_records_from(partition: TopicPartition, wanted_from: int, batch: list[Record]) -> Iterator[ConsumedRecord]:
    """Yield the records of a batch from the fetch offset on.

    Brokers return whole batches, so earlier records are skipped.
    """
    for offset, timestamp, key, value, headers in batch:
        if offset >= wanted_from:
            yield ConsumedRecord(*partition, offset, timestamp, key, value, headers)


def read_all(cluster: ClusterClient, topic: str) -> list[ConsumedRecord]:
    """Return all records that a topic currently contains, ordered by partition and offset."""
    partitions = cluster.retry(lambda: cluster.partitions(topic))
    consumer = Consumer(cluster, list_earliest_offsets(cluster, partitions))
    records = consumer.read_until(list_latest_offsets(cluster, partitions))
    return sorted(records, key=lambda record: (record.partition, record.offset))
