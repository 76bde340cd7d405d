"""Exact JSON decoding: detects excessive nesting and numbers that a float64 cannot represent.

Both are rare and searched for in the bytes first, so that other values are decoded at the parser's full speed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np

NESTING_MAX = 200
"""Maximum nesting depth of lists and objects.

Real records have far less. The parser and encoder support far more, depending on the remaining stack.
"""

DEEP_BYTES_MIN = 2 * NESTING_MAX
"""Length in bytes that valid JSON must exceed to be nested deeper than NESTING_MAX: two brackets per level."""

FLOAT_DIGITS_MAX = 767
"""Maximum number of significant digits in the exact decimal expansion of a float64."""

STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Matches JSON strings. An unterminated string extends to the end of the text."""

LONG_INTEGER_OR_STRING = re.compile(STRINGS.pattern + rb"|(?P<integer>(?<![\d.eE+])\d{4300,}+(?![.eE]))", re.DOTALL)
"""Matches JSON strings, and integers that may have more digits than Python converts (`sys.get_int_max_str_digits`)."""

STEPS = np.zeros(256, np.int32)
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

FLOAT_TEXT_SAFE = 16
"""Maximum length of a number (15 digits and a point) that float64 preserves, except for extreme exponents."""

OUTLINES = bytes(
    ord("0") if byte in b"0123456789." else ord("e") if byte in b"eE" else byte if byte in b"-" else ord(" ")
    for byte in range(256)
)
LONG_NUMBER, LOW_EXPONENT = b"0" * (FLOAT_TEXT_SAFE + 1), b"0e-000"

TEXTS_PER_SEARCH = 256
"""Number of texts searched at once: tens of kilobytes, which fit into the CPU cache."""

BLANKS = b" \t\r\n"


def find_rows_needing_exact_decoding(texts: Sequence[bytes | None]) -> set[int]:
    """Return the rows whose JSON may need exact decoding, because of deep nesting or long numbers.

    There may be false positives: a string of digits looks like a long number.
    """
    deep = {row for row, text in enumerate(texts) if text and len(text) > DEEP_BYTES_MIN and is_nested_too_deep(text)}
    starts = range(0, len(texts), TEXTS_PER_SEARCH)
    return deep.union(
        *(_find_rows_with_long_numbers(texts[start : start + TEXTS_PER_SEARCH], start) for start in starts)
    )


def is_nested_too_deep(text: bytes) -> bool:
    """Return whether lists and objects are nested deeper than NESTING_MAX."""
    if text.count(b"{") + text.count(b"[") <= NESTING_MAX:
        return False
    brackets = STRINGS.sub(b"", text).translate(None, NO_BRACKETS)
    depths = np.cumsum(STEPS[np.frombuffer(brackets, np.uint8)])
    return len(depths) > 0 and int(depths.max()) > NESTING_MAX


def _find_rows_with_long_numbers(texts: Sequence[bytes | None], first_row: int) -> set[int]:
    # Searching many texts at once shows in most cases that there is nothing to find.
    outlines = b" ".join([text or b"" for text in texts]).translate(OUTLINES)
    patterns = [pattern for pattern in (LONG_NUMBER, LOW_EXPONENT) if pattern in outlines]
    rows: set[int] = set()
    ends = list(accumulate(len(text or b"") + 1 for text in texts)) if patterns else []
    for pattern in patterns:
        position = outlines.find(pattern)
        while position >= 0:
            row = bisect_right(ends, position)
            rows.add(first_row + row)
            position = outlines.find(pattern, ends[row])
    return rows


def decode_exact_json(text: bytes) -> Any:
    """Decode JSON, but return numbers that float64 cannot represent as `msgspec.Raw`, which is encoded verbatim.

    Raises:
        DecodeError, UnicodeError: The text is not valid JSON.
    """
    try:
        decoded = PLAIN.decode(text)
    except msgspec.DecodeError:
        # Numbers beyond the range of float64 are valid, and so are integers with more digits than Python converts.
        return EXACT.decode(LONG_INTEGER_OR_STRING.sub(_mark_as_float, text))
    # If the encoded result equals the text, nothing was lost. This is faster than checking each number.
    is_lossless = PLAIN_AGAIN.encode(decoded).translate(None, BLANKS) == text.translate(None, BLANKS)
    return decoded if is_lossless else EXACT.decode(text)


def _mark_as_float(match: re.Match[bytes]) -> bytes:
    return match[0] if match["integer"] is None else match[0] + b"e0"


def parse_exact_float(text: str) -> Any:
    """Return the number as a float64 if that is exact; otherwise as `msgspec.Raw`."""
    value = float(text)
    return value if repr(value) == text or _is_exact_float(value, text) else msgspec.Raw(text)


def _is_exact_float(value: float, text: str) -> bool:
    """Return whether the text is this float64 at some precision (0.10000000000000001 is 0.1 with 17 digits)."""
    digits = re.split("[eE]", text)[0].replace(".", "").lstrip("-0").rstrip("0")
    if value == 0 or not math.isfinite(value) or len(digits) > FLOAT_DIGITS_MAX:
        return not digits
    # The shortest representation of a float64 is not always the nearest one of that length.
    representations = (repr(value), f"{value:.{len(digits) - 1}e}")
    return Decimal(text) in map(Decimal, representations)


PLAIN, PLAIN_AGAIN = msgspec.json.Decoder(), msgspec.json.Encoder()
EXACT = msgspec.json.Decoder(float_hook=parse_exact_float)
