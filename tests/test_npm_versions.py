"""Packages from npm are pinned to exact versions, so that `make check` and `make test` do not change between runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

PACKAGES = sorted((Path(__file__).parents[1] / "tools" / "clients").glob("*/package.json"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.parent.name)
def test_npm_versions_are_exact(package: Path) -> None:
    versions = json.loads(package.read_text(encoding="utf-8"))["dependencies"]
    assert versions
    assert not [name for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)]
