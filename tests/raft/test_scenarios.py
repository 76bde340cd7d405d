"""The scenario scripts in `scenarios/` produce the traces that they contain.

Run with CHRONIK_GOLDEN=1 to update the traces, and review the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.raft.script import ScenarioScript

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_produces_expected_trace(path: Path) -> None:
    actual = ScenarioScript(path).run()
    if os.environ.get("CHRONIK_GOLDEN"):
        path.write_text(actual, encoding="utf-8")
    assert actual == path.read_text(encoding="utf-8")


def test_every_scenario_has_several_blocks() -> None:
    assert len(SCENARIOS) >= 20
    for path in SCENARIOS:
        assert path.read_text(encoding="utf-8").count("\n----\n") >= 2, path.name
