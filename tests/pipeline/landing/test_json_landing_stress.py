"""Landing of JSON by two drivers while drivers, compactions, the broker and the object store are killed.

`make long` runs it with 300,000 records and 30 kills, on disk and on S3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.json_landing_stress import (
    KilledProcess,
    find_differences,
    run_json_landing_stress,
    schedule_kills,
)
from tests.run_size import IS_LONG_RUN, SEED, sized

RECORDS = sized(1_500, 300_000)
KILLS = sized(2, 30)


@pytest.mark.slow
@pytest.mark.parametrize("on_s3", [False, True] if IS_LONG_RUN else [False])
def test_each_committed_record_lands_once_despite_kills(
    on_s3: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = run_json_landing_stress(KILLS, RECORDS, SEED, tmp_path, print, on_s3=on_s3)
    record_property("summary", f"JSON landing, {'S3' if on_s3 else 'disk'}, seed {SEED}: {outcome}")
    assert not outcome.wrong, outcome.wrong
    assert outcome.kills.total() == KILLS
    assert outcome.rows + outcome.dead_letters == outcome.committed


def test_kill_schedule_is_deterministic_and_kills_every_process() -> None:
    assert schedule_kills(7, 30, with_store=True) == schedule_kills(7, 30, with_store=True)
    assert schedule_kills(7, 30, with_store=True) != schedule_kills(8, 30, with_store=True)
    assert set(schedule_kills(7, 5, with_store=True)) == set(KilledProcess)
    assert KilledProcess.STORE not in schedule_kills(7, 30, with_store=False)


def test_differences_name_lost_duplicate_changed_and_uncommitted_records() -> None:
    committed = {1: b'{"n": 1}', 2: b'{"n": 2, "a": 1.0}', 3: b'{"n": 3'}
    assert not find_differences(committed, [b'{"a":1.0,"n":2}', b'{"n":1}'], [b'{"n": 3'])
    assert find_differences(committed, [b'{"n":1}'], [b'{"n": 3']) == ["record 2 is lost"]
    doubled = [b'{"n":1}', b'{"n":1}', b'{"n":2,"a":1.0}']
    assert find_differences(committed, doubled, [b'{"n": 3']) == ["record 1 is landed 2 times"]
    changed = [b'{"n":1}', b'{"n":2,"a":1.5}']
    assert find_differences(committed, changed, [b'{"n": 3']) == [
        f"record 2 is {changed[1]!r} in the table, and was {committed[2]!r}"
    ]
    unexpected = [b'{"n":1}', b'{"n":2,"a":1.0}', b'{"n":4}']
    assert find_differences(committed, unexpected, [b'{"n": 3']) == ["record 4 is landed, but was not committed"]
