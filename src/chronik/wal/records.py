"""The formats of records and file names of write-ahead logs.

    magic 4 | CRC-32C 4 | length 4 | index 8 | synced 8 | payload

The CRC covers everything after it. `synced` is the file position up to which the file was synced when the record was
written. It distinguishes damage from a torn tail: a power failure may lose any part of the unsynced data, but an
invalid record before a later record's `synced` position was once intact on disk.

Files are named `<20 digits><suffix>`, so that their names sort in the order of their indexes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from chronik.crc import crc32c
from chronik.files import FileSystem

MAGIC: Final = b"CWR1"
HEADER: Final = struct.Struct(">4sIIQQ")
HEADER_BYTES: Final = HEADER.size
_CHECKED_FIELDS: Final = struct.Struct(">IQQ")
_CHECKED_OFFSET: Final = HEADER_BYTES - _CHECKED_FIELDS.size

RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a payload in bytes. A writer that exceeds it has a bug; a larger length on disk is damage."""


class WalRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of a write-ahead log and its position in the file."""

    index: int
    position: int
    synced: int
    payload: memoryview


def encode_record(index: int, synced: int, payload: bytes) -> bytes:
    checked = _CHECKED_FIELDS.pack(len(payload), index, synced)
    return HEADER.pack(MAGIC, crc32c(payload, crc32c(checked)), len(payload), index, synced) + payload


def encode_records(first_index: int, synced: int, payloads: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Return the encoded records as one buffer, and the position of each record in it."""
    records = [encode_record(index, synced, payload) for index, payload in enumerate(payloads, first_index)]
    positions: list[int] = []
    position = 0
    for record in records:
        positions.append(position)
        position += len(record)
    return b"".join(records), positions


def decode_record_at(data: memoryview, position: int) -> WalRecord | None:
    """Return the record at `position`, or None if the record there is incomplete or damaged."""
    if position + HEADER_BYTES > len(data):
        return None
    magic, crc, length, index, synced = HEADER.unpack_from(data, position)
    end = position + HEADER_BYTES + length
    if magic != MAGIC or length > RECORD_BYTES_MAX or end > len(data):
        return None
    if crc32c(data[position + _CHECKED_OFFSET : end]) != crc:
        return None
    return WalRecord(index, position, synced, data[position + HEADER_BYTES : end])


def scan_records(data: memoryview, first_index: int) -> tuple[list[WalRecord], int]:
    """Return the records before the first invalid or out-of-order record, and the position of that record."""
    records: list[WalRecord] = []
    position = 0
    while True:
        record = decode_record_at(data, position)
        if record is None or record.index != first_index + len(records):
            return records, position
        records.append(record)
        position += HEADER_BYTES + len(record.payload)


def was_position_synced(data: bytes, position: int) -> bool:
    """Return whether an intact record after `position` proves that the data at `position` was synced."""
    view = memoryview(data)
    candidate = data.find(MAGIC, position + 1)
    while candidate >= 0:
        record = decode_record_at(view, candidate)
        if record is not None and record.synced > position:
            return True
        candidate = data.find(MAGIC, candidate + 1)
    return False


def build_indexed_path(directory: str, index: int, suffix: str) -> str:
    return f"{directory}/{index:020d}{suffix}"


def list_file_indexes(directory: str, suffix: str, files: FileSystem) -> list[int]:
    """Return the sorted indexes in the names of the directory's files. Ignore names of other formats."""
    pattern = re.compile(rf"([0-9]{{20}}){re.escape(suffix)}")
    matches = (pattern.fullmatch(name) for name in files.list_directory(directory))
    return sorted(int(match[1]) for match in matches if match is not None)
