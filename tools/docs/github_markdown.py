"""Pages are written as GitHub reads them; Python-Markdown, which makes the site, is stricter about blank lines and
indentation. Here the first becomes the second. Standard library only: the site has an environment of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

FENCE: Final = re.compile(r"^ *(`{3,}|~{3,})")
ITEM: Final = re.compile(r"^( *)((?:[-*+]|\d{1,3}[.)]) +)(?=\S)")
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
INDENT: Final = 4
"""What Python-Markdown wants of everything inside of a list's item."""

Resolve = Callable[[str], str | None]


def fenced(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Every line, and whether it belongs to a fenced block, its fences included."""
    fence = ""
    for line in lines:
        found = FENCE.match(line)
        if fence:
            yield line, True
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found:
            fence = found[1]
            yield line, True
        else:
            yield line, False


def with_links(text: str, resolve: Resolve) -> str:
    """`resolve` gives the new target of a link, or None, where what is linked to is not on the site: its text stays."""

    def replaced(link: re.Match[str]) -> str:
        target = resolve(link[3])
        return link[2] if target is None else f"{link[1]}[{link[2]}]({target})"

    parts = []
    for in_code, lines in groupby(fenced(text.splitlines()), lambda each: each[1]):
        part = "".join(f"{line}\n" for line, _ in lines)
        parts.append(part if in_code else LINK.sub(replaced, part))
    return "".join(parts)


def for_python_markdown(text: str) -> str:
    return "\n".join(_Lines().take(text.splitlines())) + "\n"


class _Lines:
    """Goes through a page line by line, and remembers in which items of lists it is."""

    def __init__(self) -> None:
        self._items: list[int] = []
        """The column in which the content of each open item begins, from the outermost to the innermost."""
        self._out: list[str] = []
        self._in_paragraph = False
        self._in_table = False

    def take(self, lines: list[str]) -> list[str]:
        was_code = False
        shift = 0
        for line, in_code in fenced(lines):
            if in_code and not was_code:
                shift = self._leave_items(line)
                self._separate()
            if in_code:
                self._out.append(_shifted(line, shift))
            else:
                if was_code:
                    self._in_paragraph = False
                    self._separate()
                self._plain(line)
            was_code = in_code
        return self._out

    def _plain(self, line: str) -> None:
        if not line.strip():
            self._in_paragraph = self._in_table = False
            self._out.append("")
            return
        item = ITEM.match(line)
        is_lazy = self._in_paragraph and self._items and not item and _indent(line) < self._items[-1]
        shift = 0 if is_lazy else self._leave_items(line)
        if item:
            self._begin_item(item, line)
            return
        is_table = line.lstrip().startswith("|")
        if is_table and not self._in_table:
            self._separate()
        self._in_table = is_table
        self._in_paragraph = not line.startswith("#")
        self._out.append(" " * (INDENT * len(self._items)) + line.lstrip() if is_lazy else _shifted(line, shift))

    def _begin_item(self, item: re.Match[str], line: str) -> None:
        depth = len(self._items)
        if self._in_paragraph and not self._siblings_before(depth):
            self._separate()
        self._items.append(len(item[1]) + len(item[2]))
        marker = item[2].strip()
        self._out.append(" " * (INDENT * depth) + f"{marker} {line[len(item[0]) :]}")
        self._in_paragraph, self._in_table = True, False

    def _siblings_before(self, depth: int) -> bool:
        """Whether the line before belongs to an item of the same list, or to one inside of it."""
        for line in reversed(self._out):
            if not line:
                return False
            found = ITEM.match(line)
            if found and len(found[1]) >= INDENT * depth:
                return True
            if found:
                return False
        return False

    def _leave_items(self, line: str) -> int:
        """Closes what this line is no longer in. Returns by how much the line moves to the right."""
        while self._items and _indent(line) < self._items[-1]:
            self._items.pop()
        return INDENT * len(self._items) - (self._items[-1] if self._items else 0)

    def _separate(self) -> None:
        if self._out and self._out[-1]:
            self._out.append("")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shifted(line: str, shift: int) -> str:
    return " " * shift + line if shift >= 0 else line[min(-shift, _indent(line)) :]
