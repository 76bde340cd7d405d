"""What docs/operations.md quotes of nodes and commands, for those who look for a message, is what they say."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations.md"
QUOTED = re.compile(r'"([^"\n]+)"')
VARIES = re.compile(r"…|\d+|:\s*$")
"""What a message is about stands between its words."""


BETWEEN_PARTS = re.compile(r'"\s*\n\s*f?"')


def quotes() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    tables = text[text.index("## When something looks wrong") :]
    return QUOTED.findall(re.sub(r"`[^`\n]*`", "", tables))


def fragments(quote: str) -> list[str]:
    return [words for part in VARIES.split(quote) if len(words := part.strip(" .,:;=")) > 2]


def said_by_the_house() -> Iterator[str]:
    """Its sources, in which a message may be written in several parts."""
    for file in sorted((ROOT / "src" / "chronik").rglob("*.py")):
        yield BETWEEN_PARTS.sub("", file.read_text(encoding="utf-8"))


def said_by_the_machine() -> Iterator[str]:
    for number in errno.errorcode:
        yield os.strerror(number)
        yield os.strerror(number).lower()


def test_every_message_that_the_page_quotes_is_one() -> None:
    said = "\n".join((*said_by_the_house(), *said_by_the_machine()))
    assert len(quotes()) > 20
    assert [quote for quote in quotes() if any(fragment not in said for fragment in fragments(quote))] == []
