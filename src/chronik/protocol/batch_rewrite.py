"""Transformation of batches (recompression, compaction), and validation that requires every record."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chronik.limits import FRAME_BYTES_MAX, RECORD_ERRORS_MAX
from chronik.protocol.batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    BatchHeader,
    Bytes,
    TimestampType,
    build_batch,
)
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec, Compressor, compress, parse_codec
from chronik.protocol.errors import InvalidRecord, RecordsTooLarge
from chronik.protocol.record_scan import NO_KEY, NO_VALUE, RecordsBody, decompress_within_budget, scan_records
from chronik.protocol.varint import INT64_MAX, encode_varint, read_varint, read_varlong, wrap_int64

RecordFilter = Callable[[int, memoryview | None, bool], bool]
"""A predicate that takes a record's offset, its key and whether it is a tombstone, and returns whether to keep it."""


def validate_records(header: BatchHeader, body: RecordsBody, *, keys_required: bool = False) -> int:
    """Validate the decompressed records of a batch, and return their smallest timestamp.

    Records must be well-formed, have contiguous offsets and, with `keys_required`, keys.

    Raises:
        CorruptRecords: The records are malformed.
        InvalidRecord: Offsets have gaps, or a key is missing.
    """
    keyless: list[int] = []
    expected, oldest = header.base_offset, INT64_MAX
    for offset, timestamp, _, key_length, _, _, _ in scan_records(header, body):
        if offset != expected:
            raise InvalidRecord(f"a record has offset {offset}, expected {expected}")
        expected += 1
        if timestamp < oldest:
            oldest = timestamp
        if keys_required and key_length == NO_KEY:
            keyless.append(offset - header.base_offset)
            if len(keyless) == RECORD_ERRORS_MAX:
                break
    if keyless:
        raise InvalidRecord("records of a compacted topic must have a key", tuple(keyless))
    return oldest if header.record_count else header.base_timestamp


def find_min_timestamp(header: BatchHeader, body: RecordsBody) -> int:
    """Return the smallest timestamp of the batch's records.

    Raises:
        CorruptRecords: The records are malformed.
    """
    return min((record[1] for record in scan_records(header, body)), default=header.base_timestamp)


def recompress_batch(
    header: BatchHeader, body: RecordsBody, codec: int, *, level: int | None = None, size_max: int = FRAME_BYTES_MAX
) -> bytes:
    """Return the batch with its records recompressed by `codec`.

    Raises:
        RecordsTooLarge: The uncompressed batch would exceed `size_max`.
    """
    size = HEADER_BYTES + len(body)
    if codec == Codec.NONE and size > size_max:
        raise RecordsTooLarge(f"the uncompressed batch has {size} bytes, the topic accepts {size_max}")
    return _build_compressed_batch(header, compress(parse_codec(codec), body, level) if body else body, codec)


def filter_batch(
    buffer: Bytes,
    position: int,
    keep: RecordFilter,
    budget: DecompressionBudget | None = None,
    *,
    keep_empty: bool = False,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> Bytes | None:
    """Return the batch with only the records that `keep` selects, or None if the whole batch is to be removed.

    Offsets, sequence numbers, producer and leader epoch do not change, so duplicate detection still works. If nothing
    changes, no bytes are copied.

    Args:
        keep_empty: Keep a batch without records, which preserves the producer's last sequence number.
        delete_horizon_ms: The delete horizon to set if tombstones are left and the batch has none yet.

    Raises:
        CorruptRecords: The batch is damaged.
        RecordsTooLarge: The batch exceeds the budget.
    """
    header, body = decompress_within_budget(buffer, position, budget)
    selection = _select_records(header, body, keep)
    if not selection.kept_count and not keep_empty:
        return None
    if header.delete_horizon_ms is not None or not selection.has_tombstone:
        delete_horizon_ms = None
    if selection.kept_count == header.record_count and delete_horizon_ms is None:
        return buffer if header.size == len(buffer) else memoryview(buffer)[position : position + header.size]
    return (
        _build_reduced_batch(header, body, selection, delete_horizon_ms, level)
        if selection.kept_count
        else _build_empty_batch(header)
    )


def set_delete_horizon(buffer: Bytes, position: int, delete_horizon_ms: int) -> bytes:
    """Return the batch with a delete horizon, the time from which compaction may remove its tombstones or marker.

    Raises:
        CorruptRecords: The batch is damaged.
    """
    header, body = decompress_within_budget(buffer, position)
    return _build_reduced_batch(header, body, _select_records(header, body, lambda *_: True), delete_horizon_ms, None)


class _RecordSelection(NamedTuple):
    """The records of a batch that a record filter keeps."""

    kept: bytearray
    """A bytearray with one byte per record: 1 if the record is kept, 0 if it is removed.

    A bytearray, because there may be millions.
    """
    kept_count: int
    max_timestamp: int
    has_tombstone: bool


def _select_records(header: BatchHeader, body: RecordsBody, keep: RecordFilter) -> _RecordSelection:
    kept = bytearray()
    max_timestamp = None
    has_tombstone = False
    view = memoryview(body)
    for offset, timestamp, key_start, key_length, _, value_length, _ in scan_records(header, body):
        key = None if key_length == NO_KEY else view[key_start : key_start + key_length]
        is_kept = keep(offset, key, value_length == NO_VALUE)
        kept.append(is_kept)
        if is_kept:
            has_tombstone = has_tombstone or value_length == NO_VALUE
            max_timestamp = timestamp if max_timestamp is None else max(max_timestamp, timestamp)
    return _RecordSelection(
        kept, sum(kept), header.max_timestamp if max_timestamp is None else max_timestamp, has_tombstone
    )


def _build_reduced_batch(
    header: BatchHeader,
    body: RecordsBody,
    selection: _RecordSelection,
    delete_horizon_ms: int | None,
    level: int | None,
) -> bytes:
    """Return a batch that contains only the kept records and has the header fields of the original batch."""
    compressor = Compressor(parse_codec(header.codec), level)
    shift = 0 if delete_horizon_ms is None else header.base_timestamp - delete_horizon_ms
    start = 0
    view = memoryview(body)
    for is_kept, record in zip(selection.kept, scan_records(header, body), strict=True):
        end = record[-1]
        if is_kept:
            compressor.add(_shift_record_timestamp(view[start:end], shift) if shift else view[start:end])
        start = end
    header = header._replace(record_count=selection.kept_count)
    if header.timestamp_type is TimestampType.CREATE_TIME:
        header = header._replace(max_timestamp=selection.max_timestamp)
    if delete_horizon_ms is not None:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=delete_horizon_ms)
    return _build_compressed_batch(header, compressor.finish(), header.codec)


def _shift_record_timestamp(record: memoryview, shift: int) -> bytes:
    _, start = read_varint(record, 0)
    delta, rest = read_varlong(record, start + 1)
    fields = bytes(record[start : start + 1]) + encode_varint(wrap_int64(delta + shift)) + record[rest:]
    return encode_varint(len(fields)) + fields


def _build_empty_batch(header: BatchHeader) -> bytes:
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return build_batch(header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0), b"")


def _build_compressed_batch(header: BatchHeader, compressed: Bytes, codec: int) -> bytes:
    attributes = header.attributes & ~CODEC_MASK | (codec if compressed else Codec.NONE)
    return build_batch(header._replace(attributes=attributes), compressed)
