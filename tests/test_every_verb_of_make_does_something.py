"""A verb that `make help` names, and that has no rule, would be "nothing to be done", with exit code 0."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
TOLD = re.findall(r'^\t@echo "make ([a-z-]+)', MAKEFILE, re.MULTILINE)
PHONY = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()


@pytest.mark.parametrize("verb", sorted({*TOLD, *PHONY}))
def test_it_has_a_rule(verb: str) -> None:
    assert re.search(rf"^{verb}:.*\n\t@?\S", MAKEFILE, re.MULTILINE)


def test_all_that_are_told_of_are_phony() -> None:
    assert len(TOLD) > 5
    assert set(TOLD) <= set(PHONY)
