"""Source logs with batches in memory."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.migration.record_transfer import BatchChunk, ImportStream
from chronik.protocol.batch import Bytes, iter_batches
from chronik.protocol.control_records import TransactionMarker, encode_transaction_marker_batch
from chronik.protocol.records import Record, encode_batch


class MemoryLog:
    """A source log with batches in memory."""

    def __init__(self, batches: Sequence[bytes], start: int = 0, producer_ids: int = 100) -> None:
        self._data = b"".join(batches)
        headers = [header for _, header in iter_batches(self._data)]
        self.start = start
        self.end = headers[-1].next_offset if headers else start
        self.last_epoch = headers[-1].partition_leader_epoch if headers else -1
        self.producer_ids = producer_ids

    def read(self, offset: int, max_bytes: int) -> Bytes:
        begin = end = None
        for position, header in iter_batches(self._data):
            if header.next_offset > offset:
                begin = position if begin is None else begin
                if end is not None and position + header.size - begin > max_bytes:
                    break
                end = position + header.size
        return self._data[begin:end]


def build_batch(
    offset: int, count: int = 1, *, producer: int = -1, epoch: int = 3, in_transaction: bool = False
) -> bytes:
    return encode_batch(
        [Record(offset + number, 1000 + offset, b"k", b"v" * 10) for number in range(count)],
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=in_transaction,
    )


def build_marker(offset: int, producer: int, *, commit: bool, epoch: int = 3) -> bytes:
    return encode_transaction_marker_batch(
        TransactionMarker(commit, 5),
        timestamp=77,
        producer_id=producer,
        producer_epoch=0,
        base_offset=offset,
        leader_epoch=epoch,
    )


def build_stream(log: MemoryLog, first_producer_id: int = 0, committed: frozenset[int] = frozenset()) -> ImportStream:
    return ImportStream(log, "orders-0", first_producer_id, log.producer_ids, lambda producer: producer in committed)


def join_chunks(chunks: Sequence[BatchChunk]) -> bytes:
    """Return the bytes of all chunks."""
    return b"".join(chunk.data for chunk in chunks)
