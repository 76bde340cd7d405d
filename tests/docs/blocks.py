"""The fenced code blocks of README.md and docs/, and the HTML comments before them that control their tests:

    <!-- not run: why -->        a block that cannot be run
    <!-- in the background -->   commands that run until the end of the page
    <!-- once it works -->       commands that are retried until they succeed, because something is still starting
    <!-- file: NAME -->          the content of a file with this name

A `text` block directly after an `sh` or `python` block is its expected output; `…` matches anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
MARKS = re.compile(r"(?:^ *<!-- [^\n]*? -->\n)+\Z", re.MULTILINE)
MARK = re.compile(r"<!-- (.*?)(?:: (.*?))? -->")
NOT_RUN, BACKGROUND, ONCE_IT_WORKS, FILE = "not run", "in the background", "once it works", "file"


@dataclass(frozen=True)
class CodeBlock:
    """A fenced code block of a page."""

    page: str
    line: int
    language: str
    text: str
    marks: tuple[tuple[str, str], ...] = ()
    expected_output: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def mark(self, name: str) -> str | None:
        return dict(self.marks).get(name)


@cache
def parse_blocks(page: Path) -> list[CodeBlock]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    blocks = []
    for number, fence in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
        is_output = following and following[2] == "text" and not text[fence.end() : following.start()].strip()
        blocks.append(
            CodeBlock(
                page.relative_to(ROOT).as_posix(),
                text.count("\n", 0, fence.start()) + 1,
                fence[2],
                re.sub(rf"^{fence[1]}", "", fence[3], flags=re.MULTILINE),
                _marks_before(text[: fence.start()]),
                following[3] if following and is_output and fence[2] in ("sh", "python") else None,
            )
        )
    return blocks


def _marks_before(text: str) -> tuple[tuple[str, str], ...]:
    comments = MARKS.search(text)
    return tuple((name, value or "") for name, value in MARK.findall(comments[0])) if comments else ()


def all_blocks() -> list[CodeBlock]:
    found = [block for page in PAGES for block in parse_blocks(page)]
    assert len(found) > 100
    return found


def ends_with_output(expected: str, output: str) -> bool:
    """Return whether the output ends with the expected text."""
    pattern = ".*".join(map(re.escape, expected.rstrip("\n").split("…")))
    return re.search(rf"(?:\A|\n){pattern}\n?\Z", output, re.DOTALL) is not None
