"""A blocking idempotent producer: sends records and waits for their acknowledgement; retries create no duplicates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.errors import ApiNotSupported
from chronik.client.partitioner import choose_partition
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

ACKS_ALL: Final = -1

BATCH_BYTES_MAX: Final = 512 * KIB
"""Maximum size in bytes of a producer's batch before compression.

It is half of the default `max.message.bytes` of topics.
"""

RECORD_OVERHEAD_BYTES: Final = 32
"""Maximum number of bytes that a record's encoding adds to its key, value and headers."""


class AcknowledgedRecords(NamedTuple):
    """Consecutive records of one partition that were acknowledged together."""

    partition: int
    base_offset: int
    record_count: int


class ProducerIdentity(NamedTuple):
    """A producer id and epoch, as returned by InitProducerId."""

    producer_id: int
    producer_epoch: int


NO_IDENTITY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""Identity of a non-idempotent producer. Its batches have no sequence numbers, so retries may duplicate records."""


class BatchSequence(NamedTuple):
    """The producer id, producer epoch and base sequence of a batch, by which brokers detect duplicates."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class ProducerSequences:
    """A producer's id and epoch, requested on first use, and the next sequence number of each partition."""

    def __init__(self, identify: Callable[[], ProducerIdentity]) -> None:
        self._identify = identify
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def next_batch_sequence(self, partition: TopicPartition) -> BatchSequence:
        """Return the producer id, producer epoch and base sequence of the partition's next batch.

        Raise ClientError or KafkaError if the id request fails.
        """
        if self._identity is None:
            self._identity = self._identify()
        is_numbered = self._identity != NO_IDENTITY
        return BatchSequence(*self._identity, self._sequences.get(partition, 0) if is_numbered else NO_SEQUENCE)

    def advance(self, partition: TopicPartition, record_count: int) -> None:
        self._sequences[partition] = next_sequence(self._sequences.get(partition, 0), record_count)

    def reset(self) -> None:
        """Discard the producer id after a failure, because it is unknown which batches the broker has stored.

        The next batch uses a new id.
        """
        self._identity = None
        self._sequences.clear()


def request_producer_identity(cluster: ClusterClient) -> ProducerIdentity:
    """Request a new producer id. Return NO_IDENTITY if the broker does not support idempotent producers."""

    def send() -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None)
        try:
            response = cluster.any_broker().request(request, InitProducerIdResponse)
        except ApiNotSupported:
            return NO_IDENTITY
        raise_for_code(response.error_code, "producer id")
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    return cluster.retry(send)


class Producer:
    """A blocking producer, which is idempotent with acks=all."""

    def __init__(
        self, cluster: ClusterClient, *, codec: Codec = Codec.NONE, acks: int = ACKS_ALL, clock: Clock | None = None
    ) -> None:
        """Initialize the producer and validate its options.

        `acks` is -1 (all in-sync replicas) or 1 (leader only; retries may duplicate records).
        """
        if acks not in (ACKS_ALL, 1):
            raise ValueError(f"acks = {acks}: expected -1 (all) or 1")
        self._cluster = cluster
        self._codec = codec
        self._acks = acks
        self._clock = clock or SystemClock()
        self._numbering = ProducerSequences(
            lambda: request_producer_identity(cluster) if acks == ACKS_ALL else NO_IDENTITY
        )
        self._call_count = 0

    def send(self, topic: str, records: Iterable[OutgoingRecord]) -> list[AcknowledgedRecords]:
        """Send records and wait until all are acknowledged. The order within each partition is preserved.

        Records without a key and a partition go to one partition per call, chosen round-robin. A missing topic is
        created if the broker auto-creates topics. Raises ClientError or KafkaError; some of the first records may then
        have been written.
        """
        partition_count = len(self._cluster.retry(lambda: self._cluster.partitions(topic, create=True)))
        written = []
        for index, grouped in self._group_by_partition(records, partition_count).items():
            for batch in _split_batches(grouped):
                written.append(self._send_batch(TopicPartition(topic, index), batch))
        return written

    def _group_by_partition(
        self, records: Iterable[OutgoingRecord], partition_count: int
    ) -> dict[int, list[OutgoingRecord]]:
        grouped: dict[int, list[OutgoingRecord]] = {}
        keyless_partition = self._call_count % partition_count
        self._call_count += 1
        for record in records:
            if record.partition is not None:
                index = record.partition
            elif record.key is not None:
                index = choose_partition(record.key, partition_count)
            else:
                index = keyless_partition
            grouped.setdefault(index, []).append(record)
        return grouped

    def _send_batch(self, to: TopicPartition, records: list[OutgoingRecord]) -> AcknowledgedRecords:
        numbers = self._numbering.next_batch_sequence(to)._asdict()
        batch = encode_batch(_assign_offsets(records, self._clock.now_ms()), codec=self._codec, **numbers)
        try:
            result = self._cluster.retry(lambda: self._produce(to, batch))
        except BaseException:
            self._numbering.reset()
            raise
        self._numbering.advance(to, len(records))
        return AcknowledgedRecords(to.partition, result.base_offset, len(records))

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
        (result,) = topic.partition_responses
        if result.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # stored by a previous attempt
            raise_for_code(result.error_code, str(to), result.error_message)
        return result


def _assign_offsets(records: list[OutgoingRecord], now_ms: int) -> Iterator[Record]:
    for offset, record in enumerate(records):
        timestamp = now_ms if record.timestamp is None else record.timestamp
        yield Record(offset, timestamp, record.key, record.value, record.headers)


def _split_batches(records: list[OutgoingRecord]) -> Iterator[list[OutgoingRecord]]:
    batch: list[OutgoingRecord] = []
    batch_bytes = 0
    for record in records:
        size = _estimate_size(record)
        if batch and batch_bytes + size > BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(record)
        batch_bytes += size
    yield batch


def _estimate_size(record: OutgoingRecord) -> int:
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += RECORD_OVERHEAD_BYTES + len(name) + len(value or b"")
    return size
