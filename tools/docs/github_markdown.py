"""Converter from GitHub Markdown to Python-Markdown, which requires more blank lines and indentation.

Standard library only, because the site is built in its own environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

FENCE: Final = re.compile(r"^ *(`{3,}|~{3,})")
ITEM: Final = re.compile(r"^( *)((?:[-*+]|\d{1,3}[.)]) +)(?=\S)")
LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
INDENT: Final = 4
"""The indentation that Python-Markdown requires for the content of list items."""

Resolve = Callable[[str], str | None]


def iter_fenced_lines(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield every line, and whether it belongs to a fenced block (including its fences)."""
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


def replace_links(text: str, resolve: Resolve) -> str:
    """Replace link targets by `resolve`; a link whose target is None becomes plain text."""

    def replace_link(link: re.Match[str]) -> str:
        target = resolve(link[3])
        return link[2] if target is None else f"{link[1]}[{link[2]}]({target})"

    parts = []
    for in_code, lines in groupby(iter_fenced_lines(text.splitlines()), lambda each: each[1]):
        part = "".join(f"{line}\n" for line, _ in lines)
        parts.append(part if in_code else LINK.sub(replace_link, part))
    return "".join(parts)


def to_python_markdown(text: str) -> str:
    return "\n".join(_Converter().convert(text.splitlines())) + "\n"


class _Converter:
    """A line-by-line converter that tracks the open list items."""

    def __init__(self) -> None:
        self._items: list[int] = []
        """The content column of each open item, from the outermost to the innermost."""
        self._out: list[str] = []
        self._in_paragraph = False
        self._in_table = False

    def convert(self, lines: list[str]) -> list[str]:
        was_code = False
        shift = 0
        for line, in_code in iter_fenced_lines(lines):
            if in_code and not was_code:
                shift = self._leave_items(line)
                self._separate()
            if in_code:
                self._out.append(_shift(line, shift))
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
            self._start_item(item, line)
            return
        is_table = line.lstrip().startswith("|")
        if is_table and not self._in_table:
            self._separate()
        self._in_table = is_table
        self._in_paragraph = not line.startswith("#")
        self._out.append(" " * (INDENT * len(self._items)) + line.lstrip() if is_lazy else _shift(line, shift))

    def _start_item(self, item: re.Match[str], line: str) -> None:
        depth = len(self._items)
        if self._in_paragraph and not self._has_preceding_sibling(depth):
            self._separate()
        self._items.append(len(item[1]) + len(item[2]))
        marker = item[2].strip()
        self._out.append(" " * (INDENT * depth) + f"{marker} {line[len(item[0]) :]}")
        self._in_paragraph, self._in_table = True, False

    def _has_preceding_sibling(self, depth: int) -> bool:
        """Return whether the previous line belongs to an item of the same list or to a nested one."""
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
        """Close the items that this line is not part of, and return the shift of the line to the right."""
        while self._items and _indent(line) < self._items[-1]:
            self._items.pop()
        return INDENT * len(self._items) - (self._items[-1] if self._items else 0)

    def _separate(self) -> None:
        if self._out and self._out[-1]:
            self._out.append("")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shift(line: str, shift: int) -> str:
    return " " * shift + line if shift >= 0 else line[min(-shift, _indent(line)) :]
