"""The classic group package is deterministic: it imports no clock, random, disk or network modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from chronik.coordination import machine
from chronik.groups import classic, requests

FOLDER = Path(classic.__path__[0])
FILES = [*sorted(FOLDER.glob("*.py")), Path(machine.__file__), Path(requests.__file__)]
IMPURE = {"asyncio", "logging", "os", "pathlib", "random", "select", "socket", "threading", "time", "uuid", "uvloop"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_classic_package_imports_no_impure_modules(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported.add(node.module.split(".")[0])
    assert not imported & IMPURE


def test_purity_check_covers_all_modules() -> None:
    assert len(FILES) > 5
