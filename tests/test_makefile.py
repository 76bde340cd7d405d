"""Targets that `make help` lists have a rule: without one, make says "nothing to be done" with exit code 0."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
LISTED = re.findall(r'^\t@echo "make ([a-z-]+)', MAKEFILE, re.MULTILINE)
PHONY = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()


@pytest.mark.parametrize("target", sorted({*LISTED, *PHONY}))
def test_make_target_has_a_rule(target: str) -> None:
    assert re.search(rf"^{target}:.*\n\t@?\S", MAKEFILE, re.MULTILINE)


def test_targets_in_make_help_are_phony() -> None:
    assert len(LISTED) > 5
    assert set(LISTED) <= set(PHONY)
