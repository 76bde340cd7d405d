"""Messages quoted in docs/operate/operations.md, for readers who search for them, exist in the source code."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operate" / "operations.md"
QUOTED = re.compile(r'"([^"\n]+)"')
VARIABLE_PART = re.compile(r"…|\d+|:\s*$")
"""Variable parts of a message."""


LITERAL_BREAK = re.compile(r'"\s*\n\s*f?"')


def quotes() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    tables = text[text.index("## Troubleshooting") :]
    return QUOTED.findall(re.sub(r"`[^`\n]*`", "", tables))


def fragments(quote: str) -> list[str]:
    return [words for part in VARIABLE_PART.split(quote) if len(words := part.strip(" .,:;=")) > 2]


def source_texts() -> Iterator[str]:
    """Yield the source files, with string literals that span several lines joined."""
    for file in sorted((ROOT / "src" / "chronik").rglob("*.py")):
        yield LITERAL_BREAK.sub("", file.read_text(encoding="utf-8"))


def system_error_texts() -> Iterator[str]:
    for number in errno.errorcode:
        yield os.strerror(number)
        yield os.strerror(number).lower()


def test_messages_quoted_in_operations_page_exist_in_source() -> None:
    known_texts = "\n".join((*source_texts(), *system_error_texts()))
    assert len(quotes()) > 20
    assert [quote for quote in quotes() if any(fragment not in known_texts for fragment in fragments(quote))] == []
