"""How the duration of a landing round grows with topics, partitions, columns and rows that have landed before.

Every case runs in a process of its own, with tasks in the driver's process: Spark's share does not depend on the table.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import Final

from bench.cluster.figures import Figure
from bench.pipeline.plan import PipelineBenchmarkPlan
from bench.servers import ROOT
from chronik.bench.errors import BenchmarkError
from chronik.bench.report import rotate_servers
from chronik.bench.statistics import MEGABYTE, MILLION

LANDED_RATIO_MAX: Final = 1.2
"""Maximum duration of a round with 100 M landed rows, compared with an empty table."""

TOPICS_ROUND_SECONDS_MAX: Final = 15.0
IDLE_SECONDS_PER_TOPIC_MAX: Final = 0.001
CASE_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RoundCase:
    """The size of a table, and of the rounds that land in it."""

    name: str
    topics: int = 1
    partitions: int = 1
    columns: int = 5
    landed_rows: int = 0
    """Rows of each topic's table before the first round."""
    rounds: int = 25
    """Measured rounds: more than the commits between two checkpoints of the Delta log."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Medians of the measured rounds of a case, and the peak memory of the driver."""

    round_s: float
    round_cpu_s: float
    """CPU time of the driver's process, which a busy machine does not change."""
    idle_round_s: float
    commit_s: float
    memory_bytes: int


BASE: Final = RoundCase("1 topic, 1 partition, 5 columns, empty table")


def build_cases(scale: float) -> list[RoundCase]:
    """Return the cases with a fraction of the full sizes."""

    def sized(full: int) -> int:
        return max(2, int(full * scale))

    rows, topics, partitions, columns = sized(100 * MILLION), sized(1000), sized(500), max(6, sized(500))
    return [
        BASE,
        replace(BASE, name=f"{rows / MILLION:g} M landed rows", landed_rows=rows),
        replace(BASE, name=f"{topics:,} topics", topics=topics, rounds=3),
        replace(BASE, name=f"{partitions} partitions", partitions=partitions),
        replace(BASE, name=f"{columns} columns", columns=columns),
    ]


def measure_rounds(plan: PipelineBenchmarkPlan) -> list[Figure]:
    cases = {case.name: case for case in build_cases(plan.scale)}
    times: dict[str, list[RoundTimes]] = defaultdict(list)
    for number in range(plan.rounds):
        for name in rotate_servers(list(cases), number):
            times[name].append(_run_case(plan, cases[name]))
    figures: list[Figure] = []
    base = times[BASE.name]
    for name, case in cases.items():
        found = times[name]
        if name != BASE.name:
            ratios = [each.round_s / first.round_s for each, first in zip(found, base, strict=True)]
            limit = LANDED_RATIO_MAX if case.landed_rows else None
            figures.append(Figure(f"{name}: round / round of {BASE.name}", ratios, below=limit))
            ratios = [each.round_cpu_s / first.round_cpu_s for each, first in zip(found, base, strict=True)]
            figures.append(Figure(f"{name}: CPU time of a round / that of {BASE.name}", ratios))
        many = case.topics >= 1000
        figures += [
            Figure(
                f"{name}: round, s", [each.round_s for each in found], below=TOPICS_ROUND_SECONDS_MAX if many else None
            ),
            Figure(
                f"{name}: idle round, ms per topic",
                [1000 * each.idle_round_s / case.topics for each in found],
                below=1000 * IDLE_SECONDS_PER_TOPIC_MAX if many else None,
            ),
            Figure(f"{name}: commits of a round, s", [each.commit_s for each in found]),
            Figure(f"{name}: memory of the driver, MB", [each.memory_bytes / MEGABYTE for each in found]),
        ]
    return figures


def _run_case(plan: PipelineBenchmarkPlan, case: RoundCase) -> RoundTimes:
    """Run a case in a process of its own. Raises BenchmarkError."""
    folder = plan.directory / "tables"
    shutil.rmtree(folder, ignore_errors=True)
    command = [
        *(sys.executable, "-m", "bench.pipeline.round_lander"),
        *(plan.bootstrap, str(folder), json.dumps(asdict(case))),
    ]
    try:
        finished = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=CASE_SECONDS_MAX, check=False
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if finished.returncode:
        raise BenchmarkError(f"{case.name}: {finished.stderr.strip()[-1000:]}")
    return RoundTimes(**json.loads(finished.stdout.splitlines()[-1]))
