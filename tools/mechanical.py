"""Check that a change renames and rewords, and leaves the program as it was.

    python -m tools.mechanical BASE [HEAD]

Compare the syntax trees of all Python files of two commits. Docstrings, comments, messages (string literals with
a space), imports and identifiers may differ, and other strings if each of their words was renamed like an identifier or
module. Any other difference is reported, and the exit code is 1. `--names` prints the renamed identifiers, `--tests`
those of the test functions.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

IDENTIFIER_FIELDS: Final = frozenset({"id", "attr", "name", "arg", "rest"})
"""Fields of syntax nodes that hold an identifier."""

IGNORED_FIELDS: Final = frozenset({"type_comment", "kind"})

SIMILARITY: Final = "30%"
"""How similar two files must be for git to report one as the renamed other. Test files are small and change a lot."""


@dataclass
class Comparison:
    """The differences between two syntax trees."""

    structure: list[tuple[int, str]] = field(default_factory=list)
    """Lines and descriptions of differences that change the program."""
    names: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Renamed identifiers, old and new, with the number of their occurrences."""
    strings: list[tuple[int, str, str]] = field(default_factory=list)
    """Lines, old and new values of strings that are no messages."""
    reworded: int = 0
    """Messages whose text differs."""

    def differences(self, renamed: Container[tuple[str, str]]) -> list[tuple[int, str]]:
        """Return the lines and descriptions of differences that change the program, given all renamed identifiers."""
        return sorted(
            self.structure
            + [
                (line, f"{old!r} became {new!r}")
                for line, old, new in self.strings
                if not _is_renamed(old, new, renamed)
            ]
        )


def _is_renamed(old: str, new: str, renamed: Container[tuple[str, str]]) -> bool:
    """Return whether two strings differ only in words that were renamed."""
    if re.split(r"\w+", old) != re.split(r"\w+", new):
        return False
    return all(
        pair[0] == pair[1] or pair in renamed
        for pair in zip(re.findall(r"\w+", old), re.findall(r"\w+", new), strict=True)
    )


def compare(old: str, new: str) -> Comparison:
    """Compare two versions of a module."""
    comparison = Comparison()
    _compare(_without_prose(ast.parse(old)), _without_prose(ast.parse(new)), comparison, 0)
    return comparison


def _without_prose(tree: ast.Module) -> ast.Module:
    """Remove docstrings, attribute docstrings, placeholder statements and imports from a tree."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                statements[:] = [each for each in statements if not _is_ignored(each)]
    return tree


def _is_ignored(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and (isinstance(value.value, str) or value.value is ...)


def _compare(old: Any, new: Any, comparison: Comparison, line: int) -> None:
    if isinstance(old, ast.AST) and isinstance(new, ast.AST):
        line = getattr(new, "lineno", line)
        if _is_message(old) and _is_message(new):
            comparison.reworded += ast.dump(old) != ast.dump(new)
        elif type(old) is not type(new):
            comparison.structure.append((line, f"{type(old).__name__} became {type(new).__name__}"))
        else:
            _compare_fields(old, new, comparison, line)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            comparison.structure.append((line, f"{len(old)} nodes became {len(new)}"))
            return
        for old_item, new_item in zip(old, new, strict=True):
            _compare(old_item, new_item, comparison, line)
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            comparison.strings.append((line, old, new))
    elif old != new:
        comparison.structure.append((line, f"{old!r} became {new!r}"))


def _compare_fields(old: ast.AST, new: ast.AST, comparison: Comparison, line: int) -> None:
    for name in old._fields:
        old_value, new_value = getattr(old, name, None), getattr(new, name, None)
        if name in IGNORED_FIELDS:
            continue
        if name == "kwd_attrs" and len(old_value or ()) == len(new_value or ()):
            comparison.names.update(
                pair for pair in zip(old_value or (), new_value or (), strict=True) if len({*pair}) > 1
            )
        elif name in IDENTIFIER_FIELDS and isinstance(old_value, str) and isinstance(new_value, str):
            if old_value != new_value:
                comparison.names[old_value, new_value] += 1
        else:
            _compare(old_value, new_value, comparison, line)


def _is_message(node: ast.AST) -> bool:
    """Return whether a node is a text for people: a string literal with a space in it, or a sum of texts."""
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_message(node.left) or _is_message(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


@dataclass(frozen=True)
class FilePair:
    old: str
    new: str


def changed_files(base: str, head: str, moved: Mapping[str, str]) -> Iterator[FilePair]:
    """Yield the Python files that differ between two commits.

    `moved` has the new paths of files by their old ones. The new path of a deleted file, and the old path of an added
    one, is empty.
    """
    yield from (FilePair(old, new) for old, new in moved.items())
    paired = {*moved, *moved.values()}
    listing = _git("diff", "--name-status", f"-M{SIMILARITY}", "-l20000", base, head, "--", "*.py")
    for row in listing.splitlines():
        status, *paths = row.split("\t")
        if paired.issuperset(paths):
            continue
        yield FilePair("" if status[0] == "A" else paths[0], "" if status[0] == "D" else paths[-1])


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), check=True, capture_output=True, text=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mechanical", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", metavar="BASE", help="the commit before the change")
    parser.add_argument("head", metavar="HEAD", nargs="?", default="HEAD", help="the commit after it (default: HEAD)")
    parser.add_argument("--moved", metavar="FILE", type=Path, help="lines with old and new paths of moved files")
    parser.add_argument("--names", action="store_true", help="print all renamed identifiers")
    parser.add_argument("--tests", action="store_true", help="print all renamed test functions")
    parsed = parser.parse_args(arguments)
    moved = dict(line.split() for line in parsed.moved.read_text().splitlines()) if parsed.moved else {}
    names: Counter[tuple[str, str]] = Counter()
    renamed: set[tuple[str, str]] = set()
    comparisons: list[tuple[str, Comparison]] = []
    reworded = failures = 0
    for pair in changed_files(parsed.base, parsed.head, moved):
        if not pair.old or not pair.new:
            failures += 1
            print(f"{pair.old or pair.new}: {'deleted' if pair.old else 'added'}")
            continue
        comparison = compare(_git("show", f"{parsed.base}:{pair.old}"), _git("show", f"{parsed.head}:{pair.new}"))
        comparisons.append((pair.new, comparison))
        reworded += comparison.reworded
        names.update(comparison.names)
        renamed |= {*zip(re.findall(r"\w+", pair.old), re.findall(r"\w+", pair.new), strict=False)}
    renamed |= {*names}
    for path, comparison in comparisons:
        for line, difference in comparison.differences(renamed):
            failures += 1
            print(f"{path}:{line}: {difference}")
    for (old, new), count in sorted(names.items()):
        if parsed.names or (parsed.tests and old.startswith("test_")):
            print(f"{old} -> {new} ({count})")
    print(
        f"{len(comparisons)} files, {len(names)} identifiers renamed, {reworded} messages reworded, "
        f"{failures} other differences"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
