"""Writes records and waits until they are acknowledged; what is retried is written once (an idempotent producer)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from chronik.client.cluster import Cluster, raise_for
from chronik.client.errors import ApiNotSupported
from chronik.client.partitioner import partition_of
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.clock import Clock, SystemClock
from chronik.limits import KIB
from chronik.protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, next_sequence
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from chronik.protocol.records import Record, encode_batch

ALL_IN_SYNC: Final = -1

BATCH_BYTES_MAX: Final = 512 * KIB
"""The size of one batch before compression: half of what topics accept by default (`max.message.bytes`)."""

RECORD_OVERHEAD_BYTES: Final = 32
"""More than the lengths, deltas and counts of a record take, headers aside."""


class Written(NamedTuple):
    """Consecutive records of one partition, acknowledged together."""

    partition: int
    base_offset: int
    record_count: int


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


NOBODY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""Batches of nobody are not numbered: what is retried may be written twice."""


class Numbers(NamedTuple):
    """By which a broker knows a batch that it has already: as `encode_batch` takes them."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class Numbering:
    """The identity of a producer, asked for when it is needed, and the sequence that is due in each partition."""

    def __init__(self, identify: Callable[[], Identity]) -> None:
        self._identify = identify
        self._identity: Identity | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def next_of(self, partition: TopicPartition) -> Numbers:
        """Raises ClientError or KafkaError."""
        if self._identity is None:
            self._identity = self._identify()
        is_numbered = self._identity != NOBODY
        return Numbers(*self._identity, self._sequences.get(partition, 0) if is_numbered else NO_SEQUENCE)

    def written(self, partition: TopicPartition, record_count: int) -> None:
        self._sequences[partition] = next_sequence(self._sequences.get(partition, 0), record_count)

    def forget(self) -> None:
        """Whether brokers have the last sequences is unknown: a new identity starts counting from the beginning."""
        self._identity = None
        self._sequences.clear()


def idempotent_identity(cluster: Cluster) -> Identity:
    """Asks for a new one; brokers older than idempotent producers have none. Raises ClientError or KafkaError."""

    def ask() -> Identity:
        request = InitProducerIdRequest(transactional_id=None)
        try:
            response = cluster.any_broker().request(request, InitProducerIdResponse)
        except ApiNotSupported:
            return NOBODY
        raise_for(response.error_code, "producer id")
        return Identity(response.producer_id, response.producer_epoch)

    return cluster.retrying(ask)


class Producer:
    def __init__(
        self, cluster: Cluster, *, codec: Codec = Codec.NONE, acks: int = ALL_IN_SYNC, clock: Clock | None = None
    ) -> None:
        """`acks`: -1 for all replicas in sync, 1 for the leader alone, which may write twice what is retried."""
        if acks not in (ALL_IN_SYNC, 1):
            raise ValueError(f"acks = {acks}: expected -1 (all) or 1")
        self._cluster = cluster
        self._codec = codec
        self._acks = acks
        self._clock = clock or SystemClock()
        self._numbering = Numbering(lambda: idempotent_identity(cluster) if acks == ALL_IN_SYNC else NOBODY)
        self._turn = 0

    def send(self, topic: str, records: Iterable[OutgoingRecord]) -> list[Written]:
        """Returns when all are acknowledged; the order within each partition is kept.

        Records without key and partition go to one partition per call, each call to the next. A topic that does not
        exist is created if the broker creates topics by itself. Raises ClientError or KafkaError; then a beginning of
        the records may have been written.
        """
        partition_count = len(self._cluster.retrying(lambda: self._cluster.partitions(topic, create=True)))
        written = []
        for index, chosen in self._by_partition(records, partition_count).items():
            for batch in _batches(chosen):
                written.append(self._send_batch(TopicPartition(topic, index), batch))
        return written

    def _by_partition(self, records: Iterable[OutgoingRecord], partition_count: int) -> dict[int, list[OutgoingRecord]]:
        chosen: dict[int, list[OutgoingRecord]] = {}
        keyless_partition = self._turn % partition_count
        self._turn += 1
        for record in records:
            if record.partition is not None:
                index = record.partition
            elif record.key is not None:
                index = partition_of(record.key, partition_count)
            else:
                index = keyless_partition
            chosen.setdefault(index, []).append(record)
        return chosen

    def _send_batch(self, to: TopicPartition, records: list[OutgoingRecord]) -> Written:
        numbers = self._numbering.next_of(to)._asdict()
        batch = encode_batch(_numbered(records, self._clock.now_ms()), codec=self._codec, **numbers)
        try:
            answer = self._cluster.retrying(lambda: self._produce(to, batch))
        except BaseException:
            self._numbering.forget()
            raise
        self._numbering.written(to, len(records))
        return Written(to.partition, answer.base_offset, len(records))

    def _produce(self, to: TopicPartition, batch: bytes) -> PartitionProduceResponse:
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=int(self._cluster.timeout_s * 1000),
            topic_data=[
                TopicProduceData(
                    name=to.topic, partition_data=[PartitionProduceData(index=to.partition, records=batch)]
                )
            ],
        )
        response = self._cluster.leader(to).request(request, ProduceResponse)
        (topic,) = response.responses
        (answer,) = topic.partition_responses
        if answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # written by the attempt before
            raise_for(answer.error_code, str(to), answer.error_message)
        return answer


def _numbered(records: list[OutgoingRecord], now_ms: int) -> Iterator[Record]:
    for offset, record in enumerate(records):
        timestamp = now_ms if record.timestamp is None else record.timestamp
        yield Record(offset, timestamp, record.key, record.value, record.headers)


def _batches(records: list[OutgoingRecord]) -> Iterator[list[OutgoingRecord]]:
    batch: list[OutgoingRecord] = []
    batch_bytes = 0
    for record in records:
        size = _size(record)
        if batch and batch_bytes + size > BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(record)
        batch_bytes += size
    yield batch


def _size(record: OutgoingRecord) -> int:
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += RECORD_OVERHEAD_BYTES + len(name) + len(value or b"")
    return size
