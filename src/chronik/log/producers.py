"""What a partition knows of its idempotent producers: enough to answer a retry and to refuse what is out of order.

Pure: the log asks before it appends, tells after it appended, and stores the snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet

import msgspec

from chronik.crc import crc32c
from chronik.limits import PRODUCERS_PER_NODE_MAX
from chronik.log.transactions import StoredTransactions, Transactions
from chronik.protocol.batch import BatchHeader, next_sequence
from chronik.protocol.control_records import TransactionMarker
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.varint import INT32_MAX

# A producer has at most five requests in flight, so it can only retry one of its last five batches.
BATCHES_KEPT = 5

# Kafka sets no limit but expiry; a client that keeps asking for new producer ids must not fill the memory (~1 kB each).
PRODUCERS_MAX = 100_000

# What the partitions that remember most forget at once when a node remembers too many: a hundredth of the limit.
RECOUNTED_SHARE = 100

# Those with open transactions are never forgotten. If they are many, one that may be is looked for bit by bit.
EVICTION_LOOKS = 100

UNKNOWN = -1

_CRC_BYTES = 4


class SentBatch(msgspec.Struct, array_like=True, frozen=True):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class Producer(msgspec.Struct, array_like=True):
    epoch: int
    batches: list[SentBatch]
    """Oldest first; of this epoch only."""
    active_ms: int
    """When it last wrote, by this node's clock."""
    gapless_from: int = UNKNOWN
    """The first sequence number that is known of this epoch: from there on everything is stored, without a gap."""
    coordinator_epoch: int = UNKNOWN
    """Of the coordinator that ended its last transaction here."""


class Snapshot(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    offset: int
    producers: dict[int, Producer]
    transactions: StoredTransactions | None = None
    """There are none in version 1."""


SNAPSHOT_VERSION = 2
VERSIONS_READ = (1, SNAPSHOT_VERSION)


class ProducerLimit:
    """A limit on the number of producers that all partitions of a node remember together.

    It counts additions only, and walks over the partitions when those reach the limit: so a partition that forgets
    producers, or is deleted, need not report it. Then it makes the partitions that remember most forget a share of
    their producers, so that the next walk is far enough away.
    """

    def __init__(self, producers_max: int = PRODUCERS_PER_NODE_MAX) -> None:
        self._producers_max = producers_max
        self._partitions: WeakSet[ProducerStates] = WeakSet()
        self._counted = 0
        """At least as many as are remembered."""

    def add(self, states: ProducerStates, count: int = 1) -> None:
        """Count producers that a partition remembers from now on."""
        self._partitions.add(states)
        self._counted += count
        if self._counted > self._producers_max:
            self._recount()

    def _recount(self) -> None:
        partitions = list(self._partitions)
        self._counted = sum(map(len, partitions))
        kept_max = self._producers_max - self._producers_max // RECOUNTED_SHARE
        while partitions and self._counted > kept_max:
            largest = max(partitions, key=len)
            forgotten = largest.forget_idle(min(self._counted - kept_max, -(-len(largest) // 2)))
            self._counted -= forgotten
            if not forgotten:  # all of its producers have open transactions
                partitions.remove(largest)


class ProducerStates:
    __slots__ = ("__weakref__", "_limit", "_producers", "transactions")

    def __init__(self, limit: ProducerLimit | None = None) -> None:
        self._producers: dict[int, Producer] = {}
        self._limit = limit or ProducerLimit()
        self.transactions = Transactions()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def items(self) -> list[tuple[int, Producer]]:
        return list(self._producers.items())

    def check(self, headers: Sequence[BatchHeader]) -> SentBatch | None:
        """Returns what was stored, when the batch is a retry of it; None when it is new and in order.

        Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE for what is outside of the
        producer's open transaction, and INVALID_RECORD for idempotent batches that do not come alone: clients send one
        per partition and request, and nobody can say what half a duplicate means.
        """
        header = headers[0]
        if len(headers) > 1:
            if any(header.has_producer_id for header in headers):
                raise InvalidRecord("an idempotent producer sends one batch at a time")
            return None
        producer = self._producers.get(header.producer_id) if header.has_producer_id else None
        if producer is None:
            return None
        duplicate = _find(producer, header)
        if duplicate is None:
            _check_order(header, producer)
            if self.transactions.open and not header.is_transactional and header.producer_id in self.transactions.open:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {header.producer_id} has a transaction open here, and sent a batch outside of it",
                )
        return duplicate

    def check_marker(self, header: BatchHeader, marker: TransactionMarker) -> None:
        """Raises INVALID_PRODUCER_EPOCH when a later epoch has written here, and TRANSACTION_COORDINATOR_FENCED when a
        later coordinator has ended a transaction of this producer."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise _fenced(header, producer)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {producer.coordinator_epoch} has ended a transaction here, so "
                f"{marker.coordinator_epoch} is fenced",
            )

    def continues(self, header: BatchHeader) -> bool:
        """Whether the batch is stored, or is known to be the next of its producer."""
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch != producer.epoch:
            return False
        return header.base_sequence == _due(producer) or _find(producer, header) is not None

    def update(
        self, header: BatchHeader, base_offset: int, now_ms: int, marker: TransactionMarker | None = None
    ) -> None:
        """Notes that the batch was appended at `base_offset`. A control batch comes with its `marker`."""
        # Taken out and put back at the end, so that they stay in order of activity.
        producer = self._producers.pop(header.producer_id, None)
        is_new = producer is None
        if producer is None or header.producer_epoch != producer.epoch:
            coordinator_epoch = UNKNOWN if producer is None else producer.coordinator_epoch
            producer = Producer(header.producer_epoch, [], now_ms, coordinator_epoch=coordinator_epoch)
        self._producers[header.producer_id] = producer
        producer.active_ms = now_ms
        if marker is not None:
            producer.coordinator_epoch = marker.coordinator_epoch
            self.transactions.ended(header.producer_id, base_offset, committed=marker.committed)
        elif header.is_transactional and not header.is_control:
            self.transactions.wrote(header.producer_id, base_offset)
        if header.base_sequence >= 0:
            if producer.gapless_from == UNKNOWN:
                producer.gapless_from = header.base_sequence
            producer.batches.append(
                SentBatch(
                    header.base_sequence,
                    header.last_sequence,
                    base_offset,
                    base_offset + header.last_offset_delta,
                    header.max_timestamp,
                )
            )
            del producer.batches[:-BATCHES_KEPT]
            if _distance(producer, header.last_sequence) > INT32_MAX // 2:  # long before they begin anew
                producer.gapless_from = producer.batches[0].first_sequence
        if len(self._producers) > PRODUCERS_MAX:
            self.forget_idle(len(self._producers) - PRODUCERS_MAX)
        if is_new:
            self._limit.add(self)

    def forget_idle(self, count: int) -> int:
        """Forget up to `count` producers that have been idle longest, and return how many were forgotten.

        A producer with an open transaction moves to the end of the queue instead, so that the next call begins after
        it.
        """
        forgotten = 0
        for _ in range(min(count + EVICTION_LOOKS - 1, len(self._producers))):
            if forgotten == count:
                break
            producer_id = next(iter(self._producers))
            producer = self._producers.pop(producer_id)
            if producer_id in self.transactions.open:
                self._producers[producer_id] = producer
            else:
                forgotten += 1
        return forgotten

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers that have not written for `expiration_ms`."""
        expired = []
        for producer_id, producer in self._producers.items():
            if now_ms - producer.active_ms < expiration_ms:
                break
            if producer_id not in self.transactions.open:
                expired.append(producer_id)
        for producer_id in expired:
            del self._producers[producer_id]

    def encode(self, offset: int) -> bytes:
        """Returns a snapshot: what is known when `offset` is due next."""
        body = msgspec.msgpack.encode(Snapshot(SNAPSHOT_VERSION, offset, self._producers, self.transactions.stored()))
        crc: int = crc32c(body)
        return crc.to_bytes(_CRC_BYTES, "big") + body

    @classmethod
    def decode(cls, data: bytes, offset: int, limit: ProducerLimit | None = None) -> ProducerStates | None:
        """Returns the states in a snapshot taken at `offset`; None when it is damaged."""
        body = data[_CRC_BYTES:]
        if int.from_bytes(data[:_CRC_BYTES], "big") != crc32c(body):
            return None
        try:
            snapshot = msgspec.msgpack.decode(body, type=Snapshot)
        except msgspec.MsgspecError:
            return None
        if snapshot.version not in VERSIONS_READ or snapshot.offset != offset:
            return None
        states = cls(limit)
        states._producers = snapshot.producers
        if snapshot.transactions is not None:
            states.transactions = Transactions.restored(snapshot.transactions)
        if states._producers:
            states._limit.add(states, len(states._producers))
        return states


def _find(producer: Producer, header: BatchHeader) -> SentBatch | None:
    if header.producer_epoch != producer.epoch:
        return None
    for batch in producer.batches:
        if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
            return batch
    return _long_stored(producer, header)


def _long_stored(producer: Producer, header: BatchHeader) -> SentBatch | None:
    """Recognises a retry of a batch older than those that are kept: it is stored, but it is not known where.

    A producer gets that far ahead of a batch that it has no answer for when that one is refused again and again
    (replicas are missing, the leader is about to change) although it is stored, and later ones are not. Kafka calls
    it out of order, which librdkafka takes for the end of the producer.
    """
    if producer.gapless_from == UNKNOWN or not producer.batches:
        return None
    oldest = producer.batches[0]
    first, last = _distance(producer, header.base_sequence), _distance(producer, header.last_sequence)
    if not first <= last < _distance(producer, oldest.first_sequence):
        return None
    return SentBatch(header.base_sequence, header.last_sequence, UNKNOWN, oldest.base_offset - 1, header.max_timestamp)


def _distance(producer: Producer, sequence: int) -> int:
    return sequence - producer.gapless_from & INT32_MAX


def _fenced(header: BatchHeader, producer: Producer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Producer {header.producer_id} is at epoch {producer.epoch}, so epoch {header.producer_epoch} is fenced",
    )


def _due(producer: Producer) -> int:
    """Returns the sequence number that comes next in its epoch, which a marker may have begun."""
    return next_sequence(producer.batches[-1].last_sequence) if producer.batches else 0


def _check_order(header: BatchHeader, producer: Producer) -> None:
    if header.producer_epoch < producer.epoch:
        raise _fenced(header, producer)
    expected = 0 if header.producer_epoch > producer.epoch else _due(producer)  # a new epoch counts afresh
    if header.base_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} sent sequence {header.base_sequence} where {expected} is due",
        )
