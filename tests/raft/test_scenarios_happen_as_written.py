"""Every script in `scenarios/` reads like documentation, and this is what keeps it true.

CHRONIK_GOLDEN=1 writes down what happens now; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .script import Script

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_scenario_happens_as_written(path: Path) -> None:
    happened = Script(path).play()
    if os.environ.get("CHRONIK_GOLDEN"):
        path.write_text(happened, encoding="utf-8")
    assert happened == path.read_text(encoding="utf-8")


def test_there_are_scenarios_and_each_shows_something() -> None:
    assert len(SCENARIOS) >= 20
    for path in SCENARIOS:
        assert path.read_text(encoding="utf-8").count("\n----\n") >= 2, path.name
