"""Case-insensitive text search in UTF-8 data that may be JSON."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final, TypeVar

from chronik.limits import KIB

T = TypeVar("T", str, bytes)

WINDOW_BYTES: Final = 64 * KIB
"""Size of the parts in which large values are searched, so that other threads run between two parts."""

_ESCAPED_BYTES_MAX: Final = 12
r"""Maximum size of a character in JSON: two escapes, such as \ud83d\ude00."""

_ESCAPE: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SHORT_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def fold(text: str) -> str:
    """Return a text in the form in which texts are compared: without case, and with composed characters."""
    folded = text.casefold()
    return folded if folded.isascii() else unicodedata.normalize("NFC", folded)


def unescape_json(text: str) -> str:
    """Replace the escapes of JSON strings in a text by the characters they stand for."""
    found = _ESCAPE.sub(_unescape_match, text)
    if found.isascii():
        return found
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescape_match(match: re.Match[str]) -> str:
    code, character = match.groups()
    return chr(int(code, 16)) if code else _SHORT_ESCAPES.get(character, character)


def _build_ascii_equivalents() -> re.Pattern[bytes]:
    """Return a pattern of everything outside ASCII that equals a text with ASCII characters, and of JSON escapes."""
    found = {chr(code) for code in range(0x80, 0x2FFF) if _contains_ascii(fold(chr(code)))}
    found |= {chr(code) for code in range(0xFB00, 0xFB07)}  # ligatures, such as ﬁ
    return re.compile(rb"\\|" + b"|".join(re.escape(each.encode()) for each in sorted(found)))


def _contains_ascii(text: str) -> bool:
    return any(each.isascii() for each in text)


_ASCII_EQUIVALENTS: Final = _build_ascii_equivalents()


class TextPattern:
    """A text to find, regardless of case, in data that is UTF-8 text or JSON."""

    def __init__(self, text: str) -> None:
        self._folded = fold(text)
        self._ascii = self._folded.encode() if self._folded.isascii() else None
        self._overlap_bytes = _ESCAPED_BYTES_MAX * (len(text) + len(self._folded))

    def matches_text(self, text: str) -> bool:
        """Return whether a text contains the pattern."""
        return any(self._folded in fold(window) for window in self._split(text))

    def matches(self, data: bytes) -> bool:
        r"""Return whether data contains the pattern, as it is or after JSON escapes (\u00fc) are replaced."""
        return any(self._matches_window(window) for window in self._split(data))

    def may_match(self, data: bytes) -> bool:
        """Return False only if no part of the data can match, which is much faster than `matches`."""
        if self._ascii is None:
            return True
        ascii_text = self._ascii
        return any(
            ascii_text in window.lower() or _ASCII_EQUIVALENTS.search(window) is not None
            for window in self._split(data)
        )

    def _split(self, data: T) -> Iterator[T]:
        """Yield overlapping parts of the data, such that each occurrence is within one of them."""
        yield data[: WINDOW_BYTES + self._overlap_bytes]
        for start in range(WINDOW_BYTES, len(data), WINDOW_BYTES):
            yield data[start : start + WINDOW_BYTES + self._overlap_bytes]

    def _matches_window(self, window: bytes) -> bool:
        text = window.decode("utf-8", "replace")
        return self.matches_text(text) or ("\\" in text and self.matches_text(unescape_json(text)))
