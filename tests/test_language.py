"""Rules of language that a program can check: words that are never right, and class names that are unique."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src" / "chronik"

NEVER_RIGHT: Final = re.compile(
    r"\b(strangers?|heirs?|anew|whoever|by and by|house|rooms?|doors?|custody|career|bury|breathe|hurry|evening|merits"
    r"|of before|for ever)\b",
    re.IGNORECASE,
)
"""Metaphors for which engineers have a term."""

ALLOWED: Final = re.compile(r"begin[-_ ]anew|begins anew")
"""The name of a CLI command, and its output."""

FILES: Final = sorted(
    path
    for root in ("src", "tests", "bench", "tools", "docs")
    for pattern in ("*.py", "*.js", "*.html", "*.md")
    for path in (ROOT / root).rglob(pattern)
    if path.name not in ("test_language.py", "test_mechanical.py") and "node_modules" not in path.parts
) + sorted(ROOT.glob("*.md"))

SCHEMAS: Final = SOURCE / "console" / "rest" / "models"
"""Their class names are the schema names of the OpenAPI document, where "Topic" is the right name for a topic."""

PUBLIC_API: Final = SOURCE / "testing"
"""What tests of users import: `from chronik.testing import Broker`."""


def class_names() -> Iterator[tuple[str, str]]:
    """Yield the public classes at module level, with their files."""
    for path in SOURCE.rglob("*.py"):
        if SCHEMAS in path.parents or PUBLIC_API in path.parents:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_contains_no_word_that_is_never_right(path: Path) -> None:
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = [f"{number}: {line.strip()}" for number, line in lines if NEVER_RIGHT.search(ALLOWED.sub("", line))]
    assert found == []


def test_public_class_names_are_unique() -> None:
    files = defaultdict(list)
    for name, file in class_names():
        files[name].append(file)
    assert {name: found for name, found in files.items() if len(found) > 1} == {}
