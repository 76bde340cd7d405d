"""Search for the start of every record: the only sequential part of decoding.

Each record begins with its length, so a start depends on the previous record. Many scans advance in parallel, one step
of all scans at a time. Each batch is scanned on its own; a long batch is split at positions that look like the start of
a record. A split was correct if the previous scan arrives exactly there. If one does not, or if there are too few
scans, the batches are scanned one after the other in plain Python.

Records are not validated here: the decoder checks that each one ends where the next one starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chronik.pipeline.records.varints import ByteArray, IntArray, VectorizedDecodeError, read_varints
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.varint import read_varint

PARALLEL_SCANS_MIN: Final = 64
"""Minimum number of parallel scans that makes a vectorised step cheaper than plain Python (about 0.15 µs each)."""

RECORDS_PER_SCAN: Final = 200
"""Records of a long batch per scan: more leave too few scans, fewer make the search for split points too expensive."""

WINDOW_RECORDS: Final = 3
WINDOW_BYTES_MAX: Final = 1024
"""How far to search for the start of a record, in records of average size, but at most this many bytes."""

CHAIN_RECORDS: Final = 5
"""Consecutive plausible records that are required before the first one counts as the start of a record."""

STEPS_EXCESS_MAX: Final = 4
"""Scans longer than the average by this factor have missed their end or run alone: plain Python is faster."""

_FIELDS_BYTES_MIN: Final = 6


class _Scans(NamedTuple):
    """The start and end positions of parallel scans."""

    start: IntArray
    end: IntArray


def find_record_starts(
    data: ByteArray, bases: IntArray, ends: IntArray, counts: IntArray, bodies: Sequence[bytes | memoryview]
) -> IntArray:
    """Return the positions of all records in `data`, in order; the bodies extend from `bases` to `ends`.

    Raises:
        VectorizedDecodeError: The lengths are invalid, or do not match the number of records.
    """
    total = int(counts.sum())
    if total and total >= PARALLEL_SCANS_MIN * min(RECORDS_PER_SCAN, int(counts.max(initial=0))):
        try:
            return _scan_parallel(data, _split_scans(data, bases, ends, counts), total)
        except VectorizedDecodeError:
            pass  # a split point may have been wrong
    scanned = [_scan_sequential(body, int(count)) for body, count in zip(bodies, counts, strict=True)]
    starts = np.fromiter((start for each in scanned for start in each), np.int64, total)
    return starts + np.repeat(bases, counts)


def _scan_parallel(data: ByteArray, scans: _Scans, total: int) -> IntArray:
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


def _split_scans(data: ByteArray, bases: IntArray, ends: IntArray, counts: IntArray) -> _Scans:
    """Return a scan for every non-empty batch, and several for a long batch."""
    filled = counts > 0
    bases, ends, counts = bases[filled], ends[filled], counts[filled]
    parts = counts // RECORDS_PER_SCAN + 1
    if (parts == 1).all():
        return _Scans(bases, ends)
    sizes = ends - bases
    window = min(WINDOW_BYTES_MAX, int((WINDOW_RECORDS * sizes[parts > 1] // counts[parts > 1]).max()))
    # Split points are where the second and each further part of a batch would start if all records had the same size.
    batch_indices = np.repeat(np.arange(len(parts)), parts - 1)
    part_numbers = np.arange(len(batch_indices)) - np.repeat(np.cumsum(parts - 1) - (parts - 1), parts - 1) + 1
    guesses = bases[batch_indices] + sizes[batch_indices] * part_numbers // parts[batch_indices]
    found = _plausible_starts(data, guesses, ends[batch_indices], window)
    starts = np.unique(np.concatenate([bases, found]))
    return _Scans(starts, np.append(starts[1:], ends[-1]))


def _plausible_starts(data: ByteArray, guesses: IntArray, ends: IntArray, window: int) -> IntArray:
    """Return for each guess the first position after it that starts a chain of plausible records, if any."""
    candidates = (guesses[:, None] + np.arange(window)).ravel()
    origins = np.repeat(np.arange(len(guesses)), window)
    at = candidates
    for _ in range(CHAIN_RECORDS):
        following, plausible = _step(data, at)
        plausible &= following <= ends[origins]
        chosen = np.flatnonzero(plausible)
        candidates, origins, at = candidates[chosen], origins[chosen], following[chosen]
    _, firsts = np.unique(origins, return_index=True)
    return candidates[firsts]


def _step(data: ByteArray, at: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return where a record at each position would end, and whether it is plausible: a sufficient length of one or two
    bytes, followed by attributes of 0.
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
