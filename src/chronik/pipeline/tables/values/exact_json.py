"""What a JSON parser would lose of a value in silence: how deep it nests, and numbers that no float64 is.

Both are rare, and looked for in the bytes first, so that values without them are decoded at the parser's own speed.
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
"""Lists and objects within each other: far more than records have, and far less than a parser and an encoder can follow
from wherever they are called: where the interpreter gives up depends on the stack that it has left."""

DEEP_BYTES_MIN = 2 * NESTING_MAX
"""What nests deeper than that and closes all that it opens is longer; what does not close is no JSON, and a parser can
follow it so far."""

FLOAT_DIGITS_MAX = 767
"""Significant digits of the float64 that needs most of them to be written out in full."""

STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""One that does not end takes the rest with it, as it does for a parser."""

STEPS = np.zeros(256, np.int32)
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

FLOAT_TEXT_SAFE = 16
"""Up to 15 digits and a point: a float64 gives them back as they were, unless it is tiny or huge."""

OUTLINES = bytes(
    ord("0") if byte in b"0123456789." else ord("e") if byte in b"eE" else byte if byte in b"-" else ord(" ")
    for byte in range(256)
)
LONG_NUMBER, LOW_EXPONENT = b"0" * (FLOAT_TEXT_SAFE + 1), b"0e-000"

TEXTS_AT_ONCE = 256
"""Together some tens of kilobytes, which stay near the processor."""

BLANKS = b" \t\r\n"


def rows_needing_care(texts: Sequence[bytes | None]) -> set[int]:
    """Returns those that are not for the parser alone, but for `nests_too_deep` and `decode_exactly`: rather too many,
    since a text full of digits looks like a long number, too."""
    deep = {row for row, text in enumerate(texts) if text and len(text) > DEEP_BYTES_MIN and nests_too_deep(text)}
    starts = range(0, len(texts), TEXTS_AT_ONCE)
    return deep.union(*(_rows_maybe_inexact(texts[start : start + TEXTS_AT_ONCE], start) for start in starts))


def nests_too_deep(text: bytes) -> bool:
    if text.count(b"{") + text.count(b"[") <= NESTING_MAX:
        return False
    brackets = STRINGS.sub(b"", text).translate(None, NO_BRACKETS)
    depths = np.cumsum(STEPS[np.frombuffer(brackets, np.uint8)])
    return len(depths) > 0 and int(depths.max()) > NESTING_MAX


def _rows_maybe_inexact(texts: Sequence[bytes | None], first_row: int) -> set[int]:
    # Looking at many of them at once finds in most cases, at little cost, that there is nothing to look for.
    outlines = b" ".join([text or b"" for text in texts]).translate(OUTLINES)
    wanted = [number for number in (LONG_NUMBER, LOW_EXPONENT) if number in outlines]
    rows: set[int] = set()
    ends = list(accumulate(len(text or b"") + 1 for text in texts)) if wanted else []
    for number in wanted:
        position = outlines.find(number)
        while position >= 0:
            row = bisect_right(ends, position)
            rows.add(first_row + row)
            position = outlines.find(number, ends[row])
    return rows


def decode_exactly(text: bytes) -> Any:
    """Decodes as the parser does, but numbers that are no float64 become `msgspec.Raw`, which is of no column's type,
    and is encoded as it stands. Raises DecodeError, UnicodeError."""
    try:
        found = PLAIN.decode(text)
    except msgspec.DecodeError:
        return EXACT.decode(text)  # a number beyond every float64 is no mistake
    # What comes out again as it went in has lost nothing; that is quicker seen than number by number.
    same = PLAIN_AGAIN.encode(found).translate(None, BLANKS) == text.translate(None, BLANKS)
    return found if same else EXACT.decode(text)


def exact_float(text: str) -> Any:
    """Returns the float64 that this number is; itself, to be written as it stands, if it says more than any float64."""
    value = float(text)
    return value if repr(value) == text or _says_as_much(value, text) else msgspec.Raw(text)


def _says_as_much(value: float, text: str) -> bool:
    """Says whether the text is this float64 written with some number of digits: 0.10000000000000001 is 0.1 with 17."""
    digits = re.split("[eE]", text)[0].replace(".", "").lstrip("-0").rstrip("0")
    if value == 0 or not math.isfinite(value) or len(digits) > FLOAT_DIGITS_MAX:
        return not digits
    # The shortest text of a float64 is not always the nearest one of that length.
    written = (repr(value), f"{value:.{len(digits) - 1}e}")
    return Decimal(text) in map(Decimal, written)


PLAIN, PLAIN_AGAIN = msgspec.json.Decoder(), msgspec.json.Encoder()
EXACT = msgspec.json.Decoder(float_hook=exact_float)
