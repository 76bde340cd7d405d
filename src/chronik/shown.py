"""What comes from outside, as it may be shown: on a terminal, in a log, in JSON.

Names of topics, groups, members and clients, and messages with them, may hold anything that UTF-8 can say: a line break
forges a line of a log, an escape code takes over a terminal, a direction mark reverses a line. Such characters
are shown as Python writes them. What is printed or logged goes through here in one place each (`EscapingStream`,
`chronik.logs`), so that nobody has to think of it where a name is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO, cast

_OF_UNICODE: Final = r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
_UNSHOWN: Final = rf"[\x00-\x1f\x7f-\x9f{_OF_UNICODE}]"
_UNSHOWN_IN_LINES: Final = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_OF_UNICODE}]"
# Not compiled until there is something to show, which takes a millisecond of a node's start; `re` keeps them then.


def escaped(text: str) -> str:
    """Returns the text on one line, whatever was in it."""
    return re.sub(_UNSHOWN, _as_python_writes_it, text)


def escaped_lines(text: str) -> str:
    """Keeps line breaks and tabs: for text that is laid out already."""
    return re.sub(_UNSHOWN_IN_LINES, _as_python_writes_it, text)


def shortened(text: str, characters_max: int) -> str:
    """Returns the beginning, and how much more there is."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… ({len(text) - characters_max:,} characters more)"


def json_text(value: Any, *, indent: int | None = None, **how: Any) -> str:
    """Returns JSON for people, too: letters of all languages stay as they are, what takes over a terminal does not."""
    import json  # nodes that show none start sooner

    return re.sub(_UNSHOWN_IN_LINES, _as_json_writes_it, json.dumps(value, indent=indent, ensure_ascii=False, **how))


def _as_python_writes_it(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _as_json_writes_it(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class EscapingStream:
    """A text stream that lets only text through. Everything but `write` is the stream's own, also its `buffer`."""

    def __init__(self, stream: TextIO) -> None:
        self.unescaped: Final = stream

    def write(self, text: str) -> int:
        self.unescaped.write(escaped_lines(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def unescaped(stream: TextIO) -> TextIO:
    """Returns the stream itself, for escape codes of our own, and for data that is meant for a program."""
    return stream.unescaped if isinstance(stream, EscapingStream) else stream


@contextmanager
def escaping_output() -> Iterator[None]:
    """Escapes everything that is printed within, whoever prints it."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, EscapingStream(out)), cast(TextIO, EscapingStream(err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
