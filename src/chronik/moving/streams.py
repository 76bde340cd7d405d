"""A partition's log as it is to be in the cluster: the source's batches, then the ends of transactions that are open.

Pure, and the same each time, byte by byte: whoever goes on with an import, or compares what came of it, makes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from chronik.limits import MIB
from chronik.metadata.image import Image
from chronik.metadata.records import TransactionPartition, TransactionState
from chronik.moving.source import CannotMove, SourceLog
from chronik.protocol.batch import BatchHeader, iter_batches, set_producer_id, verify_crc
from chronik.protocol.control_records import TransactionMarker, encode_marker_batch, marker_within

STRETCH_BYTES: Final = 1 * MIB
"""What is read and sent of a partition at a time, but for a batch that is larger."""

IsCommitted = Callable[[int], bool]
"""Whether the open transaction of a producer, by its id in the source, is decided to be committed."""


class Stretch(NamedTuple):
    """Batches that continue each other."""

    first_offset: int
    end_offset: int
    data: bytes
    record_count: int
    """Of clients: what ends transactions does not count."""

    def cut_before(self, offset: int) -> Stretch | None:
        """Returns what is left from `offset` on, where a batch begins; None when none does."""
        for position, header in iter_batches(self.data):
            if header.base_offset == offset:
                return _stretch(self.data[position:])
        return None


class _Open(NamedTuple):
    """The transaction of a producer that has no end yet."""

    first_offset: int
    producer_epoch: int


def decisions_of(image: Image, topic_id: bytes, partition: int) -> IsCommitted:
    """Finds out by the source's image: one that is decided, and lacks its marker here, is as it was decided."""

    def is_committed(producer_id: int) -> bool:
        transaction = image.transaction_of(producer_id)
        if transaction is None or transaction.state is not TransactionState.PREPARE_COMMIT:
            return False
        return TransactionPartition(topic_id, partition) in transaction.partitions

    return is_committed


class ImportedStream:
    """Iterates over the stretches of one partition."""

    def __init__(
        self, log: SourceLog, about: str, first_producer_id: int, producer_ids: int, is_committed: IsCommitted
    ) -> None:
        """`first_producer_id` is added to each id, of which the source has seen those below `producer_ids`."""
        self._log = log
        self._about = about
        self._first_producer_id = first_producer_id
        self._producer_ids = producer_ids
        self._is_committed = is_committed
        self._open: dict[int, _Open] = {}
        self._coordinator_epochs: dict[int, int] = {}
        self._timestamp = 0

    def __iter__(self) -> Iterator[Stretch]:
        log = self._log
        offset, due = log.start, None
        while offset < log.end:
            buffer = bytearray(log.read(offset, STRETCH_BYTES))
            if not buffer:
                raise CannotMove(f"{self._about}: there is nothing at offset {offset}, and the log ends at {log.end}")
            for position, header in iter_batches(buffer):
                self._check(buffer, position, header, header.base_offset if due is None else due)
                self._note(buffer, position, header)
                if self._first_producer_id and header.has_producer_id:
                    moved = header.producer_id + self._first_producer_id
                    set_producer_id(buffer, position, header.size, moved)
                offset = due = header.next_offset
            yield _stretch(bytes(buffer))
        yield from self._markers(log.end)

    def _check(self, buffer: bytearray, position: int, header: BatchHeader, due: int) -> None:
        if header.base_offset != due or header.next_offset > self._log.end:
            raise CannotMove(f"{self._about}: offset {header.base_offset} stands where {due} is due")
        if not verify_crc(buffer, position, header.size):
            raise CannotMove(f"{self._about}: the batch at offset {due} is damaged")
        if header.producer_id >= self._producer_ids:
            raise CannotMove(f"{self._about}: producer {header.producer_id} at offset {due} was never given its id")

    def _note(self, buffer: bytearray, position: int, header: BatchHeader) -> None:
        self._timestamp = max(self._timestamp, header.max_timestamp)
        if not header.has_producer_id:
            return
        if header.is_control:
            marker = marker_within(buffer, position)
            if marker is not None:
                self._open.pop(header.producer_id, None)
                self._coordinator_epochs[header.producer_id] = marker.coordinator_epoch
        elif header.is_transactional:
            known = self._open.get(header.producer_id)
            first = header.base_offset if known is None else known.first_offset
            self._open[header.producer_id] = _Open(first, header.producer_epoch)

    def _markers(self, offset: int) -> Iterator[Stretch]:
        """They take their time from the records before them, so that they are the same in every run."""
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
            yield _stretch(batch)


def _stretch(data: bytes) -> Stretch:
    headers = [header for _, header in iter_batches(data)]
    count = sum(header.record_count for header in headers if not header.is_control)
    return Stretch(headers[0].base_offset, headers[-1].next_offset, data, count)
