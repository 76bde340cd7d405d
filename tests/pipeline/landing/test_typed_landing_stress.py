"""Landing of Avro with an evolving schema by two drivers while drivers, Spark's workers and the broker are killed.

`make long` runs it with 1,000,000 records and 50 kills.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import fastavro
import pytest

from tests.pipeline.typed_landing_stress import (
    SCHEMAS,
    KilledProcess,
    build_order,
    choose_version,
    run_typed_landing_stress,
    schedule_kills,
)
from tests.run_size import SEED, sized

RECORDS = sized(2_000, 1_000_000)
KILLS = sized(2, 50)


@pytest.mark.slow
def test_each_avro_record_lands_once_with_its_values_despite_kills(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = run_typed_landing_stress(KILLS, RECORDS, SEED, tmp_path, print)
    record_property("summary", f"typed landing, seed {SEED}: {outcome}")
    assert not outcome.wrong, outcome.wrong
    assert outcome.kills.total() == KILLS
    assert outcome.rows + outcome.dead_letters == outcome.committed


def test_schedule_of_typed_stress_kills_every_process() -> None:
    assert schedule_kills(7, 50) == schedule_kills(7, 50)
    assert schedule_kills(7, 50) != schedule_kills(8, 50)
    assert set(schedule_kills(7, 5)) == set(KilledProcess)


def test_records_of_typed_stress_use_all_versions() -> None:
    versions = [choose_version(number, 1000) for number in range(1000)]
    assert set(versions) == set(range(len(SCHEMAS)))
    assert versions[:200].count(0) == 200, "later versions are not known yet"
    for number, version in enumerate(versions):
        order = build_order(number, version)
        order["total"] = order["total"].to_bytes(5, "big")
        assert fastavro.validate({**order, "total": 0}, json.loads(json.dumps(_without_decimal(version))))


def _without_decimal(version: int) -> object:
    fields = [{**each, "type": "int"} if each["name"] == "total" else each for each in SCHEMAS[version]["fields"]]
    return {**SCHEMAS[version], "fields": fields}
