"""Recently rejected batches of idempotent producers, which cause later batches in sequence to be rejected.

Producers send several batches without waiting for responses. If a broker rejects the first one with
NOT_LEADER_OR_FOLLOWER and becomes the leader before it handles the second one, the second one seems to leave a gap, or
to be the first of all. Kafka returns OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, and librdkafka then bumps its epoch and
sends all batches again, including those that an earlier leader had stored without acknowledging them: duplicates. So
batches that follow a rejected batch are rejected with the same error, and the client retries all of them in order.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.clock import Clock
from chronik.log.producer_state import ProducerStateManager
from chronik.metadata.names import find_topic_name_error
from chronik.protocol.batch import BatchHeader, Bytes, parse_header
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.protocol.varint import INT32_MAX

RETRIABLE_REJECTIONS: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)
"""Error codes after which an idempotent producer sends the rejected batch again."""

REJECTION_SECONDS: Final = 12.0
"""Time in seconds for which the broker remembers a rejected batch of an idempotent producer.

The error response waits for the responses to earlier requests, usually for up to 10 seconds, after which a lagging
follower leaves the ISR. Later gaps are reported as OUT_OF_ORDER_SEQUENCE_NUMBER.
"""

PRODUCERS_MAX: Final = 100_000
"""Maximum number of idempotent producers whose rejected batches are remembered.

With topic names of maximum length, the records take about 60 MB.
"""

TopicKey = str | bytes


class _RejectedBatchKey(NamedTuple):
    """The key of a rejected batch: its partition, producer id and producer epoch."""

    topic: TopicKey
    partition: int
    producer_id: int
    producer_epoch: int


class _RejectedBatch(NamedTuple):
    """The first rejected batch of a producer, with its error code and time."""

    sequence: int
    code: ErrorCode
    at: float


class RejectedBatches:
    """The recently rejected batches of idempotent producers, whose later batches are rejected with the same error."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rejected: dict[_RejectedBatchKey, _RejectedBatch] = {}

    def __len__(self) -> int:
        return len(self._rejected)

    def record(self, topic: TopicKey, partition: int, records: Bytes | None, code: ErrorCode) -> None:
        """Record that the record batch was rejected with the error code."""
        if code not in RETRIABLE_REJECTIONS or not records or not _is_valid_topic(topic):
            return
        try:
            header = parse_header(records)
        except CorruptRecords:
            return
        self.record_rejected_header(topic, partition, header, code)

    def record_rejected_header(self, topic: TopicKey, partition: int, header: BatchHeader, code: ErrorCode) -> None:
        """Record that the batch with this header was rejected, or that it may be truncated by the next leader."""
        if code not in RETRIABLE_REJECTIONS or not header.has_producer_id:
            return
        key, now = _build_batch_key(topic, partition, header), self._clock.monotonic()
        known = self._rejected.pop(key, None)
        if known is None or _is_expired(known, now) or not _is_later_in_sequence(header.base_sequence, known.sequence):
            known = _RejectedBatch(header.base_sequence, code, now)
        self._rejected[key] = known
        self._evict_expired_batches(now)

    def _evict_expired_batches(self, now: float) -> None:
        while len(self._rejected) > PRODUCERS_MAX or _is_expired(next(iter(self._rejected.values())), now):
            del self._rejected[next(iter(self._rejected))]

    def check(self, topic: TopicKey, partition: int, header: BatchHeader, producers: ProducerStateManager) -> None:
        """Raise the error of the producer's last rejected batch if this batch comes later in the sequence.

        The producer's next batch passes: the rejected one has been stored since, here or by another leader.

        Raises:
            KafkaError: The error of the rejected batch.
        """
        rejected = self._rejected.get(_build_batch_key(topic, partition, header))
        if rejected is None:
            return
        if _is_expired(rejected, self._clock.monotonic()):
            del self._rejected[_build_batch_key(topic, partition, header)]
        elif _is_later_in_sequence(header.base_sequence, rejected.sequence) and not producers.is_stored_or_next(header):
            raise KafkaError(rejected.code)


def _is_valid_topic(topic: TopicKey) -> bool:
    """Return whether the topic name is valid.

    Rejections for invalid names, which may be very long, are not recorded.
    """
    return isinstance(topic, bytes) or find_topic_name_error(topic) is None


def _build_batch_key(topic: TopicKey, partition: int, header: BatchHeader) -> _RejectedBatchKey:
    return _RejectedBatchKey(topic, partition, header.producer_id, header.producer_epoch)


def _is_later_in_sequence(sequence: int, rejected: int) -> bool:
    """Return whether a batch's sequence number comes after the rejected one, with wraparound at 2^31."""
    return 0 < (sequence - rejected) & INT32_MAX <= INT32_MAX // 2


def _is_expired(rejected: _RejectedBatch, now: float) -> bool:
    return now - rejected.at > REJECTION_SECONDS
