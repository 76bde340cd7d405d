"""Vectorised decoding of record batches into Arrow columns.

The bodies of many batches are concatenated. A scan of the record lengths finds where each record starts; then each
field is read for all records at once. Keys and values are gathered by Arrow: their bytes and the gaps between them form
the alternating elements of one binary array over the bodies, of which every other element is taken.

The checks are those of `chronik.protocol.records`. When the vectorised decoder finds something invalid or unusual, that
module decodes the same batches record by record, and either succeeds or raises the error.

The search for record starts is the only sequential part: each record begins with its length, so a start depends on the
previous record. Many scans advance in parallel, one step of all scans at a time. Each batch is scanned on its own; a
long batch is split at positions that look like the start of a record. A split was correct if the previous scan arrives
exactly there. If one does not, or if there are too few scans, the batches are scanned one after the other in plain
Python. The search does not validate records: the decoder checks that each one ends where the next one starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.formats.varint_arrays import ByteArray
from chronik.limits import DECOMPRESSED_BYTES_MAX, MIB
from chronik.pipeline.records.batches import StoredBatch
from chronik.pipeline.records.columns import (
    HEADER_TYPE,
    HEADERS_TYPE,
    ColumnSelection,
    RecordColumns,
    RecordWithTimestampType,
    convert_records_to_columns,
    iter_legacy_messages,
    iter_records_of_batches,
)
from chronik.pipeline.records.varints import (
    PADDING,
    IntArray,
    VectorizedDecodeError,
    read_varints,
    read_varlongs,
)
from chronik.protocol.batch import HEADER_BYTES, BatchHeader, Bytes, TimestampType, verify_crc
from chronik.protocol.compression import Codec, decompress
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import RECORD_BYTES_MIN
from chronik.protocol.varint import INT64_MAX, read_varint

PARALLEL_SCANS_MIN: Final = 64
"""Minimum number of batch parts for which parallel scanning (with NumPy) is faster than sequential scanning in
Python."""

RECORDS_PER_SCAN: Final = 200
"""Number of records in each part of a long batch. Shorter parts allow more parallelism but cost more to split."""

WINDOW_RECORDS: Final = 3
WINDOW_BYTES_MAX: Final = 1024
"""Maximum size in bytes of the search window for the start of a record, usually WINDOW_RECORDS average records."""

CHAIN_RECORDS: Final = 5
"""Number of consecutive plausible records that must follow a position for it to count as the start of a record."""

STEPS_EXCESS_MAX: Final = 4
"""Maximum ratio of a part's record count to the average. Batches with longer parts are scanned sequentially."""

_FIELDS_BYTES_MIN: Final = 6

DECODED_BYTES_MAX: Final = 16 * MIB
"""Maximum total size of batch bodies decoded at once, in bytes, unless a single batch is larger.

It is far below the 2 GiB limit of Arrow's 32-bit offsets, and larger values are not faster.
"""

HEADERS_MAX: Final = 64
"""Maximum number of headers per record for the vectorised decoder, which needs one pass per header."""

Body = bytes | memoryview
DecompressedBatch = tuple[BatchHeader, Body]


class _ScanRanges(NamedTuple):
    """The start and end positions of the batch parts that are scanned in parallel."""

    start: IntArray
    end: IntArray


def find_record_starts(
    data: ByteArray, bases: IntArray, ends: IntArray, counts: IntArray, bodies: Sequence[bytes | memoryview]
) -> IntArray:
    """Find the start position of every record in the batch bodies, which extend from `bases` to `ends` in `data`.

    Raises:
        VectorizedDecodeError: The lengths are invalid, or do not match the number of records.
    """
    total = int(counts.sum())
    if total and total >= PARALLEL_SCANS_MIN * min(RECORDS_PER_SCAN, int(counts.max(initial=0))):
        try:
            return _scan_parallel(data, _split_into_scans(data, bases, ends, counts), total)
        except VectorizedDecodeError:
            pass  # a split point may have been wrong
    scanned = [_scan_sequential(body, int(count)) for body, count in zip(bodies, counts, strict=True)]
    starts = np.fromiter((start for each in scanned for start in each), np.int64, total)
    return starts + np.repeat(bases, counts)


def _scan_parallel(data: ByteArray, scans: _ScanRanges, total: int) -> IntArray:
    steps_max = STEPS_EXCESS_MAX * (total // len(scans.start) + 1)
    step_counts = np.zeros(len(scans.start), np.int64)
    running = np.arange(len(scans.start))
    at, ends = scans.start, scans.end
    steps: list[tuple[IntArray, IntArray]] = []
    while running.size:
        steps.append((running, at))
        lengths, after = read_varints(data, at)
        if int(lengths.min()) < _FIELDS_BYTES_MIN:
            raise VectorizedDecodeError("a record is too short")
        at = after + lengths
        if (at >= ends).any():
            if (at > ends).any():
                raise VectorizedDecodeError("a scan does not end where the next one starts")
            ongoing = at < ends
            step_counts[running[~ongoing]] = len(steps)
            running, at, ends = running[ongoing], at[ongoing], ends[ongoing]
        if len(steps) > steps_max and running.size < PARALLEL_SCANS_MIN:
            raise VectorizedDecodeError("a scan takes too many steps")
    if int(step_counts.sum()) != total:
        raise VectorizedDecodeError("the number of records does not match the batch headers")
    firsts = np.cumsum(step_counts) - step_counts
    starts = np.empty(total, np.int64)
    for number, (scan_indices, positions) in enumerate(steps):
        starts[firsts[scan_indices] + number] = positions
    return starts


def _split_into_scans(data: ByteArray, bases: IntArray, ends: IntArray, counts: IntArray) -> _ScanRanges:
    """Split batches into parts to scan in parallel: one for each non-empty batch, several for a long one."""
    filled = counts > 0
    bases, ends, counts = bases[filled], ends[filled], counts[filled]
    parts = counts // RECORDS_PER_SCAN + 1
    if (parts == 1).all():
        return _ScanRanges(bases, ends)
    sizes = ends - bases
    window = min(WINDOW_BYTES_MAX, int((WINDOW_RECORDS * sizes[parts > 1] // counts[parts > 1]).max()))
    # Split points are where the second and each further part of a batch would start if all records had the same size.
    batch_indices = np.repeat(np.arange(len(parts)), parts - 1)
    part_numbers = np.arange(len(batch_indices)) - np.repeat(np.cumsum(parts - 1) - (parts - 1), parts - 1) + 1
    guesses = bases[batch_indices] + sizes[batch_indices] * part_numbers // parts[batch_indices]
    found = _find_plausible_starts(data, guesses, ends[batch_indices], window)
    starts = np.unique(np.concatenate([bases, found]))
    return _ScanRanges(starts, np.append(starts[1:], ends[-1]))


def _find_plausible_starts(data: ByteArray, guesses: IntArray, ends: IntArray, window: int) -> IntArray:
    """Find the first plausible record start at or after each guessed position; omit guesses without one."""
    candidates = (guesses[:, None] + np.arange(window)).ravel()
    origins = np.repeat(np.arange(len(guesses)), window)
    at = candidates
    for _ in range(CHAIN_RECORDS):
        following, plausible = _parse_candidate_records(data, at)
        plausible &= following <= ends[origins]
        chosen = np.flatnonzero(plausible)
        candidates, origins, at = candidates[chosen], origins[chosen], following[chosen]
    _, firsts = np.unique(origins, return_index=True)
    return candidates[firsts]


def _parse_candidate_records(data: ByteArray, at: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Parse a record length at each position; return where the record would end, and whether it is plausible.

    A plausible record has a sufficient length, encoded in one or two bytes, and attributes of 0.
    """
    first = data.take(at, mode="clip")
    second = data.take(at + 1, mode="clip")
    two_bytes = first >= 0x80
    length = np.where(two_bytes, (first & 0x7F) | second.astype(np.int64) << 7, first) >> 1
    attributes = np.where(two_bytes, data.take(at + 2, mode="clip"), second)
    plausible = (first & 1 == 0) & (attributes == 0) & (length >= _FIELDS_BYTES_MIN) & (~two_bytes | (second < 0x80))
    return at + 1 + two_bytes + length, plausible


def _scan_sequential(body: bytes | memoryview, count: int) -> list[int]:
    starts = []
    position = 0
    try:
        for _ in range(count):
            starts.append(position)
            # Lengths of one and two bytes are decoded inline: function calls would dominate the cost.
            if (first := body[position]) < 0x80:
                position += 1 + (first >> 1)
            elif (second := body[position + 1]) < 0x80:
                position += 2 + ((first & 0x7F | second << 7) >> 1)
            else:
                length, position = read_varint(body, position)
                position += max(length, 0)
    except (IndexError, CorruptRecords):
        raise VectorizedDecodeError("a record or its length is truncated") from None
    return starts


def decode_batches(
    buffer: Bytes,
    batches: Iterable[StoredBatch],
    start: int,
    end: int,
    wanted: ColumnSelection = ColumnSelection(),  # noqa: B008 (immutable)
) -> Iterator[RecordColumns]:
    """Yield the records of the batches from offset `start` (inclusive) to `end` (exclusive), in order.

    Raises:
        CorruptRecords: A batch or record is malformed.
        RecordsTooLarge: A decompressed batch exceeds the limit.
    """
    decompressed: list[DecompressedBatch] = []
    decompressed_bytes = 0
    for batch in batches:
        if batch.header is None:
            yield from _decode_group(decompressed, start, end, wanted)
            decompressed, decompressed_bytes = [], 0
            yield from _skip_empty_columns(
                convert_records_to_columns(
                    _filter_offset_range(iter_legacy_messages(buffer, batch), start, end), wanted
                )
            )
            continue
        body = _decompress_body(buffer, batch.position, batch.header)
        if decompressed and decompressed_bytes + len(body) > DECODED_BYTES_MAX:
            yield from _decode_group(decompressed, start, end, wanted)
            decompressed, decompressed_bytes = [], 0
        decompressed.append((batch.header, body))
        decompressed_bytes += len(body)
    yield from _decode_group(decompressed, start, end, wanted)


def _decompress_body(buffer: Bytes, position: int, header: BatchHeader) -> Body:
    if not verify_crc(buffer, position, header.size):
        raise CorruptRecords(f"batch at offset {header.base_offset}: checksum mismatch")
    body = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    if header.codec == Codec.NONE or not body:  # compaction leaves empty bodies, also with a codec
        return body
    return decompress(header.codec, body, DECOMPRESSED_BYTES_MAX)


def _decode_group(
    decompressed: Sequence[DecompressedBatch], start: int, end: int, wanted: ColumnSelection
) -> Iterator[RecordColumns]:
    if not decompressed:
        return
    try:
        columns = _decode_vectorised(decompressed, start, end, wanted)
    except VectorizedDecodeError:
        columns = convert_records_to_columns(
            _filter_offset_range(iter_records_of_batches(decompressed), start, end), wanted
        )
    yield from _skip_empty_columns(columns)


def _skip_empty_columns(columns: RecordColumns) -> Iterator[RecordColumns]:
    if len(columns):
        yield columns


def _filter_offset_range(
    records: Iterable[RecordWithTimestampType], start: int, end: int
) -> Iterator[RecordWithTimestampType]:
    return (each for each in records if start <= each.record.offset < end)


class _BatchArrays(NamedTuple):
    """The header fields of all batches as arrays, with the range of each body."""

    base_offset: IntArray
    last_offset: IntArray
    base_timestamp: IntArray
    max_timestamp: IntArray
    append_time: npt.NDArray[np.bool_]
    record_count: IntArray
    body_start: IntArray
    body_end: IntArray


class _FieldArrays(NamedTuple):
    """The positions and lengths of all records' fields, as NumPy arrays. The length of a null field is -1."""

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

    def rows(self, chosen: slice) -> _FieldArrays:
        return _FieldArrays(*(field[chosen] for field in self))


def _decode_vectorised(
    decompressed: Sequence[DecompressedBatch], start: int, end: int, wanted: ColumnSelection
) -> RecordColumns:
    joined = b"".join([*(body for _, body in decompressed), PADDING])
    data = np.frombuffer(joined, np.uint8)
    batches = _build_batch_arrays(decompressed)
    bodies = [body for _, body in decompressed]
    starts = find_record_starts(data, batches.body_start, batches.body_end, batches.record_count, bodies)
    fields = _read_fields(data, starts, batches)
    # Only the end of the headers shows whether a record's fields fill it, so headers are always read.
    headers = _read_headers(data, fields)
    first, last = np.searchsorted(fields.offset, (start, end))
    chosen = fields.rows(slice(first, last))
    source = pa.py_buffer(joined)
    return RecordColumns(
        offset=pa.array(chosen.offset),
        timestamp_ms=pa.array(chosen.timestamp),
        timestamp_type=pa.array(chosen.timestamp_type.astype(np.int32)),
        key=_build_binary_array(source, chosen.key_at, chosen.key_length) if wanted.key else None,
        value=_build_binary_array(source, chosen.value_at, chosen.value_length) if wanted.value else None,
        headers=_build_header_lists(source, headers, fields.header_count).slice(first, last - first)
        if wanted.headers
        else None,
    )


def _build_batch_arrays(decompressed: Sequence[DecompressedBatch]) -> _BatchArrays:
    headers = [header for header, _ in decompressed]
    sizes = np.array([len(body) for _, body in decompressed], np.int64)
    ends = np.cumsum(sizes)
    batches = _BatchArrays(
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
        raise VectorizedDecodeError("invalid batch header")
    return batches


def _read_fields(data: ByteArray, starts: IntArray, batches: _BatchArrays) -> _FieldArrays:
    lengths, at = read_varints(data, starts)
    ends = at + lengths
    _check_record_ends(starts, ends, batches)
    timestamp_delta, at = read_varlongs(data, at + 1)  # skip the attributes, which are unused
    offset_delta, at = read_varints(data, at)
    key_length, key_at = read_varints(data, at)
    value_length, value_at = read_varints(data, key_at + np.maximum(key_length, 0))
    header_count, headers_at = read_varints(data, value_at + np.maximum(value_length, 0))
    if int(min(key_length.min(initial=0), value_length.min(initial=0))) < -1 or (headers_at > ends).any():
        raise VectorizedDecodeError("invalid field length")
    offsets = np.repeat(batches.base_offset, batches.record_count) + offset_delta
    if (np.diff(offsets) <= 0).any() or (offset_delta < 0).any():
        raise VectorizedDecodeError("offsets are not ascending")
    if (offsets > np.repeat(batches.last_offset, batches.record_count)).any():
        raise VectorizedDecodeError("an offset is beyond the last offset of its batch")
    timestamps = np.repeat(batches.base_timestamp, batches.record_count) + timestamp_delta
    if batches.append_time.any():
        by_append = np.repeat(batches.append_time, batches.record_count)
        timestamps = np.where(by_append, np.repeat(batches.max_timestamp, batches.record_count), timestamps)
    return _FieldArrays(
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


def _check_record_ends(starts: IntArray, ends: IntArray, batches: _BatchArrays) -> None:
    """Check that every record ends where the next one starts, and the last one at the end of its batch."""
    filled = batches.record_count > 0
    if (batches.body_start[~filled] != batches.body_end[~filled]).any():
        raise VectorizedDecodeError("a batch without records is not empty")
    expected = np.empty_like(ends)
    expected[:-1] = starts[1:]
    expected[np.cumsum(batches.record_count)[filled] - 1] = batches.body_end[filled]
    if (ends != expected).any():
        raise VectorizedDecodeError("records do not fill their batch")


class _HeaderArrays(NamedTuple):
    """The positions and lengths of all record headers' names and values, as NumPy arrays."""

    name_at: IntArray
    name_length: IntArray
    value_at: IntArray
    value_length: IntArray


def _read_headers(data: ByteArray, fields: _FieldArrays) -> _HeaderArrays:
    """Read the headers of all records in order, and check that the fields of each record end where the record does."""
    counts = fields.header_count
    most = int(counts.max(initial=0))
    if int(counts.min(initial=0)) < 0 or most > HEADERS_MAX:
        raise VectorizedDecodeError("too many headers for the vectorised decoder")
    at = fields.headers_at.copy()
    rounds: list[_HeaderArrays] = []
    for number in range(most):
        rows = np.flatnonzero(counts > number)
        name_length, name_at = read_varints(data, at[rows])
        value_length, value_at = read_varints(data, name_at + np.maximum(name_length, 0))
        if int(name_length.min()) < 0 or int(value_length.min()) < -1:
            raise VectorizedDecodeError("invalid header length")
        at[rows] = value_at + np.maximum(value_length, 0)
        rounds.append(_HeaderArrays(name_at, name_length, value_at, value_length))
    if (at != fields.end).any():
        raise VectorizedDecodeError("fields do not fill their record")
    if len(rounds) < 2:
        return rounds[0] if rounds else _HeaderArrays(*(np.empty(0, np.int64) for _ in range(4)))
    merged = _HeaderArrays(*(np.concatenate(column) for column in zip(*rounds, strict=True)))
    order = np.argsort(merged.name_at)
    return _HeaderArrays(*(column[order] for column in merged))


def _build_header_lists(source: pa.Buffer, headers: _HeaderArrays, counts: IntArray) -> pa.ListArray:
    if not headers.name_at.size:
        return pa.nulls(len(counts), HEADERS_TYPE)
    try:
        names = _build_binary_array(source, headers.name_at, headers.name_length).cast(pa.string())
    except pa.ArrowInvalid:
        raise VectorizedDecodeError("a header name is not UTF-8") from None
    values = _build_binary_array(source, headers.value_at, headers.value_length)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=HEADERS_TYPE, mask=pa.array(counts == 0))


def _build_binary_array(source: pa.Buffer, at: IntArray, length: IntArray) -> pa.BinaryArray:
    """Copy slices of `source` at ascending positions into one Arrow binary array; a length of -1 means null."""
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
    slices_and_gaps = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [validity, pa.py_buffer(bounds), source])
    return slices_and_gaps.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
