"""The log of an imported partition: the source's batches, followed by markers that end open transactions.

The result is deterministic, byte by byte: it is generated again to continue or to verify an import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from chronik.limits import MIB
from chronik.metadata.image import Image
from chronik.metadata.records import TransactionPartition, TransactionState
from chronik.migration.source import MigrationError, SourceLog
from chronik.protocol.batch import BatchHeader, iter_batches, set_producer_id, verify_crc
from chronik.protocol.control_records import TransactionMarker, encode_marker_batch, parse_marker_batch

CHUNK_BYTES: Final = 1 * MIB
"""The target size of a chunk. A larger batch is a chunk of its own."""

IsCommitted = Callable[[int], bool]
"""A predicate that says whether the open transaction of a producer of the source was decided to be committed."""


class BatchChunk(NamedTuple):
    """A chunk of consecutive batches."""

    first_offset: int
    end_offset: int
    data: bytes
    record_count: int
    """The number of clients' records, without transaction markers."""

    def starting_at(self, offset: int) -> BatchChunk | None:
        """Return the chunk from `offset` on, or None if no batch starts there."""
        for position, header in iter_batches(self.data):
            if header.base_offset == offset:
                return _build_chunk(self.data[position:])
        return None


class _OpenTransaction(NamedTuple):
    """The open transaction of a producer."""

    first_offset: int
    producer_epoch: int


def commit_decisions(image: Image, topic_id: bytes, partition: int) -> IsCommitted:
    """Return a predicate for commits that the source's coordinator decided but whose markers are not written yet."""

    def is_committed(producer_id: int) -> bool:
        transaction = image.transaction_by_producer(producer_id)
        if transaction is None or transaction.state is not TransactionState.PREPARE_COMMIT:
            return False
        return TransactionPartition(topic_id, partition) in transaction.partitions

    return is_committed


class ImportStream:
    """An iterable over the chunks of one imported partition."""

    def __init__(
        self, log: SourceLog, about: str, first_producer_id: int, producer_ids: int, is_committed: IsCommitted
    ) -> None:
        """Initialize the stream; `first_producer_id` is added to producer ids, which are below `producer_ids`."""
        self._log = log
        self._about = about
        self._first_producer_id = first_producer_id
        self._producer_ids = producer_ids
        self._is_committed = is_committed
        self._open: dict[int, _OpenTransaction] = {}
        self._coordinator_epochs: dict[int, int] = {}
        self._timestamp = 0

    def __iter__(self) -> Iterator[BatchChunk]:
        log = self._log
        offset, expected = log.start, None
        while offset < log.end:
            buffer = bytearray(log.read(offset, CHUNK_BYTES))
            if not buffer:
                raise MigrationError(f"{self._about}: no records at offset {offset}, but the log ends at {log.end}")
            for position, header in iter_batches(buffer):
                self._check(buffer, position, header, header.base_offset if expected is None else expected)
                self._track_transaction(buffer, position, header)
                if self._first_producer_id and header.has_producer_id:
                    moved = header.producer_id + self._first_producer_id
                    set_producer_id(buffer, position, header.size, moved)
                offset = expected = header.next_offset
            yield _build_chunk(bytes(buffer))
        yield from self._markers(log.end)

    def _check(self, buffer: bytearray, position: int, header: BatchHeader, expected: int) -> None:
        if header.base_offset != expected or header.next_offset > self._log.end:
            raise MigrationError(f"{self._about}: expected offset {expected}, found {header.base_offset}")
        if not verify_crc(buffer, position, header.size):
            raise MigrationError(f"{self._about}: the batch at offset {expected} is damaged")
        if header.producer_id >= self._producer_ids:
            raise MigrationError(
                f"{self._about}: producer id {header.producer_id} at offset {expected} was never allocated"
            )

    def _track_transaction(self, buffer: bytearray, position: int, header: BatchHeader) -> None:
        """Track open transactions and coordinator epochs."""
        self._timestamp = max(self._timestamp, header.max_timestamp)
        if not header.has_producer_id:
            return
        if header.is_control:
            marker = parse_marker_batch(buffer, position)
            if marker is not None:
                self._open.pop(header.producer_id, None)
                self._coordinator_epochs[header.producer_id] = marker.coordinator_epoch
        elif header.is_transactional:
            known = self._open.get(header.producer_id)
            first = header.base_offset if known is None else known.first_offset
            self._open[header.producer_id] = _OpenTransaction(first, header.producer_epoch)

    def _markers(self, offset: int) -> Iterator[BatchChunk]:
        """Yield abort or commit markers for open transactions.

        Their timestamp is that of the latest record, so that they are the same in every run.
        """
        in_order = sorted(self._open.items(), key=lambda item: item[1].first_offset)
        for number, (producer_id, transaction) in enumerate(in_order):
            coordinator_epoch = self._coordinator_epochs.get(producer_id, 0)
            batch = encode_marker_batch(
                TransactionMarker(self._is_committed(producer_id), coordinator_epoch),
                timestamp=self._timestamp,
                producer_id=producer_id + self._first_producer_id,
                producer_epoch=transaction.producer_epoch,
                base_offset=offset + number,
                leader_epoch=self._log.last_epoch,
            )
            yield _build_chunk(batch)


def _build_chunk(data: bytes) -> BatchChunk:
    headers = [header for _, header in iter_batches(data)]
    count = sum(header.record_count for header in headers if not header.is_control)
    return BatchChunk(headers[0].base_offset, headers[-1].next_offset, data, count)
