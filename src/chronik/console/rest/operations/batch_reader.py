"""Fetches record batches without decoding them, so that only matching batches are decoded."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

from chronik.client.cluster import raise_for_code
from chronik.client.consumer import NO_SESSION_EPOCH
from chronik.client.offsets import group_by_leader, group_by_topic
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext
from chronik.limits import KIB, MIB
from chronik.protocol.batch import BatchHeader, iter_batches
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from chronik.protocol.records import Record, decode_batch

FETCH_BYTES_MAX: Final = 4 * MIB
PARTITION_BYTES_MAX: Final = 512 * KIB
ABORT_MARKER: Final = 0
_CONTROL_KEY: Final = struct.Struct(">hh")


class FetchedBatch(NamedTuple):
    """A fetched record batch that has not been decoded."""

    partition: TopicPartition
    header: BatchHeader
    raw: memoryview
    position: int

    def records(self) -> list[Record]:
        """Decode the records of the batch."""
        return decode_batch(self.raw, self.position)

    @property
    def encoded(self) -> memoryview:
        """The bytes of the encoded record batch."""
        return self.raw[self.position : self.position + self.header.size]


class BatchReader:
    """A reader that fetches record batches from several partitions. `positions` holds their next offsets."""

    def __init__(self, context: OperationContext, positions: dict[TopicPartition, int], *, committed: bool) -> None:
        self._context = context
        self.positions = dict(positions)
        self._committed = committed

    def fetch(self, partitions: Sequence[TopicPartition], wait_s: float = 0.0) -> list[FetchedBatch]:
        """Fetch the next record batches of the given partitions, and advance their positions.

        If `committed` is set, omit batches of aborted transactions.

        Raises:
            KafkaError: The principal lacks the Read permission, or a partition is not available.
            ClientError: A broker cannot be reached.
        """
        cluster = self._context.cluster
        return cluster.retry(lambda: self._fetch(partitions, wait_s))

    def _fetch(self, partitions: Sequence[TopicPartition], wait_s: float) -> list[FetchedBatch]:
        found: list[FetchedBatch] = []
        led = group_by_leader(self._context.cluster, partitions)
        for leader_id, partitions_led in led.items():
            partition_wait_s = 0.0 if found else wait_s / len(led)
            request = FetchRequest(
                max_wait_ms=int(partition_wait_s * 1000),
                min_bytes=1,
                max_bytes=FETCH_BYTES_MAX,
                isolation_level=int(self._committed),
                session_epoch=NO_SESSION_EPOCH,
                topics=[
                    FetchTopic(
                        topic=topic,
                        partitions=[self._build_fetch_partition(TopicPartition(topic, each)) for each in indexes],
                    )
                    for topic, indexes in group_by_topic(partitions_led).items()
                ],
            )
            response = self._context.cluster.broker(leader_id).request(request, FetchResponse, wait_s=partition_wait_s)
            raise_for_code(response.error_code, "fetch")
            for topic in response.responses:
                for data in topic.partitions:
                    found += self._read(TopicPartition(topic.topic, data.partition_index), data)
        return found

    def _build_fetch_partition(self, partition: TopicPartition) -> FetchPartition:
        return FetchPartition(
            partition=partition.partition,
            fetch_offset=self.positions[partition],
            partition_max_bytes=PARTITION_BYTES_MAX,
        )

    def _read(self, partition: TopicPartition, data: PartitionData) -> Iterator[FetchedBatch]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # deleted concurrently: continue at the log start offset
            self.positions[partition] = max(data.log_start_offset, self.positions[partition] + 1)
            return
        raise_for_code(data.error_code, str(partition))
        raw = cast(memoryview, data.records or b"")  # the decoder returns no lists here
        aborted = _AbortedTransactionFilter(data) if self._committed else None
        for position, header in iter_batches(raw, partial_tail=True):
            if aborted is None or not aborted.hides(header, raw, position):
                yield FetchedBatch(partition, header, raw, position)
            self.positions[partition] = max(self.positions[partition], header.next_offset)


class _AbortedTransactionFilter:
    """A filter that skips control batches and the batches of aborted transactions in a fetch response."""

    def __init__(self, data: PartitionData) -> None:
        self._upcoming = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        self._producers: set[int] = set()

    def hides(self, header: BatchHeader, raw: memoryview, position: int) -> bool:
        while self._upcoming and self._upcoming[0][0] <= header.last_offset:
            self._producers.add(self._upcoming.pop(0)[1])
        if header.is_control:
            if _read_marker_type(decode_batch(raw, position)) == ABORT_MARKER:
                self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers


def _read_marker_type(records: Sequence[Record]) -> int | None:
    key = records[0].key if records else None
    return None if key is None or len(key) < _CONTROL_KEY.size else int(_CONTROL_KEY.unpack_from(key)[1])
