"""What a JSON parser would give up of a value without a word: how deep it nests, and numbers that no float64 is.

Both are rare, and looked for in the bytes first, so that values without them are decoded at the parser's own speed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NESTING_MAX = 200
"""Lists and objects within each other. Far more than records have, and far less than a parser and an encoder can follow
from wherever they are called: where the interpreter gives up depends on the stack that it has left."""

FLOAT_DIGITS_MAX = 767
"""Significant digits of the float64 that needs most of them to be written out in full."""

STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""One that does not end takes the rest with it, as it does for a parser."""

STEPS = np.zeros(256, np.int32)
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

FLOAT_TEXT_SAFE = 16
"""Up to 15 digits and a point: a float64 gives them back as they were, unless its exponent has three digits."""

DIGITS = bytes(ord("0") if byte in b"0123456789.+-" else ord("e") if byte in b"eE" else ord(" ") for byte in range(256))
LONG_NUMBER, HIGH_EXPONENT = b"0" * (FLOAT_TEXT_SAFE + 1), b"0e000"
INEXACT = rf"[0-9.]{{{FLOAT_TEXT_SAFE + 1}}}|[0-9][eE][-+]?[0-9]{{3}}"


def nests_too_deep(text: bytes) -> bool:
    if len(text) <= NESTING_MAX or text.count(b"{") + text.count(b"[") <= NESTING_MAX:
        return False
    brackets = STRINGS.sub(b"", text).translate(None, NO_BRACKETS)
    depths = np.cumsum(STEPS[np.frombuffer(brackets, np.uint8)])
    return len(depths) > 0 and int(depths.max()) > NESTING_MAX


def that_may_be_inexact(texts: Sequence[bytes | None]) -> set[int]:
    """Those that `EXACT` is to decode. Rather too many: a text full of digits looks like such a number, too."""
    # Looking at all of them at once finds in most cases, at little cost, that there is nothing to look for.
    outlines = b" ".join(filter(None, texts)).translate(DIGITS)
    if LONG_NUMBER not in outlines and HIGH_EXPONENT not in outlines:
        return set()
    found = pc.match_substring_regex(pa.array(texts, pa.binary()), INEXACT)
    return set(pc.indices_nonzero(found).to_pylist())


def exact_float(text: str) -> Any:
    """The float64 that this number is; itself, to be written as it stands, when it says more than any float64."""
    value = float(text)
    return value if repr(value) == text or _says_as_much(value, text) else msgspec.Raw(text)


def _says_as_much(value: float, text: str) -> bool:
    """Whether the text is this float64 written with some number of digits: 0.10000000000000001 is 0.1 with 17."""
    digits = re.split("[eE]", text)[0].replace(".", "").lstrip("-0").rstrip("0")
    if value == 0 or not math.isfinite(value) or len(digits) > FLOAT_DIGITS_MAX:
        return not digits
    # The shortest text of a float64 is not always the nearest one of that length.
    written = (repr(value), f"{value:.{len(digits) - 1}e}")
    return Decimal(text) in map(Decimal, written)


EXACT = msgspec.json.Decoder(float_hook=exact_float)
"""Numbers that are no float64 come out of it as `msgspec.Raw`: of no column's type, and encoded as they were."""
