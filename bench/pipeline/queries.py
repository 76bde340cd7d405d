"""The latency of SQL queries: with a cold start of Spark, with a running Spark server, and within a session.

All but the last records of the topic have landed; the tail is read from the broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.cluster.figures import Figure
from bench.pipeline.plan import WITHOUT_MAINTENANCE, PipelineBenchmarkPlan, Stopwatch, fill_topic, format_millions
from chronik.bench.errors import BenchmarkError
from chronik.pipeline.landing.runner import run
from chronik.pipeline.query.sql import query
from chronik.pipeline.spark.runtime import session

TAIL_RECORDS: Final = 100_000
SECONDS_MAX: Final = 300.0
STATEMENTS: Final = {
    "count": "SELECT count(*) FROM `{topic}`",
    "aggregate": "SELECT _partition, count(*), max(_offset), max(_timestamp) FROM `{topic}` GROUP BY _partition",
    "values": "SELECT substr(CAST(_value AS STRING), 8, 1), count(*) FROM `{topic}` GROUP BY 1 ORDER BY 1",
}


def measure_queries(plan: PipelineBenchmarkPlan) -> list[Figure]:
    topic = plan.topic(plan.records, "queried")
    tables = plan.directory / "queried-tables"
    shutil.rmtree(tables, ignore_errors=True)
    run(plan.bootstrap, str(tables), [topic], once=True, maintenance=WITHOUT_MAINTENANCE)
    fill_topic(plan.bootstrap, topic, TAIL_RECORDS)
    try:
        return [*_measure_commands(plan, topic, tables), *_measure_session(plan, topic, tables)]
    finally:
        shutil.rmtree(tables, ignore_errors=True)


def _measure_commands(plan: PipelineBenchmarkPlan, topic: str, tables: Path) -> list[Figure]:
    """Measure the `chronik pipeline sql` command from start to exit."""
    statement = STATEMENTS["aggregate"].format(topic=topic)
    cold, first, warm = [], [], []
    for _ in range(plan.rounds):
        cold.append(_time_command(plan, tables, statement, "--no-server"))
        _run_chronik(plan, "server", "stop")
        first.append(_time_command(plan, tables, statement))
        _time_command(plan, tables, statement)
        warm.append(_time_command(plan, tables, statement))
    _run_chronik(plan, "server", "stop")
    what = f"sql over {format_millions(plan.records)} rows and a tail of {TAIL_RECORDS:,}"
    return [
        Figure(f"{what}: cold, no server, s", cold),
        Figure(f"{what}: first, which starts a server, s", first),
        Figure(f"{what}: warm, s", warm),
    ]


def _time_command(plan: PipelineBenchmarkPlan, tables: Path, statement: str, *options: str) -> float:
    command_arguments = [
        "sql",
        statement,
        "-b",
        plan.bootstrap,
        "--table-root",
        str(tables),
        "--format",
        "csv",
        *options,
    ]
    with Stopwatch() as watch:
        output = _run_chronik(plan, *command_arguments)
    counted = sum(int(line.split(",")[1]) for line in output.splitlines()[1:])
    if counted != plan.records + TAIL_RECORDS:
        raise BenchmarkError(f"the query returned {counted:,} rows instead of {plan.records + TAIL_RECORDS:,}")
    return watch.seconds


def _run_chronik(plan: PipelineBenchmarkPlan, *command_arguments: str) -> str:
    """Run `chronik pipeline` with its own Spark server, separate from the user's."""
    command = [str(Path(sys.executable).with_name("chronik")), "pipeline", *command_arguments]
    environment = os.environ | {"XDG_CACHE_HOME": str(plan.directory.resolve() / "cache")}
    completed = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, env=environment)
    if completed.returncode != 0:
        raise BenchmarkError(f"chronik pipeline {command_arguments[0]}: {completed.stderr.strip()}")
    return completed.stdout


def _measure_session(plan: PipelineBenchmarkPlan, topic: str, tables: Path) -> list[Figure]:
    """Measure queries within one session, as in a notebook."""
    figures = []
    with session() as spark:
        for name, template in STATEMENTS.items():
            statement = template.format(topic=topic)
            seconds = []
            for _ in range(1 + plan.rounds):
                with Stopwatch() as watch:
                    query(spark, statement, plan.bootstrap, str(tables), prune=True).collect()
                seconds.append(watch.seconds)
            figures.append(Figure(f"sql in a session, {name}: warm, s", seconds[1:]))
    return figures
