"""What the Raft folder holds, as bytes: records of the log, and the manifest beside it. Pure.

The log on disk is only ever appended to. An entry replaces whatever stood at its index and after it, so a conflict
needs no truncation; the hard state is a record among the entries and becomes durable with the same sync.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from chronik.errors import DataDamaged
from chronik.raft.entries import Entry, EntryKind, HardState, SnapshotMetadata
from chronik.wal.records import HEADER_BYTES, encode_record, record_at

ENTRY_TAG: Final = 1
HARD_STATE_TAG: Final = 2
_ENTRY: Final = struct.Struct(">BQQB")
_HARD_STATE: Final = struct.Struct(">BQqQ")

MANIFEST_FORMAT: Final = 1


class Manifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where the log begins and which snapshot it continues. It is replaced as a whole and atomically: that is the
    instant in which a received snapshot takes the place of a log, or in which the beginning of a log is gone."""

    format: int = MANIFEST_FORMAT
    log_after: int = 0
    """The last record (by its number in the write-ahead log, not by its Raft index) that is not needed any more."""
    floor_index: int = 0
    floor_term: int = 0
    hard_state: HardState = HardState()
    """As it was at `log_after`; a later record replaces it."""
    snapshot: SnapshotMetadata = SnapshotMetadata()


def encode_entry(entry: Entry) -> bytes:
    return _ENTRY.pack(ENTRY_TAG, entry.index, entry.term, entry.kind) + entry.data


def encode_hard_state(state: HardState) -> bytes:
    return _HARD_STATE.pack(HARD_STATE_TAG, state.term, state.vote, state.commit)


def decode_record(payload: memoryview) -> Entry | HardState:
    """Raises DataDamaged: the record is as it was written (its CRC says so), but this version cannot read it."""
    try:
        if payload[0] == ENTRY_TAG:
            _, index, term, kind = _ENTRY.unpack_from(payload)
            return Entry(index, term, EntryKind(kind), bytes(payload[_ENTRY.size :]))
        if payload[0] == HARD_STATE_TAG:
            _, term, vote, commit = _HARD_STATE.unpack(payload)
            return HardState(term, vote, commit)
    except (IndexError, ValueError, struct.error) as error:
        raise DataDamaged(f"a record of the Raft log cannot be read: {error}") from error
    raise DataDamaged(f"records of kind {payload[0]} in the Raft log are unknown to this version")


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    return encode_record(1, 0, _encoder.encode(manifest))


def decode_manifest(data: bytes) -> Manifest:
    """Raises DataDamaged."""
    record = record_at(memoryview(data), 0)
    if record is None or HEADER_BYTES + len(record.payload) != len(data):
        raise DataDamaged("the manifest of the Raft log is damaged")
    try:
        manifest = _decoder.decode(record.payload)
    except msgspec.DecodeError as error:
        raise DataDamaged(f"the manifest of the Raft log cannot be read: {error}") from error
    if manifest.format != MANIFEST_FORMAT:
        raise DataDamaged(f"the Raft log has format {manifest.format}, this version knows {MANIFEST_FORMAT}")
    return manifest
