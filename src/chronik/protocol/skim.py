"""Skims the records of a batch: their offsets, times and keys, where they end, and nothing else.

It is for code that judges records and does not show them: produce to compacted topics, searches by time, compaction. A
record begins with its length, so values and headers are skipped, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from chronik.protocol.batch import HEADER_BYTES, BatchHeader, Bytes, TimestampType, parse_header, verify_crc
from chronik.protocol.budget import RECORD_BYTES_MIN, Budget
from chronik.protocol.compression import inflate, prefixes
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.varint import INT64_MAX, ZIGZAG, as_int64, read_varint, read_varlong

Body = bytes | memoryview
Opened = tuple[BatchHeader, Body]

NO_KEY = -1
NO_VALUE = -1


Skimmed = tuple[int, int, int, int, int, int, int]
"""Offset, time; start and length of the key (NO_KEY when there is none), start and length of the value (NO_VALUE); and
where the record ends in the body. It is a plain tuple: one with names would take a third of all the time."""


class EndsEarly(CorruptRecords):
    """Records end where another one goes on, or is due."""


def open_within(buffer: Bytes, position: int, budget: Budget | None = None) -> Opened:
    """Returns the header, and the records in one piece, checked against the checksum and decompressed.

    Raises CorruptRecords, or RecordsTooLarge when it is more than `budget` allows: by default that of a request of the
    same size."""
    header, data = _checked(buffer, position)
    budget = budget or Budget.for_bytes(header.size)
    budget.take_records(header.record_count)
    if not data:  # compaction leaves batches without records, where no codec has anything to read
        return header, b""
    body = inflate(header.codec, data, _limit(header, budget))
    budget.take_bytes(len(body))
    return header, body


def skim_as_far(buffer: Bytes, budget: Budget) -> Iterator[Skimmed]:
    """Yields the records of a batch from its start, and decompresses no more than the caller consumes.

    Raises CorruptRecords, or RecordsTooLarge when it is more than `budget` allows, when it gets there."""
    header, data = _checked(buffer, 0)
    if not data:
        return
    seen, taken = header.base_offset - 1, 0
    for body, is_whole in prefixes(header.codec, data, _limit(header, budget)):
        budget.take_bytes(len(body) - taken)  # the rest of it was in the previous one
        taken = len(body)
        try:
            for record in skim(header, body, is_whole=is_whole):
                if record[0] > seen:
                    budget.take_records(1)
                    seen = record[0]
                    yield record
        except EndsEarly:
            if is_whole:
                raise
        del body


def _limit(header: BatchHeader, budget: Budget) -> int:
    return budget.bytes_from(header.size if header.codec else 0)


def _checked(buffer: Bytes, position: int) -> tuple[BatchHeader, memoryview]:
    header = parse_header(buffer, position)
    if not verify_crc(buffer, position, header.size):
        raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not match")
    return header, memoryview(buffer)[position + HEADER_BYTES : position + header.size]


def skim(header: BatchHeader, body: Body, *, is_whole: bool = True) -> Iterator[Skimmed]:
    """Yields the records in `body`; if it is not whole, those that are, then raises EndsEarly. Or CorruptRecords."""
    count, base_offset, last_offset = header.record_count, header.base_offset, header.last_offset
    if count < 0 or (is_whole and count * RECORD_BYTES_MIN > len(body)):
        raise CorruptRecords(f"{count} records in {len(body)} bytes")
    if base_offset < 0 or last_offset > INT64_MAX:
        raise CorruptRecords(f"a batch from offset {base_offset} to {last_offset}")
    return _skim(header, body, is_whole=is_whole)


def _skim(header: BatchHeader, body: Body, *, is_whole: bool) -> Iterator[Skimmed]:
    base_offset, last_offset, base_timestamp = header.base_offset, header.last_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    end, size, previous_offset = 0, len(body), base_offset - 1
    try:
        for _ in range(header.record_count):
            # Varints of one or two bytes are read in place: calls would take more time than all the rest.
            if (byte := body[end]) < 0x80:
                length, position = ZIGZAG[byte], end + 1
            elif (second := body[end + 1]) < 0x80:
                length, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), end + 2
            else:
                length, position = read_varint(body, end)
            end = position + length
            if length < RECORD_BYTES_MIN - 1 or end > size:
                raise _not_within(length, size - position)
            position += 1  # the attributes, of which none is defined
            if (byte := body[position]) < 0x80:
                delta, position = ZIGZAG[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                delta, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                delta, position = read_varlong(body, position)
            timestamp = base_timestamp + delta if append_time is None else append_time
            if not -INT64_MAX <= timestamp <= INT64_MAX:
                timestamp = as_int64(timestamp)
            if (byte := body[position]) < 0x80:
                delta, position = ZIGZAG[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                delta, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                delta, position = read_varint(body, position)
            offset = base_offset + delta
            if not previous_offset < offset <= last_offset:
                raise CorruptRecords(f"offset {offset} between {previous_offset} and {last_offset}")
            previous_offset = offset
            if (byte := body[position]) < 0x80:
                key_length, position = ZIGZAG[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                key_length, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                key_length, position = read_varint(body, position)
            key_start = position
            if key_length > 0:
                position += key_length
            if key_length < NO_KEY or position >= end:
                raise CorruptRecords(f"a key of {key_length} bytes where {end - key_start} are left")
            if (byte := body[position]) < 0x80:
                value_length, position = ZIGZAG[byte], position + 1
            elif (second := body[position + 1]) < 0x80:
                value_length, position = (second << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
            else:
                value_length, position = read_varint(body, position)
            if value_length < NO_VALUE or position + max(value_length, 0) >= end:  # there is a number of headers, too
                raise CorruptRecords(f"a value of {value_length} bytes where {end - position} are left")
            yield offset, timestamp, key_start, key_length, position, value_length, end
    except IndexError:
        raise EndsEarly("a record ends early") from None
    if is_whole and end != size:
        raise CorruptRecords(f"{size - end} bytes after the last record")


def _not_within(length: int, left: int) -> CorruptRecords:
    kind = CorruptRecords if length < RECORD_BYTES_MIN - 1 else EndsEarly
    return kind(f"a record of {length} bytes where {left} are left")
