"""Record batches to Arrow columns, a whole stretch of the log at once.

The bodies of many batches are laid one after the other. Where each record starts comes from walking their lengths; from
there on every field is read for all records together, and keys and values are gathered by Arrow itself: their bytes and
the gaps between them are two alternating rows of one Arrow array over the bodies, of which only the first is taken.

What is checked is what `chronik.protocol.records` checks. Where something is amiss or merely unusual, that module reads
the same batches record by record, and either it succeeds or it says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.limits import DECOMPRESSED_BYTES_MAX, MIB
from chronik.pipeline.records.batches import StoredBatch
from chronik.pipeline.records.columns import (
    HEADER_TYPE,
    HEADERS_TYPE,
    Columns,
    TypedRecord,
    Wanted,
    columns_of,
    messages_of,
    records_of,
)
from chronik.pipeline.records.starts import record_starts
from chronik.pipeline.records.varints import PADDING, ByteArray, IntArray, Unreadable, read_varints, read_varlongs
from chronik.protocol.batch import HEADER_BYTES, BatchHeader, Bytes, TimestampType, verify_crc
from chronik.protocol.compression import Codec, decompress
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import RECORD_BYTES_MIN
from chronik.protocol.varint import INT64_MAX

DECODED_BYTES_MAX: Final = 16 * MIB
"""Bodies that are decoded at once, unless one batch alone is larger: far from the 2 GiB that Arrow's 32-bit offsets
reach, small enough for a task's memory, and from a few MiB on no faster with more."""

HEADERS_MAX: Final = 64
"""Headers of one record that are read the vectorised way, one round for each. Most records have fewer than ten."""

Body = bytes | memoryview
Opened = tuple[BatchHeader, Body]


def decode(
    buffer: Bytes,
    batches: Iterable[StoredBatch],
    start: int,
    end: int,
    wanted: Wanted = Wanted(),  # noqa: B008 (immutable)
) -> Iterator[Columns]:
    """Yields the records of these batches from offset `start` to before `end`, in order.

    Raises CorruptRecords for anything malformed, RecordsTooLarge for a batch that grows beyond every limit.
    """
    opened: list[Opened] = []
    opened_bytes = 0
    for batch in batches:
        if batch.header is None:
            yield from _decode_opened(opened, start, end, wanted)
            opened, opened_bytes = [], 0
            yield from _non_empty(columns_of(_between(messages_of(buffer, batch), start, end), wanted))
            continue
        body = _open(buffer, batch.position, batch.header)
        if opened and opened_bytes + len(body) > DECODED_BYTES_MAX:
            yield from _decode_opened(opened, start, end, wanted)
            opened, opened_bytes = [], 0
        opened.append((batch.header, body))
        opened_bytes += len(body)
    yield from _decode_opened(opened, start, end, wanted)


def _open(buffer: Bytes, position: int, header: BatchHeader) -> Body:
    if not verify_crc(buffer, position, header.size):
        raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not match")
    body = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    if header.codec == Codec.NONE or not body:  # compaction leaves batches without records, whatever their codec
        return body
    return decompress(header.codec, body, DECOMPRESSED_BYTES_MAX)


def _decode_opened(opened: Sequence[Opened], start: int, end: int, wanted: Wanted) -> Iterator[Columns]:
    if not opened:
        return
    try:
        columns = _decode_together(opened, start, end, wanted)
    except Unreadable:
        columns = columns_of(_between(records_of(opened), start, end), wanted)
    yield from _non_empty(columns)


def _non_empty(columns: Columns) -> Iterator[Columns]:
    if len(columns):
        yield columns


def _between(records: Iterable[TypedRecord], start: int, end: int) -> Iterator[TypedRecord]:
    return (each for each in records if start <= each.record.offset < end)


class _Batches(NamedTuple):
    """The same field of all batches, and where each one's records are."""

    base_offset: IntArray
    last_offset: IntArray
    base_timestamp: IntArray
    max_timestamp: IntArray
    append_time: npt.NDArray[np.bool_]
    record_count: IntArray
    body_start: IntArray
    body_end: IntArray


class _Fields(NamedTuple):
    """The same field of all records; fields that are bytes as position and length, which is -1 for null."""

    offset: IntArray
    timestamp: IntArray
    timestamp_type: IntArray
    key_at: IntArray
    key_length: IntArray
    value_at: IntArray
    value_length: IntArray
    header_count: IntArray
    headers_at: IntArray
    end: IntArray

    def rows(self, chosen: slice) -> _Fields:
        return _Fields(*(field[chosen] for field in self))


def _decode_together(opened: Sequence[Opened], start: int, end: int, wanted: Wanted) -> Columns:
    joined = b"".join([*(body for _, body in opened), PADDING])
    data = np.frombuffer(joined, np.uint8)
    batches = _batches(opened)
    bodies = [body for _, body in opened]
    starts = record_starts(data, batches.body_start, batches.body_end, batches.record_count, bodies)
    fields = _read_fields(data, starts, batches)
    # Only reading all headers shows where the fields of a record end: that is checked whether they are wanted or not.
    headers = _read_headers(data, fields)
    first, last = np.searchsorted(fields.offset, (start, end))
    chosen = fields.rows(slice(first, last))
    source = pa.py_buffer(joined)
    return Columns(
        offset=pa.array(chosen.offset),
        timestamp_ms=pa.array(chosen.timestamp),
        timestamp_type=pa.array(chosen.timestamp_type.astype(np.int32)),
        key=_binary(source, chosen.key_at, chosen.key_length) if wanted.key else None,
        value=_binary(source, chosen.value_at, chosen.value_length) if wanted.value else None,
        headers=_header_lists(source, headers, fields.header_count).slice(first, last - first)
        if wanted.headers
        else None,
    )


def _batches(opened: Sequence[Opened]) -> _Batches:
    headers = [header for header, _ in opened]
    sizes = np.array([len(body) for _, body in opened], np.int64)
    ends = np.cumsum(sizes)
    batches = _Batches(
        base_offset=np.array([header.base_offset for header in headers], np.int64),
        last_offset=np.array([min(header.last_offset, INT64_MAX) for header in headers], np.int64),
        base_timestamp=np.array([header.base_timestamp for header in headers], np.int64),
        max_timestamp=np.array([header.max_timestamp for header in headers], np.int64),
        append_time=np.array([header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers], np.bool_),
        record_count=np.array([header.record_count for header in headers], np.int64),
        body_start=ends - sizes,
        body_end=ends,
    )
    plausible = (batches.record_count >= 0) & (batches.record_count * RECORD_BYTES_MIN <= sizes)
    in_order = (batches.base_offset >= 0) & (batches.last_offset >= batches.base_offset - 1)
    if not (plausible & in_order).all() or (batches.base_offset[1:] <= batches.last_offset[:-1]).any():
        raise Unreadable("batches that cannot be")
    return batches


def _read_fields(data: ByteArray, starts: IntArray, batches: _Batches) -> _Fields:
    lengths, at = read_varints(data, starts)
    ends = at + lengths
    _check_ends(starts, ends, batches)
    timestamp_delta, at = read_varlongs(data, at + 1)  # after the attributes, of which none is defined
    offset_delta, at = read_varints(data, at)
    key_length, key_at = read_varints(data, at)
    value_length, value_at = read_varints(data, key_at + np.maximum(key_length, 0))
    header_count, headers_at = read_varints(data, value_at + np.maximum(value_length, 0))
    if int(min(key_length.min(initial=0), value_length.min(initial=0))) < -1 or (headers_at > ends).any():
        raise Unreadable("a field that cannot be")
    offsets = np.repeat(batches.base_offset, batches.record_count) + offset_delta
    if (np.diff(offsets) <= 0).any() or (offset_delta < 0).any():
        raise Unreadable("offsets out of order")
    if (offsets > np.repeat(batches.last_offset, batches.record_count)).any():
        raise Unreadable("an offset after the last one of its batch")
    timestamps = np.repeat(batches.base_timestamp, batches.record_count) + timestamp_delta
    if batches.append_time.any():
        by_append = np.repeat(batches.append_time, batches.record_count)
        timestamps = np.where(by_append, np.repeat(batches.max_timestamp, batches.record_count), timestamps)
    return _Fields(
        offset=offsets,
        timestamp=timestamps,
        timestamp_type=np.repeat(batches.append_time.astype(np.int64), batches.record_count),
        key_at=key_at,
        key_length=key_length,
        value_at=value_at,
        value_length=value_length,
        header_count=header_count,
        headers_at=headers_at,
        end=ends,
    )


def _check_ends(starts: IntArray, ends: IntArray, batches: _Batches) -> None:
    """Checks that every record ends where the next one starts, and the last one where its batch ends."""
    filled = batches.record_count > 0
    if (batches.body_start[~filled] != batches.body_end[~filled]).any():
        raise Unreadable("bytes in a batch without records")
    expected = np.empty_like(ends)
    expected[:-1] = starts[1:]
    expected[np.cumsum(batches.record_count)[filled] - 1] = batches.body_end[filled]
    if (ends != expected).any():
        raise Unreadable("records that do not fill their batch")


class _Headers(NamedTuple):
    name_at: IntArray
    name_length: IntArray
    value_at: IntArray
    value_length: IntArray


def _read_headers(data: ByteArray, fields: _Fields) -> _Headers:
    """Reads the headers of all records, in order. Checks that the fields of every record end where the record does."""
    counts = fields.header_count
    most = int(counts.max(initial=0))
    if int(counts.min(initial=0)) < 0 or most > HEADERS_MAX:
        raise Unreadable("more headers than are read together")
    at = fields.headers_at.copy()
    rounds: list[_Headers] = []
    for number in range(most):
        rows = np.flatnonzero(counts > number)
        name_length, name_at = read_varints(data, at[rows])
        value_length, value_at = read_varints(data, name_at + np.maximum(name_length, 0))
        if int(name_length.min()) < 0 or int(value_length.min()) < -1:
            raise Unreadable("a header that cannot be")
        at[rows] = value_at + np.maximum(value_length, 0)
        rounds.append(_Headers(name_at, name_length, value_at, value_length))
    if (at != fields.end).any():
        raise Unreadable("fields that do not fill their record")
    if len(rounds) < 2:
        return rounds[0] if rounds else _Headers(*(np.empty(0, np.int64) for _ in range(4)))
    together = _Headers(*(np.concatenate(column) for column in zip(*rounds, strict=True)))
    order = np.argsort(together.name_at)
    return _Headers(*(column[order] for column in together))


def _header_lists(source: pa.Buffer, headers: _Headers, counts: IntArray) -> pa.ListArray:
    if not headers.name_at.size:
        return pa.nulls(len(counts), HEADERS_TYPE)
    try:
        names = _binary(source, headers.name_at, headers.name_length).cast(pa.string())
    except pa.ArrowInvalid:
        raise Unreadable("a header's name that is not UTF-8") from None
    values = _binary(source, headers.value_at, headers.value_length)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=HEADERS_TYPE, mask=pa.array(counts == 0))


def _binary(source: pa.Buffer, at: IntArray, length: IntArray) -> pa.BinaryArray:
    """Makes one array of the pieces of `source` at these ascending positions; a length of -1 is a null."""
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    nulls = length < 0
    null_count = int(np.count_nonzero(nulls))
    if null_count == count:
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[:-1:2] = at
    bounds[1::2] = at + (np.maximum(length, 0) if null_count else length)
    bounds[-1] = bounds[-2]
    validity = None
    if null_count:
        valid = np.ones(2 * count, np.bool_)
        valid[::2] = ~nulls
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    pieces_and_gaps = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [validity, pa.py_buffer(bounds), source])
    return pieces_and_gaps.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
