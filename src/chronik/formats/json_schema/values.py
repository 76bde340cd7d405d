"""Decoding of JSON without loss: numbers that a float64 does not represent exactly become decimals.

Plain decoding is several times as fast and exact for numbers with few digits. Texts with long numbers are rare, and are
searched for first.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from chronik.formats.codec import UndecodableValueError

JsonValue = Any
"""A parsed JSON value: None, bool, int, float, Decimal if a float64 is inexact, str, and lists and dicts of these."""

FLOAT_TEXT_SAFE: Final = 16
"""Maximum length of a number (15 digits and a point) that a float64 preserves, unless its exponent is extreme."""

_OUTLINES: Final = bytes(
    ord("0") if byte in b"0123456789." else ord("e") if byte in b"eE" else ord("-") if byte == ord("-") else ord(" ")
    for byte in range(256)
)
"""A translation of texts in which digits and points are equal."""

_SUSPICIOUS: Final = (b"0" * (FLOAT_TEXT_SAFE + 1), b"0" * FLOAT_TEXT_SAFE + b"e", b"0e-000")
"""Long numbers and low exponents in translated texts. Digits within strings look the same."""

TEXTS_PER_SEARCH: Final = 256
"""Number of texts that are searched at once: tens of kilobytes, which fit into the CPU cache."""


def _parse_number(text: str) -> float | Decimal:
    """Return a number with a fraction or an exponent: a float if its shortest representation is the number."""
    value = float(text)
    if repr(value) == text:
        return value
    exact = Decimal(text)
    return value if exact == Decimal(repr(value)) else exact


_decode_plain: Final = msgspec.json.Decoder().decode
_decode_exact: Final = msgspec.json.Decoder(float_hook=_parse_number).decode

_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError)


def decode_value(text: bytes) -> JsonValue:
    """Decode JSON.

    Raises:
        UndecodableValueError: The text is not valid JSON.
    """
    try:
        return (_decode_exact if _may_have_long_numbers(text) else _decode_plain)(text)
    except _DECODE_ERRORS:
        try:
            return _decode_exact(text)  # numbers beyond the range of float64 are valid
        except _DECODE_ERRORS as error:
            raise UndecodableValueError(f"not valid JSON: {error}") from None


def decode_values(texts: Sequence[bytes]) -> tuple[list[JsonValue], dict[int, str]]:
    """Decode JSON texts. Return the values, and the error messages of the texts that are not valid, by index."""
    values: list[JsonValue] = []
    errors: dict[int, str] = {}
    for start in range(0, len(texts), TEXTS_PER_SEARCH):
        block = texts[start : start + TEXTS_PER_SEARCH]
        decode = _decode_exact if _may_have_long_numbers(b" ".join(block)) else _decode_plain
        try:
            values += [decode(text) for text in block]
        except _DECODE_ERRORS:
            for index, text in enumerate(block, start):
                try:
                    values.append(decode_value(text))
                except UndecodableValueError as error:
                    values.append(None)
                    errors[index] = str(error)
    return values, errors


def _may_have_long_numbers(text: bytes) -> bool:
    outline = text.translate(_OUTLINES)
    return any(pattern in outline for pattern in _SUSPICIOUS)
