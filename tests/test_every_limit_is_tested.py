"""A limit that no test names is a wish. Ratchet: every limit of `chronik.limits` is named in a test."""

from __future__ import annotations

import re
from pathlib import Path

from chronik import limits

TESTS = Path(__file__).parent


def test_every_limit_is_named_in_a_test() -> None:
    names = [name for name in vars(limits) if name.endswith("_MAX")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != Path(__file__))
    untested = [name for name in names if not re.search(rf"\b{name}\b", text)]
    assert len(names) > 10
    assert not untested
