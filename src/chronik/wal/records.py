"""The form of a record on disk, pure: bytes in, records out.

    magic 4 | CRC-32C 4 | length 4 | index 8 | synced 8 | payload

The CRC covers all that follows it. `synced` is the position in the file up to which everything had been synced when
the record was written. It tells damage from a torn tail: a power cut may lose any part of what was not synced, also an
earlier part alone, but a bad record that a later one calls synced was once whole on disk.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from chronik.crc import crc32c

MAGIC: Final = b"CWR1"
HEADER: Final = struct.Struct(">4sIIQQ")
HEADER_BYTES: Final = HEADER.size
_CHECKED: Final = struct.Struct(">IQQ")
_CHECKED_FROM: Final = HEADER_BYTES - _CHECKED.size

RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""A payload beyond this is an error of the writer; a length beyond it is damage."""


class Record(msgspec.Struct, frozen=True, gc=False):
    index: int
    position: int
    synced: int
    payload: memoryview


def encode_record(index: int, synced: int, payload: bytes) -> bytes:
    checked = _CHECKED.pack(len(payload), index, synced)
    return HEADER.pack(MAGIC, crc32c(payload, crc32c(checked)), len(payload), index, synced) + payload


def encode_records(first_index: int, synced: int, payloads: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Returns the records one after the other, and the position of each within them."""
    records = [encode_record(index, synced, payload) for index, payload in enumerate(payloads, first_index)]
    positions: list[int] = []
    position = 0
    for record in records:
        positions.append(position)
        position += len(record)
    return b"".join(records), positions


def record_at(data: memoryview, position: int) -> Record | None:
    """Returns None when no whole and undamaged record begins there."""
    if position + HEADER_BYTES > len(data):
        return None
    magic, crc, length, index, synced = HEADER.unpack_from(data, position)
    end = position + HEADER_BYTES + length
    if magic != MAGIC or length > RECORD_BYTES_MAX or end > len(data):
        return None
    if crc32c(data[position + _CHECKED_FROM : end]) != crc:
        return None
    return Record(index, position, synced, data[position + HEADER_BYTES : end])


def scan(data: memoryview, first_index: int) -> tuple[list[Record], int]:
    """Returns the records of `data` up to the first that is bad or out of order, and the position of that one."""
    records: list[Record] = []
    position = 0
    while True:
        record = record_at(data, position)
        if record is None or record.index != first_index + len(records):
            return records, position
        records.append(record)
        position += HEADER_BYTES + len(record.payload)


def was_synced(data: bytes, position: int) -> bool:
    """Whether a good record after `position` says that what is at `position` had been synced."""
    view = memoryview(data)
    candidate = data.find(MAGIC, position + 1)
    while candidate >= 0:
        record = record_at(view, candidate)
        if record is not None and record.synced > position:
            return True
        candidate = data.find(MAGIC, candidate + 1)
    return False
