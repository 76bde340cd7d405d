"""Two drivers land on S3 while processes are killed and responses are lost: each record lands exactly once.

`make long-landing` runs it with 1,000,000 records, 50 kills of all kinds, and 100 queries during the run, in Delta and
Iceberg tables, with two seeds each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.pipeline.tables.topic_table import TableFormat
from tests.pipeline.landing_stress import KillKind, LandingKill, run_landing_stress, schedule_kills
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = pytest.mark.xdist_group("jvms")

RECORDS = sized(3_000, 1_000_000)
KILLS = (
    schedule_kills(SEED, 50, with_store=True)
    if IS_LONG_RUN
    else [LandingKill(KillKind.DRIVER, victim=0), LandingKill(KillKind.STORE, away_s=0.5)]
)


@pytest.mark.parametrize("table_format", list(TableFormat) if IS_LONG_RUN else [TableFormat.DELTA])
def test_two_drivers_land_each_record_once_on_s3(
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    without_aws_settings: None,
    table_format: TableFormat,
) -> None:
    """The second driver takes over when the first one is killed, and both land concurrently when it is back."""
    outcome = run_landing_stress(
        KILLS,
        RECORDS,
        tmp_path,
        print,
        nodes=sized(1, 3),
        workers=sized(0, 2),
        s3_seed=SEED,
        table_format=table_format,
        drivers=2,
        queries=sized(0, 100),
    )
    record_property("summary", f"{table_format}, seed {SEED}: {outcome}")
    assert not outcome.wrong, outcome.wrong
    assert outcome.kills.total() == len(KILLS)
    assert outcome.ended_by_itself == 0, "a driver stops only when it is killed"
    assert outcome.injected["lost_response"] > 0
    assert (outcome.injected["catalog_lost_response"] > 0) == (table_format is TableFormat.ICEBERG)
    assert outcome.queries >= sized(0, 100)
