"""Landing on a real Spark cluster while workers and the driver are killed: each record lands exactly once.

`make long` runs it with 50 kills of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.landing_stress import KillKind, LandingKill, run_landing_stress, schedule_kills
from tests.pipeline.landing_stress_tools import find_differences
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = pytest.mark.xdist_group("jvms")

RECORDS = sized(20_000, 1_000_000)
KILLS = schedule_kills(SEED, 50) if IS_LONG_RUN else [LandingKill(KillKind.WORKER), LandingKill(KillKind.DRIVER)]


def test_each_record_lands_once_despite_worker_and_driver_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = run_landing_stress(KILLS, RECORDS, tmp_path, print, nodes=sized(1, 3))
    record_property("summary", f"seed {SEED}: {outcome}")
    assert not outcome.wrong, outcome.wrong
    assert outcome.kills.total() == len(KILLS)
    assert outcome.ended_by_itself == 0, "a driver stops only when it is killed"


def test_kill_schedule_is_deterministic_and_has_every_kind() -> None:
    assert schedule_kills(7, 50) == schedule_kills(7, 50)
    assert schedule_kills(7, 50) != schedule_kills(8, 50)
    assert len(schedule_kills(7, 50)) == 50
    assert {kill.kind for kill in schedule_kills(7, 5)} == set(KillKind) - {KillKind.STORE}
    assert {kill.kind for kill in schedule_kills(7, 6, with_store=True)} == set(KillKind)


def test_checker_finds_missing_duplicate_and_changed_rows() -> None:
    journal = np.array([[0, 0, 11], [0, 1, 12], [1, 0, 13]])
    assert not find_differences(journal, journal.copy())
    assert find_differences(journal, journal[:2]) == ["not in the table: partition 1 offset 0", "3 records and 2 rows"]
    doubled = np.concatenate([journal, journal[1:2]])
    assert find_differences(journal, doubled) == ["twice in the table: partition 0 offset 1", "3 records and 4 rows"]
    changed = journal.copy()
    changed[0, 2] = 99
    assert find_differences(journal, changed) == [
        "not in the table: partition 0 offset 0",
        "not in the journal: partition 0 offset 0",
    ]
