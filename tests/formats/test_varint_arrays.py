"""Tests of vectorised varints, compared with those of single numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from chronik.formats.varint_arrays import (
    INVALID_LENGTH,
    PADDING,
    decode_zigzag,
    encode_zigzag_varints,
    read_varints,
    view_words,
)
from chronik.protocol.varint import encode_varint
from chronik.varint import read_varint, write_varint
from tests.run_size import SEED

EDGES = [-(2**63), *(value for bits in range(63) for value in (2**bits - 1, 2**bits, -(2**bits))), 2**63 - 1]
NUMBERS = [*EDGES, *(random.Random(SEED).randrange(-(2**63), 2**63) >> shift % 64 for shift in range(300))]


def read(content: bytes, positions: list[int], **options: bool) -> tuple[list[int], list[int]]:
    data = np.frombuffer(content + bytes(PADDING), np.uint8)
    raw, lengths = read_varints(data, view_words(data), np.array(positions, np.int64), **options)
    return raw.tolist(), lengths.tolist()


def test_arrays_are_encoded_and_read_as_single_numbers() -> None:
    encoded = encode_zigzag_varints(np.array(NUMBERS, np.int64)).to_pylist()
    assert encoded == [encode_varint(number) for number in NUMBERS]
    positions = np.cumsum([0, *map(len, encoded)])[:-1].tolist()
    raw, lengths = read(b"".join(encoded), positions)
    assert lengths == [len(each) for each in encoded]
    assert decode_zigzag(np.array(raw, np.uint64)).tolist() == NUMBERS
    for number, each in zip(raw, encoded, strict=True):
        assert read_varint(each, 0, 10) == (number, len(each))
        out = bytearray()
        write_varint(out, number)
        assert bytes(out) == each


def test_long_encodings_of_small_numbers_are_read() -> None:
    for length in range(2, 11):
        content = b"\x85" + b"\x80" * (length - 2) + b"\x00"
        assert read(content, [0]) == ([5], [length])


@pytest.mark.parametrize("content", [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x80\x00"])
def test_varint_of_more_than_ten_bytes_is_invalid(content: bytes) -> None:
    for ignores_excess_bits in (False, True):
        assert read(content, [0], ignores_excess_bits=ignores_excess_bits)[1] == [INVALID_LENGTH]


def test_bits_beyond_64_are_invalid_or_dropped() -> None:
    content = b"\xff" * 9 + b"\x03"
    assert read(content, [0])[1] == [INVALID_LENGTH]
    assert read(content, [0], ignores_excess_bits=True) == ([2**64 - 1], [10])
