"""Every limit of `chronik.limits` is named in a test."""

from __future__ import annotations

import re
from pathlib import Path

from chronik import limits

TESTS = Path(__file__).parent


def test_every_limit_constant_occurs_in_a_test() -> None:
    names = [name for name in vars(limits) if name.endswith("_MAX")]
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != Path(__file__))
    words = {word for text in texts for word in re.findall(r"\b[A-Z0-9_]+_MAX\b", text)}
    untested = [name for name in names if name not in words]
    assert len(names) > 10
    assert not untested
