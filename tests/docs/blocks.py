"""The fenced blocks of README.md and docs/, and what comments before them say, which readers do not see:

<!-- not run: why -->        a block that cannot be run
<!-- in the background -->   commands that go on until the page ends
<!-- once it works -->       commands that are tried until they succeed, since something is still starting
<!-- file: NAME -->          what stands in a file of this name

A block of `text` right behind one of `sh` or `python` is what that one prints; `…` stands for anything.
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
class Block:
    page: str
    line: int
    language: str
    text: str
    marks: tuple[tuple[str, str], ...] = ()
    prints: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def mark(self, name: str) -> str | None:
        return dict(self.marks).get(name)


@cache
def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    blocks = []
    for number, fence in enumerate(found):
        after = found[number + 1] if number + 1 < len(found) else None
        is_output = after and after[2] == "text" and not text[fence.end() : after.start()].strip()
        blocks.append(
            Block(
                page.relative_to(ROOT).as_posix(),
                text.count("\n", 0, fence.start()) + 1,
                fence[2],
                re.sub(rf"^{fence[1]}", "", fence[3], flags=re.MULTILINE),
                _marks_before(text[: fence.start()]),
                after[3] if after and is_output and fence[2] in ("sh", "python") else None,
            )
        )
    return blocks


def _marks_before(text: str) -> tuple[tuple[str, str], ...]:
    comments = MARKS.search(text)
    return tuple((name, value or "") for name, value in MARK.findall(comments[0])) if comments else ()


def all_blocks() -> list[Block]:
    found = [block for page in PAGES for block in blocks_of(page)]
    assert len(found) > 100
    return found


def printed(expected: str, output: str) -> bool:
    """Whether the last that was printed is what the page shows."""
    pattern = ".*".join(map(re.escape, expected.rstrip("\n").split("…")))
    return re.search(rf"(?:\A|\n){pattern}\n?\Z", output, re.DOTALL) is not None
