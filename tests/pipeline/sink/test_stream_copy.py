"""Tests of a stream that copies a topic exactly once while its driver and tasks are killed.

`make long` runs it with 20 kills of all kinds, on a Spark cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.copy_stress import CopyKill, Victim, find_copy_differences, run_copy_stress, schedule_kills
from tests.pipeline.jars import APACHE_KAFKA, skip_without_jars
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = pytest.mark.xdist_group("jvms")

RECORDS = sized(30_000, 1_000_000)
KILLS = schedule_kills(SEED, 20) if IS_LONG_RUN else [CopyKill(Victim.TASK), CopyKill(Victim.DRIVER)]


TO_APACHE_KAFKA = pytest.param(
    True,
    id="apache-kafka",
    marks=pytest.mark.skipif(not IS_LONG_RUN, reason="runs in make long only: the same sink takes two more minutes"),
)


@pytest.mark.parametrize("kafka", [pytest.param(False, id="chronik"), TO_APACHE_KAFKA])
def test_stream_copies_each_record_once_despite_kills(
    kafka: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if kafka:
        skip_without_jars(APACHE_KAFKA)
    outcome = run_copy_stress(KILLS, RECORDS, tmp_path, print, is_local=not IS_LONG_RUN, nodes=sized(1, 3), kafka=kafka)
    record_property("summary", f"seed {SEED}: {outcome}")
    assert not outcome.wrong, outcome.wrong
    assert outcome.kills.total() == len(KILLS)


def test_kill_schedule_is_deterministic_and_has_every_kind() -> None:
    assert schedule_kills(7, 20) == schedule_kills(7, 20)
    assert schedule_kills(7, 20) != schedule_kills(8, 20)
    assert {kill.victim for kill in schedule_kills(7, 4)} == set(Victim)


def test_differences_reports_missing_and_duplicate_records() -> None:
    assert not find_copy_differences([b"0 x", b"1 x", b"2 x"], 3)
    assert find_copy_differences([b"0 x", b"2 x"], 3) == ["record 1 occurs 0 times", "3 records but 2 copies"]
    assert find_copy_differences([b"0 x", b"0 x", b"2 x"], 3) == ["record 0 occurs 2 times", "record 1 occurs 0 times"]
