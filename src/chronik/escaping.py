"""Escaping of untrusted text before it is printed, logged or written as JSON.

Names of topics, groups, members and clients may contain any Unicode character: a line break forges a log line, an
escape sequence controls a terminal, a direction mark reverses a line. Such characters are replaced by Python's escape
sequences. All output passes through `EscapingStream` or `chronik.log_output`, so callers need not escape anything.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

_UNICODE_CONTROLS: Final = r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
_UNSAFE: Final = rf"[\x00-\x1f\x7f-\x9f{_UNICODE_CONTROLS}]"
_UNSAFE_EXCEPT_LINE_BREAKS: Final = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNICODE_CONTROLS}]"
# `re` compiles and caches the patterns on first use; compiling them at import would delay a node's start.


def escape(text: str) -> str:
    """Escape control and format characters, including line breaks: the result is a single line."""
    return re.sub(_UNSAFE, _escape_for_python, text)


def escape_except_line_breaks(text: str) -> str:
    """Escape control and format characters, except line breaks and tabs."""
    return re.sub(_UNSAFE_EXCEPT_LINE_BREAKS, _escape_for_python, text)


def truncate_text(text: str, characters_max: int) -> str:
    """Truncate the text to a maximum number of characters, and append the number of characters removed."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… ({len(text) - characters_max:,} characters more)"


def to_json_text(value: Any, *, indent: int | None = None, **how: Any) -> str:
    """Return the value as JSON with control and format characters escaped and other Unicode characters preserved."""
    import json  # imported on use: nodes that write no JSON start faster

    return escape_json_text(json.dumps(value, indent=indent, ensure_ascii=False, **how))


def escape_json_text(text: str) -> str:
    """Escape the control and format characters that JSON text contains, except line breaks and tabs."""
    return re.sub(_UNSAFE_EXCEPT_LINE_BREAKS, _escape_for_json, text)


def _escape_for_python(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _escape_for_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class EscapingStream:
    """A text stream that escapes all text written to it, and delegates other attributes to the underlying stream."""

    def __init__(self, stream: TextIO) -> None:
        self.raw_stream: Final = stream

    def write(self, text: str) -> int:
        self.raw_stream.write(escape_except_line_breaks(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw_stream, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the underlying stream, for terminal control sequences and for data that a program reads."""
    return stream.raw_stream if isinstance(stream, EscapingStream) else stream


@contextmanager
def escape_output() -> Iterator[None]:
    """Escape everything that is written to stdout and stderr within the context."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, EscapingStream(out)), cast(TextIO, EscapingStream(err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
