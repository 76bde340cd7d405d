"""The state of a partition's idempotent producers, which detects retries and out-of-order batches.

It does no I/O: the log checks batches before an append, reports them afterwards, and stores the snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet

import msgspec

from chronik.crc import crc32c
from chronik.limits import PRODUCERS_PER_NODE_MAX
from chronik.log.partition_transactions import PartitionTransactions, TransactionsSnapshot
from chronik.protocol.batch import BatchHeader, next_sequence
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.varint import INT32_MAX

# A producer has at most five requests in flight, so it can retry only one of its last five batches.
RETAINED_BATCHES = 5

# Kafka limits producers only by expiration. A client that requests many producer ids must not exhaust memory (~1 kB
# each).
PRODUCERS_MAX = 100_000

# The fraction of the limit that is evicted at once (1/100) when a node has too many producers.
EVICTION_FRACTION = 100

# Producers with open transactions are never evicted. An eviction examines at most this many of them.
EVICTION_SCAN_MAX = 100

UNKNOWN = -1

_CRC_BYTES = 4


class ProducerBatch(msgspec.Struct, array_like=True, frozen=True):
    """The sequence numbers and offsets of a batch that a producer appended."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerStateEntry(msgspec.Struct, array_like=True):
    """The state of one producer in a partition."""

    epoch: int
    batches: list[ProducerBatch]
    """The last batches that the producer appended in this epoch, oldest first."""
    last_active_ms: int
    """Time of the producer's last append in milliseconds, by this node's clock."""
    first_known_sequence: int = UNKNOWN
    """The first known sequence number of this epoch. All later batches of the epoch are stored without gaps."""
    coordinator_epoch: int = UNKNOWN
    """The epoch of the coordinator that wrote the producer's last transaction marker."""


class ProducerSnapshot(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The contents of a producer state snapshot."""

    version: int
    offset: int
    producers: dict[int, ProducerStateEntry]
    transactions: TransactionsSnapshot | None = None
    """The partition's transactions; None in snapshots of version 1."""


SNAPSHOT_VERSION = 2
SUPPORTED_SNAPSHOT_VERSIONS = (1, SNAPSHOT_VERSION)


class ProducerLimit:
    """A limit on the number of producers whose state the partitions of a node store.

    It counts additions only, and counts the producers of all partitions again when the limit is reached, so partitions
    need not report removed producers. Then it evicts producers from the partitions that have the most.
    """

    def __init__(self, producers_max: int = PRODUCERS_PER_NODE_MAX) -> None:
        self._producers_max = producers_max
        self._partitions: WeakSet[ProducerStateManager] = WeakSet()
        self._counted = 0
        """Upper bound of the number of producers whose state is stored."""

    def add(self, states: ProducerStateManager, count: int = 1) -> None:
        """Count producers that were added to a partition, and evict idle producers if the limit is exceeded."""
        self._partitions.add(states)
        self._counted += count
        if self._counted > self._producers_max:
            self._recount_producers()

    def _recount_producers(self) -> None:
        partitions = list(self._partitions)
        self._counted = sum(map(len, partitions))
        kept_max = self._producers_max - self._producers_max // EVICTION_FRACTION
        while partitions and self._counted > kept_max:
            largest = max(partitions, key=len)
            evicted = largest.evict_idle(min(self._counted - kept_max, -(-len(largest) // 2)))
            self._counted -= evicted
            if not evicted:  # all of its producers have open transactions
                partitions.remove(largest)


class ProducerStateManager:
    """The producers of a partition and their transactions (Kafka's `ProducerStateManager`)."""

    __slots__ = ("__weakref__", "_limit", "_producers", "transactions")

    def __init__(self, limit: ProducerLimit | None = None) -> None:
        self._producers: dict[int, ProducerStateEntry] = {}
        self._limit = limit or ProducerLimit()
        self.transactions = PartitionTransactions()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def items(self) -> list[tuple[int, ProducerStateEntry]]:
        return list(self._producers.items())

    def check_batches(self, headers: Sequence[BatchHeader]) -> ProducerBatch | None:
        """Check the sequence numbers of batches. Return the stored batch if they are a retry, or None if they are new.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID for sequence numbers
                of an ended transaction, or INVALID_TXN_STATE for a batch outside the producer's open transaction.
            InvalidRecord: A request has several batches of idempotent producers for the partition. Clients send only
                one, and a partial duplicate has no defined result.
        """
        header = headers[0]
        if len(headers) > 1:
            if any(header.has_producer_id for header in headers):
                raise InvalidRecord("an idempotent producer must send one batch per partition and request")
            return None
        producer = self._producers.get(header.producer_id) if header.has_producer_id else None
        if producer is None:
            return None
        duplicate = _find_stored_batch(producer, header)
        if header.is_transactional:
            self._check_sequence_of_transaction(header, producer, duplicate)
        if duplicate is None:
            _check_sequence_order(header, producer)
            if self.transactions.open and not header.is_transactional and header.producer_id in self.transactions.open:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {header.producer_id} has an open transaction here and sent a batch outside of it",
                )
        return duplicate

    def _check_sequence_of_transaction(
        self, header: BatchHeader, producer: ProducerStateEntry, duplicate: ProducerBatch | None
    ) -> None:
        """Raise KafkaError if a transaction's batch has sequence numbers of the producer's earlier transactions.

        Producers know the outcome of each batch before they end its transaction, so this is not a retry. librdkafka
        assigns the sequence numbers of a batch again if it was appended but not acknowledged before its transaction was
        aborted. Kafka acknowledges such a batch as a duplicate without storing it, or returns
        OUT_OF_ORDER_SEQUENCE_NUMBER, which is fatal in librdkafka. After UNKNOWN_PRODUCER_ID, clients abort the
        transaction and get a new epoch, which starts at sequence number 0.
        """
        if header.producer_epoch != producer.epoch or not producer.batches:
            return
        open_from = self.transactions.open.get(header.producer_id)
        if duplicate is not None:
            is_reused = open_from is None or duplicate.last_offset < open_from
        else:
            behind = _next_sequence(producer) - header.base_sequence & INT32_MAX
            is_reused = open_from is None and 0 < behind <= INT32_MAX // 2
        if is_reused:
            raise KafkaError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"Producer {header.producer_id} sent sequence number {header.base_sequence} of an ended transaction",
            )

    def check_marker(self, header: BatchHeader, marker: TransactionMarker) -> None:
        """Check that the producer epoch and the coordinator epoch of a transaction marker are current.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH if a later producer epoch has written to the partition, or
                TRANSACTION_COORDINATOR_FENCED if a later coordinator has ended a transaction of the producer.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise _build_fenced_epoch_error(header, producer)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} is fenced: epoch {producer.coordinator_epoch} has ended "
                f"a transaction of producer {header.producer_id} in this partition",
            )

    def is_stored(self, header: BatchHeader) -> bool:
        """Return whether a batch is already in the log, as far as its producer is known."""
        producer = self._producers.get(header.producer_id) if header.has_producer_id else None
        return producer is not None and _find_stored_batch(producer, header) is not None

    def is_stored_or_next(self, header: BatchHeader) -> bool:
        """Return whether a batch is already in the log, or is the producer's next batch in sequence."""
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch != producer.epoch:
            return False
        return header.base_sequence == _next_sequence(producer) or _find_stored_batch(producer, header) is not None

    def update(
        self, header: BatchHeader, base_offset: int, now_ms: int, marker: TransactionMarker | None = None
    ) -> None:
        """Update the producer state after an append at `base_offset`. `marker` is set for control batches."""
        # Remove and reinsert the producer to keep the dict in order of activity.
        producer = self._producers.pop(header.producer_id, None)
        is_new = producer is None
        if producer is None or header.producer_epoch != producer.epoch:
            coordinator_epoch = UNKNOWN if producer is None else producer.coordinator_epoch
            producer = ProducerStateEntry(header.producer_epoch, [], now_ms, coordinator_epoch=coordinator_epoch)
        self._producers[header.producer_id] = producer
        producer.last_active_ms = now_ms
        if marker is not None:
            producer.coordinator_epoch = marker.coordinator_epoch
            self.transactions.record_marker(header.producer_id, base_offset, committed=marker.is_commit)
        elif header.is_transactional and not header.is_control:
            self.transactions.record_batch(header.producer_id, base_offset)
        if header.base_sequence >= 0:
            if producer.first_known_sequence == UNKNOWN:
                producer.first_known_sequence = header.base_sequence
            producer.batches.append(
                ProducerBatch(
                    header.base_sequence,
                    header.last_sequence,
                    base_offset,
                    base_offset + header.last_offset_delta,
                    header.max_timestamp,
                )
            )
            del producer.batches[:-RETAINED_BATCHES]
            if _compute_sequence_distance(producer, header.last_sequence) > INT32_MAX // 2:  # wraparound
                producer.first_known_sequence = producer.batches[0].first_sequence
        if len(self._producers) > PRODUCERS_MAX:
            self.evict_idle(len(self._producers) - PRODUCERS_MAX)
        if is_new:
            self._limit.add(self)

    def evict_idle(self, count: int) -> int:
        """Evict up to `count` producers, starting with the longest idle ones. Return the number of evicted producers.

        A producer with an open transaction moves to the end of the queue instead, so the next call starts after it.
        """
        evicted = 0
        for _ in range(min(count + EVICTION_SCAN_MAX - 1, len(self._producers))):
            if evicted == count:
                break
            producer_id = next(iter(self._producers))
            producer = self._producers.pop(producer_id)
            if producer_id in self.transactions.open:
                self._producers[producer_id] = producer
            else:
                evicted += 1
        return evicted

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers that have not appended a batch for `expiration_ms` milliseconds."""
        expired = []
        for producer_id, producer in self._producers.items():
            if now_ms - producer.last_active_ms < expiration_ms:
                break
            if producer_id not in self.transactions.open:
                expired.append(producer_id)
        for producer_id in expired:
            del self._producers[producer_id]

    def encode(self, offset: int) -> bytes:
        """Return a snapshot of the producer state at `offset`, the log end offset."""
        body = msgspec.msgpack.encode(
            ProducerSnapshot(SNAPSHOT_VERSION, offset, self._producers, self.transactions.to_snapshot())
        )
        crc: int = crc32c(body)
        return crc.to_bytes(_CRC_BYTES, "big") + body

    @classmethod
    def decode(cls, data: bytes, offset: int, limit: ProducerLimit | None = None) -> ProducerStateManager | None:
        """Load the producer state from a snapshot taken at `offset`. Return None if the snapshot is damaged."""
        body = data[_CRC_BYTES:]
        if int.from_bytes(data[:_CRC_BYTES], "big") != crc32c(body):
            return None
        try:
            snapshot = msgspec.msgpack.decode(body, type=ProducerSnapshot)
        except msgspec.MsgspecError:
            return None
        if snapshot.version not in SUPPORTED_SNAPSHOT_VERSIONS or snapshot.offset != offset:
            return None
        states = cls(limit)
        states._producers = snapshot.producers
        if snapshot.transactions is not None:
            states.transactions = PartitionTransactions.from_snapshot(snapshot.transactions)
        if states._producers:
            states._limit.add(states, len(states._producers))
        return states


def _find_stored_batch(producer: ProducerStateEntry, header: BatchHeader) -> ProducerBatch | None:
    if header.producer_epoch != producer.epoch:
        return None
    for batch in producer.batches:
        if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
            return batch
    return _find_older_stored_batch(producer, header)


def _find_older_stored_batch(producer: ProducerStateEntry, header: BatchHeader) -> ProducerBatch | None:
    """Return the stored batch of which this batch is a late retry, without its offset, or None if it is not a retry.

    This happens when a stored batch is rejected repeatedly, for example with NOT_ENOUGH_REPLICAS, while later batches
    are accepted. Kafka returns OUT_OF_ORDER_SEQUENCE_NUMBER, which librdkafka treats as fatal.
    """
    if producer.first_known_sequence == UNKNOWN or not producer.batches:
        return None
    oldest = producer.batches[0]
    first, last = (
        _compute_sequence_distance(producer, header.base_sequence),
        _compute_sequence_distance(producer, header.last_sequence),
    )
    if not first <= last < _compute_sequence_distance(producer, oldest.first_sequence):
        return None
    return ProducerBatch(
        header.base_sequence, header.last_sequence, UNKNOWN, oldest.base_offset - 1, header.max_timestamp
    )


def _compute_sequence_distance(producer: ProducerStateEntry, sequence: int) -> int:
    return sequence - producer.first_known_sequence & INT32_MAX


def _build_fenced_epoch_error(header: BatchHeader, producer: ProducerStateEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Producer {header.producer_id} is at epoch {producer.epoch}, so epoch {header.producer_epoch} is fenced",
    )


def _next_sequence(producer: ProducerStateEntry) -> int:
    """Return the producer's next sequence number, which is 0 after a marker has started a new epoch."""
    return next_sequence(producer.batches[-1].last_sequence) if producer.batches else 0


def _check_sequence_order(header: BatchHeader, producer: ProducerStateEntry) -> None:
    if header.producer_epoch < producer.epoch:
        raise _build_fenced_epoch_error(header, producer)
    expected = 0 if header.producer_epoch > producer.epoch else _next_sequence(producer)  # a new epoch starts at 0
    if header.base_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} sent sequence number {header.base_sequence}, expected {expected}",
        )
