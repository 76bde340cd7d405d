"""Batches made from batches: recompressed for a topic, thinned out by compaction; and checks that need every record."""

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
    seal,
)
from chronik.protocol.budget import Budget
from chronik.protocol.compression import Codec, Compressor, codec_of, compress
from chronik.protocol.errors import InvalidRecord, RecordsTooLarge
from chronik.protocol.skim import NO_KEY, NO_VALUE, Body, open_within, skim
from chronik.protocol.varint import INT64_MAX, as_int64, encode_varint, read_varint, read_varlong

Keep = Callable[[int, memoryview | None, bool], bool]
"""Decides by a record's offset, its key, and whether it is a tombstone."""


def validate_records(header: BatchHeader, body: Body, *, keys_required: bool = False) -> int:
    """Checks what `validate_produced` cannot see: that records are well-formed, numbered without gaps, and have keys.

    Returns the oldest of their times. Raises CorruptRecords or InvalidRecord.
    """
    keyless: list[int] = []
    due, oldest = header.base_offset, INT64_MAX
    for offset, timestamp, _, key_length, _, _, _ in skim(header, body):
        if offset != due:
            raise InvalidRecord(f"a record at offset {offset} where {due} is due")
        due += 1
        if timestamp < oldest:
            oldest = timestamp
        if keys_required and key_length == NO_KEY:
            keyless.append(offset - header.base_offset)
            if len(keyless) == RECORD_ERRORS_MAX:
                break
    if keyless:
        raise InvalidRecord("a compacted topic takes no record without a key", tuple(keyless))
    return oldest if header.record_count else header.base_timestamp


def oldest_timestamp(header: BatchHeader, body: Body) -> int:
    """Raises CorruptRecords."""
    return min((record[1] for record in skim(header, body)), default=header.base_timestamp)


def recompress(
    header: BatchHeader, body: Body, codec: int, *, level: int | None = None, size_max: int = FRAME_BYTES_MAX
) -> bytes:
    """Returns the same batch with its records compressed by `codec`. Raises RecordsTooLarge when it would be larger
    than `size_max` and that can be known before it is made."""
    size = HEADER_BYTES + len(body)
    if codec == Codec.NONE and size > size_max:
        raise RecordsTooLarge(f"a batch of {size} bytes, uncompressed, where {size_max} are accepted")
    return _sealed(header, compress(codec_of(codec), body, level) if body else body, codec)


def retain(
    buffer: Bytes,
    position: int,
    keep: Keep,
    budget: Budget | None = None,
    *,
    keep_empty: bool = False,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> Bytes | None:
    """Returns what is left of a batch when only the records that `keep` wants stay; None when nothing does.

    Its offsets, sequence numbers, producer and leader epoch stay what they were, so that neither offsets nor duplicates
    are judged differently afterwards. With `keep_empty` a batch remains when no record does: it holds the producer's
    last sequence. `delete_horizon_ms` marks a batch in which tombstones stay with the time from which on they may be
    removed, unless it has one. If nothing changes, no bytes are copied. Raises CorruptRecords or RecordsTooLarge.
    """
    header, body = open_within(buffer, position, budget)
    choice = _choose(header, body, keep)
    if not choice.kept_count and not keep_empty:
        return None
    if header.delete_horizon_ms is not None or not choice.has_tombstone:
        delete_horizon_ms = None
    if choice.kept_count == header.record_count and delete_horizon_ms is None:
        return buffer if header.size == len(buffer) else memoryview(buffer)[position : position + header.size]
    return _thinned(header, body, choice, delete_horizon_ms, level) if choice.kept_count else _empty(header)


def with_delete_horizon(buffer: Bytes, position: int, delete_horizon_ms: int) -> bytes:
    """Returns the same batch, marked with the time from which on it may be removed. Raises CorruptRecords."""
    header, body = open_within(buffer, position)
    return _thinned(header, body, _choose(header, body, lambda *_: True), delete_horizon_ms, None)


class _Choice(NamedTuple):
    kept: bytearray
    """One for each record that stays, zero for each that goes: millions of records must not cost much."""
    kept_count: int
    max_timestamp: int
    has_tombstone: bool


def _choose(header: BatchHeader, body: Body, keep: Keep) -> _Choice:
    kept = bytearray()
    max_timestamp = None
    has_tombstone = False
    view = memoryview(body)
    for offset, timestamp, key_start, key_length, _, value_length, _ in skim(header, body):
        key = None if key_length == NO_KEY else view[key_start : key_start + key_length]
        is_kept = keep(offset, key, value_length == NO_VALUE)
        kept.append(is_kept)
        if is_kept:
            has_tombstone = has_tombstone or value_length == NO_VALUE
            max_timestamp = timestamp if max_timestamp is None else max(max_timestamp, timestamp)
    return _Choice(kept, sum(kept), header.max_timestamp if max_timestamp is None else max_timestamp, has_tombstone)


def _thinned(
    header: BatchHeader, body: Body, choice: _Choice, delete_horizon_ms: int | None, level: int | None
) -> bytes:
    """Returns the records to keep, unchanged but for their times: nothing in them depends on their neighbours."""
    compressor = Compressor(codec_of(header.codec), level)
    shift = 0 if delete_horizon_ms is None else header.base_timestamp - delete_horizon_ms
    start = 0
    view = memoryview(body)
    for is_kept, record in zip(choice.kept, skim(header, body), strict=True):
        end = record[-1]
        if is_kept:
            compressor.add(_with_shifted_timestamp(view[start:end], shift) if shift else view[start:end])
        start = end
    header = header._replace(record_count=choice.kept_count)
    if header.timestamp_type is TimestampType.CREATE_TIME:
        header = header._replace(max_timestamp=choice.max_timestamp)
    if delete_horizon_ms is not None:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=delete_horizon_ms)
    return _sealed(header, compressor.finish(), header.codec)


def _with_shifted_timestamp(record: memoryview, shift: int) -> bytes:
    _, start = read_varint(record, 0)
    delta, rest = read_varlong(record, start + 1)
    fields = bytes(record[start : start + 1]) + encode_varint(as_int64(delta + shift)) + record[rest:]
    return encode_varint(len(fields)) + fields


def _empty(header: BatchHeader) -> bytes:
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return seal(header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0), b"")


def _sealed(header: BatchHeader, compressed: Bytes, codec: int) -> bytes:
    attributes = header.attributes & ~CODEC_MASK | (codec if compressed else Codec.NONE)
    return seal(header._replace(attributes=attributes), compressed)
