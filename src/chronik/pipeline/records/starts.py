"""Where every record starts: the only part of decoding that goes from one record to the next.

Each record begins with its length, so a start follows from the one before. Many walks go side by side, one step of all
of them at a time. Each batch is a walk; a long batch is cut into several, at places that look like the start of a
record. That they are is known afterwards: the walk before must arrive exactly there. If one does not, or there are too
few to be worth it, the batches are walked one after the other in plain Python.

Records are not checked here: their reader compares where each ends with where the next one starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from chronik.pipeline.records.varints import ByteArray, IntArray, Unreadable, read_varints
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.varint import read_varint

WALKS_MIN: Final = 64
"""Walks side by side that a step needs to be cheaper than as many steps in plain Python (about 0.15 µs each)."""

RECORDS_PER_WALK: Final = 200
"""With more there are too few walks side by side; with fewer, finding where they start takes longer than they do."""

WINDOW_RECORDS: Final = 3
WINDOW_BYTES_MAX: Final = 1024
"""How far a start is looked for, in records of average size. Of larger records there are few: they need no hurry."""

CHAIN_RECORDS: Final = 5
"""So many in a row must look like records before the first is taken for one."""

STEPS_EXCESS_MAX: Final = 4
"""A walk this many times longer than the average has missed its end, or is alone: plain Python is faster then."""

_FIELDS_BYTES_MIN: Final = 6


class _Walks(NamedTuple):
    start: IntArray
    end: IntArray


def record_starts(
    data: ByteArray, bases: IntArray, ends: IntArray, counts: IntArray, bodies: Sequence[bytes | memoryview]
) -> IntArray:
    """Returns the positions of all records in `data`, in order, where the bodies stand from `bases` to `ends`.

    Raises Unreadable when the lengths lead nowhere, or to another number of records.
    """
    total = int(counts.sum())
    if total and total >= WALKS_MIN * min(RECORDS_PER_WALK, int(counts.max(initial=0))):
        try:
            return _side_by_side(data, _cut(data, bases, ends, counts), total)
        except Unreadable:
            pass  # perhaps only because a walk began where no record does
    walked = [_one_by_one(body, int(count)) for body, count in zip(bodies, counts, strict=True)]
    starts = np.fromiter((start for each in walked for start in each), np.int64, total)
    return starts + np.repeat(bases, counts)


def _side_by_side(data: ByteArray, walks: _Walks, total: int) -> IntArray:
    steps_max = STEPS_EXCESS_MAX * (total // len(walks.start) + 1)
    step_counts = np.zeros(len(walks.start), np.int64)
    running = np.arange(len(walks.start))
    at, ends = walks.start, walks.end
    steps: list[tuple[IntArray, IntArray]] = []
    while running.size:
        steps.append((running, at))
        lengths, after = read_varints(data, at)
        if int(lengths.min()) < _FIELDS_BYTES_MIN:
            raise Unreadable("a record that is too short")
        at = after + lengths
        if (at >= ends).any():
            if (at > ends).any():
                raise Unreadable("walks that do not meet")
            ongoing = at < ends
            step_counts[running[~ongoing]] = len(steps)
            running, at, ends = running[ongoing], at[ongoing], ends[ongoing]
        if len(steps) > steps_max and running.size < WALKS_MIN:
            raise Unreadable("a walk that takes too long")
    if int(step_counts.sum()) != total:
        raise Unreadable("another number of records than the batches say")
    firsts = np.cumsum(step_counts) - step_counts
    starts = np.empty(total, np.int64)
    for number, (walking, positions) in enumerate(steps):
        starts[firsts[walking] + number] = positions
    return starts


def _cut(data: ByteArray, bases: IntArray, ends: IntArray, counts: IntArray) -> _Walks:
    """Makes a walk for every batch that has records, several for a long one."""
    filled = counts > 0
    bases, ends, counts = bases[filled], ends[filled], counts[filled]
    parts = counts // RECORDS_PER_WALK + 1
    if (parts == 1).all():
        return _Walks(bases, ends)
    sizes = ends - bases
    window = min(WINDOW_BYTES_MAX, int((WINDOW_RECORDS * sizes[parts > 1] // counts[parts > 1]).max()))
    # Cuts are where the second and every further part of a batch would begin if all records were equally long.
    owners = np.repeat(np.arange(len(parts)), parts - 1)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(parts - 1) - (parts - 1), parts - 1) + 1
    guesses = bases[owners] + sizes[owners] * numbers // parts[owners]
    found = _likely_starts(data, guesses, ends[owners], window)
    starts = np.unique(np.concatenate([bases, found]))
    return _Walks(starts, np.append(starts[1:], ends[-1]))


def _likely_starts(data: ByteArray, guesses: IntArray, ends: IntArray, window: int) -> IntArray:
    """Returns for each guess the first position after it that begins a chain of what look like records, if any."""
    candidates = (guesses[:, None] + np.arange(window)).ravel()
    origins = np.repeat(np.arange(len(guesses)), window)
    at = candidates
    for _ in range(CHAIN_RECORDS):
        following, likely = _step(data, at)
        likely &= following <= ends[origins]
        chosen = np.flatnonzero(likely)
        candidates, origins, at = candidates[chosen], origins[chosen], following[chosen]
    _, firsts = np.unique(origins, return_index=True)
    return candidates[firsts]


def _step(data: ByteArray, at: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Returns where a record at each position would end, and whether it looks like one: a length of one or two bytes,
    positive and sufficient, then attributes of 0."""
    first = data.take(at, mode="clip")
    second = data.take(at + 1, mode="clip")
    two_bytes = first >= 0x80
    length = np.where(two_bytes, (first & 0x7F) | second.astype(np.int64) << 7, first) >> 1
    attributes = np.where(two_bytes, data.take(at + 2, mode="clip"), second)
    likely = (first & 1 == 0) & (attributes == 0) & (length >= _FIELDS_BYTES_MIN) & (~two_bytes | (second < 0x80))
    return at + 1 + two_bytes + length, likely


def _one_by_one(body: bytes | memoryview, count: int) -> list[int]:
    starts = []
    position = 0
    try:
        for _ in range(count):
            starts.append(position)
            # Lengths of one and two bytes are read in place: calls would take more time than all the rest.
            if (first := body[position]) < 0x80:
                position += 1 + (first >> 1)
            elif (second := body[position + 1]) < 0x80:
                position += 2 + ((first & 0x7F | second << 7) >> 1)
            else:
                length, position = read_varint(body, position)
                position += max(length, 0)
    except (IndexError, CorruptRecords):
        raise Unreadable("a record ends early, or its length does not end") from None
    return starts
