"""Sample records with edge cases: null and empty fields, every byte value, headers, long values."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from .drivers.wire import Header, Record

PARTITIONS = 2
# Longer than the blocks of snappy (32 KiB) and lz4 (64 KiB).
LONG_VALUE = b"a long and very compressible value, " * 6000
RANDOM_VALUE_BYTES = 40_000
EVERY_BYTE = bytes(range(256))
HEADERS: tuple[Header, ...] = (
    ("text", b"value"),
    ("repeated", b"first"),
    ("repeated", b"second"),
    ("empty", b""),
    ("binary", b"\xff\xfe\x01"),
    ("größe", "überall".encode()),
)
# Newer than any retention limit, older than the test, and different for each record.
AGE_MS = 60_000


def sample_records(capabilities: dict[str, Any]) -> list[Record]:
    """Return the sample records that a client with these capabilities can write, for two partitions."""
    headers = HEADERS + ((("null", None),) if capabilities["null_headers"] else ())
    records = [
        Record(b"plain", b"value"),
        Record("schlüssel".encode(), "wert ✓".encode()),
        Record(None, b"without a key"),
        Record(b"tombstone", None),
        Record(b"", b""),
        Record(EVERY_BYTE, EVERY_BYTE[::-1]),
        Record(b"long", LONG_VALUE),
        Record(b"random", random.Random(7).randbytes(RANDOM_VALUE_BYTES)),
    ]
    if capabilities["null_key_and_value"]:
        records.append(Record(None, None))
    if capabilities["headers"]:
        records += [Record(b"headers", b"value", headers), Record(None, b"keyless with headers", headers)]
        records += [Record(b"tombstone with headers", None, headers)]
    first_ms = time.time_ns() // 1_000_000 - AGE_MS
    return [
        replace(
            record,
            partition=number % PARTITIONS,
            timestamp_ms=first_ms + number if capabilities["timestamps"] else None,
        )
        for number, record in enumerate(records)
    ]
