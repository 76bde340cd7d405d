"""Where every record starts: the only part of decoding that goes from one record to the next.

Each record begins with its length, so the k-th start follows from the one before. Many batches are walked side by side,
one step of all of them at a time; a few long ones are walked one after the other, in plain Python, which is as fast.
Nothing is checked here: the reader of the records compares where each ends with where the next one starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from chronik.pipeline.varints import ByteArray, IntArray, Unreadable, read_varints
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.varint import read_varint

LANES_MIN: Final = 64
"""Batches side by side that a step needs to be cheaper than as many steps in plain Python (about 0.15 µs each)."""


def record_starts(data: ByteArray, bases: IntArray, counts: IntArray, bodies: Sequence[bytes | memoryview]) -> IntArray:
    """For all records in their order the position in `data`, where the bodies stand one after the other.

    Raises Unreadable when the lengths lead nowhere.
    """
    total, steps = int(counts.sum()), int(counts.max(initial=0))
    if total >= LANES_MIN * steps:
        return _side_by_side(data, bases, counts)
    walked = [_one_by_one(body, int(count)) for body, count in zip(bodies, counts, strict=True)]
    starts = np.fromiter((start for each in walked for start in each), np.int64, total)
    return starts + np.repeat(bases, counts)


def _side_by_side(data: ByteArray, bases: IntArray, counts: IntArray) -> IntArray:
    # The longest first: those that have ended are then always the last ones.
    order = np.argsort(-counts, kind="stable")
    firsts = (np.cumsum(counts) - counts)[order]
    descending = -counts[order]
    at = bases[order]
    starts = np.empty(int(counts.sum()), np.int64)
    for step in range(int(counts.max(initial=0))):
        running = int(np.searchsorted(descending, -step, side="left"))
        at = at[:running]
        starts[firsts[:running] + step] = at
        lengths, after = read_varints(data, at)
        at = after + lengths
        if int(lengths.min()) < 0:
            raise Unreadable("a record of negative length")
    return starts


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
