"""Batches made from batches: recompressed for a topic, thinned out by compaction; and checks that need every record."""

from __future__ import annotations

from collections.abc import Callable

from chronik.limits import DECOMPRESSED_BYTES_MAX
from chronik.protocol.batch import CODEC_MASK, DELETE_HORIZON_FLAG, BatchHeader, Bytes, TimestampType, seal
from chronik.protocol.compression import Codec, codec_of, compress
from chronik.protocol.errors import InvalidRecord
from chronik.protocol.records import Record, open_batch, walk
from chronik.protocol.varint import as_int64, encode_varint, read_varint, read_varlong


def validate_records(
    buffer: Bytes, position: int = 0, *, keys_required: bool = False, limit: int = DECOMPRESSED_BYTES_MAX
) -> None:
    """What `validate_produced` cannot see: whether the records are well-formed, numbered without gaps, and have keys.

    Raises CorruptRecords, RecordsTooLarge or InvalidRecord.
    """
    header, body = open_batch(buffer, position, limit)
    keyless = []
    for index, (record, _) in enumerate(walk(header, body)):
        if record.offset != header.base_offset + index:
            raise InvalidRecord(f"a record at offset {record.offset} where {header.base_offset + index} is due")
        if keys_required and record.key is None:
            keyless.append(index)
    if keyless:
        raise InvalidRecord("a compacted topic takes no record without a key", tuple(keyless))


def recompress(
    buffer: Bytes, position: int, codec: int, level: int | None = None, limit: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The same batch with its records compressed by `codec`."""
    header, body = open_batch(buffer, position, limit)
    return _seal_with(header, body, codec, level)


def retain(
    buffer: Bytes,
    position: int,
    keep: Callable[[Record], bool],
    *,
    keep_empty: bool = False,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> bytes | None:
    """What is left of a batch when only the records that `keep` wants stay; None when nothing does.

    Its offsets, sequence numbers, producer and leader epoch stay what they were, so that neither offsets nor duplicates
    are judged differently afterwards. With `keep_empty` a batch remains when no record does: it holds the producer's
    last sequence. `delete_horizon_ms` marks the batch with the time from which its tombstones may go, unless it has
    one. Raises as `decode_batch` does.
    """
    header, body = open_batch(buffer, position, limit)
    if header.delete_horizon_ms is not None:
        delete_horizon_ms = None
    kept, count, max_timestamp = _kept_records(header, body, keep)
    if not count:
        return _empty(header) if keep_empty else None
    if count == header.record_count and delete_horizon_ms is None:
        return bytes(memoryview(buffer)[position : position + header.size])
    if header.timestamp_type is TimestampType.CREATE_TIME:
        header = header._replace(max_timestamp=max_timestamp)
    if delete_horizon_ms is not None:
        shift = header.base_timestamp - delete_horizon_ms
        kept = [_with_shifted_timestamp(record, shift) for record in kept]
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=delete_horizon_ms
        )
    return _seal_with(header._replace(record_count=count), b"".join(kept), header.codec, level)


def _kept_records(header: BatchHeader, body: bytes, keep: Callable[[Record], bool]) -> tuple[list[bytes], int, int]:
    """The bytes of the records to keep, as they stand: nothing in them depends on their neighbours."""
    kept = []
    max_timestamp = None
    start = 0
    for record, end in walk(header, body):
        if keep(record):
            kept.append(body[start:end])
            max_timestamp = record.timestamp if max_timestamp is None else max(max_timestamp, record.timestamp)
        start = end
    return kept, len(kept), header.max_timestamp if max_timestamp is None else max_timestamp


def _with_shifted_timestamp(record: bytes, shift: int) -> bytes:
    _, start = read_varint(record, 0)
    delta, rest = read_varlong(record, start + 1)
    fields = record[start : start + 1] + encode_varint(as_int64(delta + shift)) + record[rest:]
    return encode_varint(len(fields)) + fields


def _empty(header: BatchHeader) -> bytes:
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return seal(header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0), b"")


def _seal_with(header: BatchHeader, body: bytes, codec: int, level: int | None) -> bytes:
    chosen = codec_of(codec) if body else Codec.NONE
    attributes = header.attributes & ~CODEC_MASK | chosen
    return seal(header._replace(attributes=attributes), compress(chosen, body, level))
