"""Tests of a stream that copies a topic exactly once while its driver and tasks are killed.

`make long` runs it with 20 kills of all kinds, on a Spark cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.long import LONG, SEED, count
from tests.pipeline.jars import APACHE_KAFKA, skip_without
from tests.pipeline.long_copying import Kill, Victim, differences, run_storm, schedule

pytestmark = pytest.mark.xdist_group("jvms")

RECORDS = count(30_000, 1_000_000)
KILLS = schedule(SEED, 20) if LONG else [Kill(Victim.TASK), Kill(Victim.DRIVER)]


TO_APACHE_KAFKA = pytest.param(
    True,
    id="apache-kafka",
    marks=pytest.mark.skipif(not LONG, reason="runs in make long only: the same sink takes two more minutes"),
)


@pytest.mark.parametrize("kafka", [pytest.param(False, id="chronik"), TO_APACHE_KAFKA])
def test_stream_copies_each_record_once_despite_kills(
    kafka: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if kafka:
        skip_without(APACHE_KAFKA)
    outcome = run_storm(KILLS, RECORDS, tmp_path, print, is_local=not LONG, nodes=count(1, 3), kafka=kafka)
    record_property("summary", f"seed {SEED}: {outcome}")
    assert not outcome.wrong, outcome.wrong
    assert outcome.kills.total() == len(KILLS)


def test_kill_schedule_is_deterministic_and_has_every_kind() -> None:
    assert schedule(7, 20) == schedule(7, 20)
    assert schedule(7, 20) != schedule(8, 20)
    assert {kill.victim for kill in schedule(7, 4)} == set(Victim)


def test_differences_reports_missing_and_duplicate_records() -> None:
    assert not differences([b"0 x", b"1 x", b"2 x"], 3)
    assert differences([b"0 x", b"2 x"], 3) == ["record 1 occurs 0 times", "3 records but 2 copies"]
    assert differences([b"0 x", b"0 x", b"2 x"], 3) == ["record 0 occurs 2 times", "record 1 occurs 0 times"]
