"""Digests of chunks of offsets: equal digests mean equal records, without transferring the records.

A chunk is `CHUNK_OFFSETS` consecutive offsets, aligned to multiples of its size. The digest of an uncompacted log
covers the bytes of the batches that start in the chunk, including leader epochs. Replicas compact independently, so the
digest of a compacted log covers the remaining records, regardless of their batches.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.pipeline.audit.logs.batch_scanner import CheckedBatch
from chronik.pipeline.records.columns import RecordColumns

CHUNK_OFFSETS: Final = 16_384
"""Offsets per chunk: few enough to scan again quickly where digests differ, at 16 bytes per chunk to transfer."""

DIGEST_BYTES: Final = 16

Digests = dict[int, bytes]
"""Digests by chunk number."""


class BatchDigests:
    """Digests of the batches of an uncompacted log."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._hashes: dict[int, Any] = {}

    def add(self, batch: CheckedBatch) -> None:
        chunk = max(batch.header.base_offset, self._start) // CHUNK_OFFSETS
        known = self._hashes.get(chunk)
        if known is None:
            known = self._hashes[chunk] = hashlib.sha256()
        known.update(batch.data)

    def digests(self) -> Digests:
        return {chunk: each.digest()[:DIGEST_BYTES] for chunk, each in self._hashes.items()}


class RecordDigests:
    """Digests of a compacted log's records. Each column is hashed separately, so batch boundaries do not matter."""

    def __init__(self) -> None:
        self._hashes: dict[int, list[Any]] = {}

    def add(self, records: RecordColumns) -> None:
        offsets = records.offset.to_numpy()
        chunks = offsets // CHUNK_OFFSETS
        for chunk in np.unique(chunks):
            first, end = np.searchsorted(chunks, (chunk, chunk + 1))
            within = (None if each is None else each.slice(first, end - first) for each in records)
            self._add(int(chunk), RecordColumns(*within))

    def _add(self, chunk: int, records: RecordColumns) -> None:
        streams = [stream_part for column in records if column is not None for stream_part in _column_streams(column)]
        hashes = self._hashes.get(chunk)
        if hashes is None:
            hashes = self._hashes[chunk] = [hashlib.sha256() for _ in streams]
        for each, stream in zip(hashes, streams, strict=True):
            each.update(stream)

    def digests(self) -> Digests:
        return {
            chunk: hashlib.sha256(b"".join(each.digest() for each in hashes)).digest()[:DIGEST_BYTES]
            for chunk, hashes in self._hashes.items()
        }


def _column_streams(column: pa.Array) -> list[bytes | memoryview]:
    """Return a column's bytes as streams to hash: lengths (-1 for null) and contents, or numbers."""
    if pa.types.is_list(column.type):
        # Few records have headers, so encoding them one by one is fast enough.
        return [b"".join(f"{each!r};".encode() for each in column.to_pylist())]
    if not pa.types.is_binary(column.type):
        return [_bytes(column.to_numpy())]
    lengths = np.diff(np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1])
    if column.null_count:
        lengths = np.where(column.is_null().to_numpy(zero_copy_only=False), -1, lengths)
    return [_bytes(lengths.astype(np.int32)), _contents(column)]


def _bytes(numbers: npt.NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(numbers).data.cast("B")


def _contents(column: pa.Array) -> memoryview:
    _, ends, data = column.buffers()
    if data is None or ends is None:
        return memoryview(b"")
    bounds = np.frombuffer(ends, np.int32)
    return memoryview(data)[bounds[column.offset] : bounds[column.offset + len(column)]]
