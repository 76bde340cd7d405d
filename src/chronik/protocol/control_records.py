"""Control records, which the broker writes to a partition to end a transaction."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from chronik.protocol.batch import HEADER_BYTES, NO_LEADER_EPOCH, Bytes, parse_header
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import Record, decode_batch, encode_batch

_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_VERSION = 0

# The usual encoding of a marker, uncompressed and without headers: only key and value vary. Each appended marker is
# parsed, and decoding its batch would take four times as long.
_MARKER_RECORD = struct.Struct(">5shhshis")
_MARKER_FRAME = (b"\x20\0\0\0\x08", b"\x0c", b"\0")
_MARKER_BYTES = HEADER_BYTES + _MARKER_RECORD.size


class ControlType(IntEnum):
    """The type of a control record: an abort or commit marker, or a record of Kafka's KRaft."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1  # a type of a later version, which readers ignore


_CONTROL_NUMBERS = frozenset(ControlType)
_MARKER_TYPES = (ControlType.ABORT, ControlType.COMMIT)


class TransactionMarker(NamedTuple):
    """A transaction's outcome (commit or abort) with the coordinator epoch, as stored in a control record."""

    is_commit: bool
    coordinator_epoch: int


def parse_control_type(record: Record) -> ControlType:
    """Return the type of the control record with this key.

    Raises:
        CorruptRecords: The key is not that of a control record.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecords("the key of a control record has no type")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptRecords(f"a control record has invalid version {version}")
    return ControlType(number) if number in _CONTROL_NUMBERS else ControlType.UNKNOWN


def parse_transaction_marker(record: Record) -> TransactionMarker | None:
    """Return the transaction marker in a control record, or None for other types of control records."""
    kind = parse_control_type(record)
    if kind not in _MARKER_TYPES:
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise CorruptRecords("a transaction marker has no coordinator epoch")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptRecords(f"a transaction marker has invalid version {version}")
    return TransactionMarker(kind is ControlType.COMMIT, coordinator_epoch)


def parse_transaction_marker_batch(buffer: Bytes, position: int = 0) -> TransactionMarker | None:
    """Return the transaction marker in the control batch at `position`, or None for other types and empty batches.

    Raises:
        CorruptRecords: The batch is damaged.
    """
    header = parse_header(buffer, position)
    if header.size == _MARKER_BYTES and not header.codec:
        record = _MARKER_RECORD.unpack_from(buffer, position + HEADER_BYTES)
        start, version, kind, value_start, value_version, coordinator_epoch, end = record
        if (
            (start, value_start, end) == _MARKER_FRAME
            and version == value_version == _VERSION
            and kind in _MARKER_TYPES
        ):
            return TransactionMarker(kind == ControlType.COMMIT, coordinator_epoch)
    records = decode_batch(buffer, position)
    return parse_transaction_marker(records[0]) if records else None


def encode_transaction_marker_batch(
    marker: TransactionMarker,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Build the control batch that ends a producer's transaction in a partition."""
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    key = _KEY.pack(_VERSION, kind)
    value = _MARKER_VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [Record(base_offset, timestamp, key, value)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
