"""A scan over the records of a batch that yields only their offsets, timestamps, keys and positions.

It is for validation, timestamp lookups and compaction, which do not need values and headers. These are skipped, because
each record starts with its length.
"""

from __future__ import annotations

from collections.abc import Iterator

from chronik.protocol.batch import HEADER_BYTES, BatchHeader, Bytes, TimestampType, parse_header, verify_crc
from chronik.protocol.budget import RECORD_BYTES_MIN, DecompressionBudget
from chronik.protocol.compression import decompress_view, iter_decompressed_prefixes
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.varint import INT64_MAX, SINGLE_BYTE_VALUES, read_varint, read_varlong, wrap_int64

RecordsBody = bytes | memoryview
DecompressedBatch = tuple[BatchHeader, RecordsBody]

NO_KEY = -1
NO_VALUE = -1


ScannedRecord = tuple[int, int, int, int, int, int, int]
"""The position of a record in decompressed data: offset, timestamp, key and value start and length, and end.

The length is NO_KEY or NO_VALUE if the key or value is null. A plain tuple, because a NamedTuple would take a third of
the run time.
"""


class IncompleteRecords(CorruptRecords):
    """The decompressed data ends before the last record of the batch."""


def decompress_within_budget(
    buffer: Bytes, position: int, budget: DecompressionBudget | None = None
) -> DecompressedBatch:
    """Verify the checksum of a batch, decompress its records within the budget, and return its header and records.

    The default budget is that of a request of the same size.

    Raises:
        CorruptRecords: The batch is damaged.
        RecordsTooLarge: The batch exceeds `budget`.
    """
    header, data = _parse_and_verify_batch(buffer, position)
    budget = budget or DecompressionBudget.for_request(header.size)
    budget.charge_records(header.record_count)
    if not data:  # an empty batch left by compaction, which no codec could decompress
        return header, b""
    body = decompress_view(header.codec, data, _compute_output_limit(header, budget))
    budget.charge_bytes(len(body))
    return header, body


def scan_records_lazily(buffer: Bytes, budget: DecompressionBudget) -> Iterator[ScannedRecord]:
    """Yield the records of a batch, decompressing only as much of the batch as the caller consumes.

    Raises:
        CorruptRecords: The batch is damaged.
        RecordsTooLarge: The decompressed records exceed `budget`.
    """
    header, data = _parse_and_verify_batch(buffer, 0)
    if not data:
        return
    seen, taken = header.base_offset - 1, 0
    for body, is_whole in iter_decompressed_prefixes(header.codec, data, _compute_output_limit(header, budget)):
        budget.charge_bytes(len(body) - taken)  # each prefix contains the previous one
        taken = len(body)
        try:
            for record in scan_records(header, body, is_complete=is_whole):
                if record[0] > seen:
                    budget.charge_records(1)
                    seen = record[0]
                    yield record
        except IncompleteRecords:
            if is_whole:
                raise
        del body


def _compute_output_limit(header: BatchHeader, budget: DecompressionBudget) -> int:
    return budget.max_output_bytes(header.size if header.codec else 0)


def _parse_and_verify_batch(buffer: Bytes, position: int) -> tuple[BatchHeader, memoryview]:
    header = parse_header(buffer, position)
    if not verify_crc(buffer, position, header.size):
        raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not match")
    return header, memoryview(buffer)[position + HEADER_BYTES : position + header.size]


def scan_records(header: BatchHeader, body: RecordsBody, *, is_complete: bool = True) -> Iterator[ScannedRecord]:
    """Yield the offset, timestamp and position of each record in decompressed data, without copying keys or values.

    Raises:
        CorruptRecords: The records are malformed.
        IncompleteRecords: `is_complete` is False, and the body ends after its last complete record.
    """
    count, base_offset, last_offset = header.record_count, header.base_offset, header.last_offset
    if count < 0 or (is_complete and count * RECORD_BYTES_MIN > len(body)):
        raise CorruptRecords(f"{count} records do not fit into {len(body)} bytes")
    if base_offset < 0 or last_offset > INT64_MAX:
        raise CorruptRecords(f"a batch has invalid offsets {base_offset} to {last_offset}")
    return _iter_scanned_records(header, body, is_whole=is_complete)


def _iter_scanned_records(header: BatchHeader, body: RecordsBody, *, is_whole: bool) -> Iterator[ScannedRecord]:
    base_offset, last_offset, base_timestamp = header.base_offset, header.last_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    end, size, previous_offset = 0, len(body), base_offset - 1
    try:
        for _ in range(header.record_count):
            # Varints of one or two bytes are decoded inline, because calls would dominate the run time.
            if (byte := body[end]) < 0x80:
                length, position = SINGLE_BYTE_VALUES[byte], end + 1
            elif (second := body[end + 1]) < 0x80:
                length, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), end + 2
            else:
                length, position = read_varint(body, end)
            end = position + length
            if length < RECORD_BYTES_MIN - 1 or end > size:
                raise _build_length_error(length, size - position)
            position += 1  # the attributes, which are unused
            if (byte := body[position]) < 0x80:
                delta, position = SINGLE_BYTE_VALUES[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                delta, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                delta, position = read_varlong(body, position)
            timestamp = base_timestamp + delta if append_time is None else append_time
            if not -INT64_MAX <= timestamp <= INT64_MAX:
                timestamp = wrap_int64(timestamp)
            if (byte := body[position]) < 0x80:
                delta, position = SINGLE_BYTE_VALUES[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                delta, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                delta, position = read_varint(body, position)
            offset = base_offset + delta
            if not previous_offset < offset <= last_offset:
                raise CorruptRecords(f"offset {offset} is not between {previous_offset} and {last_offset}")
            previous_offset = offset
            if (byte := body[position]) < 0x80:
                key_length, position = SINGLE_BYTE_VALUES[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                key_length, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                key_length, position = read_varint(body, position)
            key_start = position
            if key_length > 0:
                position += key_length
            if key_length < NO_KEY or position >= end:
                raise CorruptRecords(f"a key claims {key_length} bytes, but {end - key_start} are left")
            if (byte := body[position]) < 0x80:
                value_length, position = SINGLE_BYTE_VALUES[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                value_length, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                value_length, position = read_varint(body, position)
            if value_length < NO_VALUE or position + max(value_length, 0) >= end:  # the header count follows
                raise CorruptRecords(f"a value claims {value_length} bytes, but {end - position} are left")
            yield offset, timestamp, key_start, key_length, position, value_length, end
    except IndexError:
        raise IncompleteRecords("a record is incomplete") from None
    if is_whole and end != size:
        raise CorruptRecords(f"{size - end} trailing bytes after the last record")


def _build_length_error(length: int, left: int) -> CorruptRecords:
    kind = CorruptRecords if length < RECORD_BYTES_MIN - 1 else IncompleteRecords
    return kind(f"a record claims {length} bytes, but {left} are left")
