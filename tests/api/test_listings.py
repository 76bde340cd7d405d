"""Handlers that examine many elements yield after each of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

API = Path(__file__).parents[2] / "src" / "chronik" / "api"


def is_bare_yield(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield) and statement.value.value is None


def loops_with_steps(module: ast.Module) -> list[ast.For | ast.While]:
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.For | ast.While)
        and any(is_bare_yield(inner) for statement in node.body for inner in ast.walk(statement))
    ]


def skips_its_yield(loop: ast.For | ast.While) -> bool:
    """Return whether a `continue` of the loop precedes every `yield`: elements that it skips cannot be interrupted."""
    first_yield = min(
        inner.lineno
        for statement in loop.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Expr) and is_bare_yield(inner)
    )
    skips = [
        inner.lineno for statement in loop.body for inner in ast.walk(statement) if isinstance(inner, ast.Continue)
    ]
    return any(line < first_yield for line in skips)


def test_listings_yield_before_skipping_elements() -> None:
    loops = 0
    for path in sorted(API.rglob("*.py")):
        for loop in loops_with_steps(ast.parse(path.read_text(encoding="utf-8"))):
            loops += 1
            assert not skips_its_yield(loop), f"{path.name}:{loop.lineno}: yield before the first `continue`"
    assert loops > 10


@pytest.mark.parametrize(("body", "skips"), [("    continue\n    yield", True), ("    yield\n    continue", False)])
def test_check_detects_continue_before_yield(body: str, skips: bool) -> None:
    source = "def steps():\n  for each in x:\n" + "\n".join(f"  {line}" for line in body.split("\n"))
    (loop,) = loops_with_steps(ast.parse(source))
    assert skips_its_yield(loop) is skips
