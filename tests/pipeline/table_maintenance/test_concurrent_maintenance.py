"""Concurrent landing, maintenance by several processes, and kills at failpoints: each record is in the table once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from chronik.pipeline.table_maintenance.execution import MaintenanceExecutor, MaintenanceOutcome
from chronik.pipeline.table_maintenance.merges import merge_table_files
from chronik.pipeline.table_maintenance.policy import (
    HOUR_MS,
    MaintenanceAction,
    MaintenanceSettings,
    PlannedMaintenance,
    plan_maintenance,
)
from chronik.pipeline.tables.commit_plan import PartitionRange
from tests.pipeline.table_fixtures import expected_offsets, open_test_table, read_offsets, write_task_output
from tests.run_size import SEED, sized

LANDERS = 2
MAINTAINERS = 2
ROUNDS = sized(30, 400)
"""Number of rounds of each lander."""
RECORDS = 5
KILL_PROBABILITY = 0.15
SETTINGS = MaintenanceSettings(retention_ms=HOUR_MS)


class SimulatedKillError(BaseException):
    """Ends a maintenance at a failpoint, as if its process was killed."""


@pytest.mark.parametrize("seed", range(SEED, SEED + sized(1, 20)))
def test_rows_are_kept_once_under_concurrent_maintenance_and_kills(tmp_path: Path, seed: int) -> None:
    open_test_table(tmp_path)
    landed = threading.Event()
    outcomes: Counter[str] = Counter()

    def land(partition: int) -> None:
        table = open_test_table(tmp_path)
        for start in range(0, ROUNDS * RECORDS, RECORDS):
            table.commit([write_task_output(tmp_path, PartitionRange(partition, start, start + RECORDS))])

    def maintain(number: int) -> None:
        choices = random.Random(f"{seed}/{number}")
        kills = iter(lambda: choices.random() < KILL_PROBABILITY, None)
        decisions = chain([True], kills)  # the first failpoint always kills
        is_last_pass = False
        while not is_last_pass:
            is_last_pass = landed.is_set()
            try:
                outcomes.update(maintain_until_done(tmp_path, number, choices, decisions))
            except SimulatedKillError:
                outcomes["killed"] += 1
                is_last_pass = False

    with ThreadPoolExecutor(LANDERS + MAINTAINERS) as pool:
        maintenance = [pool.submit(maintain, number) for number in range(MAINTAINERS)]
        for landing in [pool.submit(land, partition) for partition in range(LANDERS)]:
            landing.result()
        landed.set()
        for each in maintenance:
            each.result()
    snapshot = open_test_table(tmp_path).snapshot()
    spans = [PartitionRange(partition, 0, ROUNDS * RECORDS) for partition in range(LANDERS)]
    assert read_offsets(snapshot) == expected_offsets(*spans)
    assert snapshot.next_offsets == dict.fromkeys(range(LANDERS), ROUNDS * RECORDS)
    assert len(snapshot.file_uris) < 20
    assert outcomes[MaintenanceOutcome.DONE] > 0
    assert outcomes["killed"] > 0
    print(dict(outcomes))


def maintain_until_done(directory: Path, number: int, choices: random.Random, decisions: Iterator[bool]) -> list[str]:
    """Execute what a process without lease plans, sometimes a vacuum, until nothing is planned."""

    def hit_failpoint(name: str) -> None:
        if next(decisions):
            raise SimulatedKillError(name)

    table = open_test_table(directory)
    executor = MaintenanceExecutor(
        f"process:{number}", lambda merges: [merge_table_files(each) for each in merges], 0, hit_failpoint
    )
    done: list[str] = []
    if choices.random() < 0.1:
        vacuum = PlannedMaintenance(MaintenanceAction.VACUUM, 1.0, 0)
        done.append(executor.execute(table, vacuum, SETTINGS).outcome)
    now_ms = time.time_ns() // 1_000_000
    while plans := plan_maintenance(table.statistics(), SETTINGS, maintainer=executor.maintainer, now_ms=now_ms):
        done.append(executor.execute(table, plans[0], SETTINGS).outcome)
    return done
