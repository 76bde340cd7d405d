"""Encoding of the Raft log's records and manifest.

The log on disk is append-only. An entry replaces all earlier records at its index and after it, so a conflict needs no
truncation. The hard state is a record among the entries and becomes durable with the same sync.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from chronik.errors import DamagedDataError
from chronik.raft.entries import EntryKind, HardState, RaftEntry, SnapshotMetadata
from chronik.wal.records import HEADER_BYTES, decode_record_at, encode_record

ENTRY_TAG: Final = 1
HARD_STATE_TAG: Final = 2
_ENTRY: Final = struct.Struct(">BQQB")
_HARD_STATE: Final = struct.Struct(">BQqQ")

MANIFEST_FORMAT: Final = 1


class RaftManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The start of the log and the snapshot that precedes it.

    The manifest is replaced atomically. This is the commit point of a snapshot installation and of a log compaction.
    """

    format: int = MANIFEST_FORMAT
    obsolete_record: int = 0
    """Number of the last obsolete record in the write-ahead log (not a Raft index)."""
    compacted_index: int = 0
    compacted_term: int = 0
    hard_state: HardState = HardState()
    """Hard state as of `log_after`; a later record overrides it."""
    snapshot: SnapshotMetadata = SnapshotMetadata()


def encode_entry(entry: RaftEntry) -> bytes:
    return _ENTRY.pack(ENTRY_TAG, entry.index, entry.term, entry.kind) + entry.data


def encode_hard_state(state: HardState) -> bytes:
    return _HARD_STATE.pack(HARD_STATE_TAG, state.term, state.vote, state.commit)


def decode_record(payload: memoryview) -> RaftEntry | HardState:
    """Decode a record. Raise DataDamaged if it has a valid CRC but an unknown or invalid format."""
    try:
        if payload[0] == ENTRY_TAG:
            _, index, term, kind = _ENTRY.unpack_from(payload)
            return RaftEntry(index, term, EntryKind(kind), bytes(payload[_ENTRY.size :]))
        if payload[0] == HARD_STATE_TAG:
            _, term, vote, commit = _HARD_STATE.unpack(payload)
            return HardState(term, vote, commit)
    except (IndexError, ValueError, struct.error) as error:
        raise DamagedDataError(f"Raft log: malformed record: {error}") from error
    raise DamagedDataError(f"Raft log: unknown record type {payload[0]}; it may be from a newer version")


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(RaftManifest)


def encode_manifest(manifest: RaftManifest) -> bytes:
    return encode_record(1, 0, _encoder.encode(manifest))


def decode_manifest(data: bytes) -> RaftManifest:
    """Decode the manifest. Raise DataDamaged if it is damaged or has an unknown format."""
    record = decode_record_at(memoryview(data), 0)
    if record is None or HEADER_BYTES + len(record.payload) != len(data):
        raise DamagedDataError("Raft log: manifest is damaged (checksum mismatch)")
    try:
        manifest = _decoder.decode(record.payload)
    except msgspec.DecodeError as error:
        raise DamagedDataError(f"Raft log: manifest cannot be decoded: {error}") from error
    if manifest.format != MANIFEST_FORMAT:
        raise DamagedDataError(f"Raft log: format {manifest.format} is not supported (supported: {MANIFEST_FORMAT})")
    return manifest
