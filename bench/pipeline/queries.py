"""How long an answer in SQL takes: by a Spark that must be started, by one that stays, and within a session.

The topic's records have landed but for the last ones, which the broker alone has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.cluster.figures import Figure
from bench.pipeline.plan import Plan, Stopwatch, fill, millions
from chronik.bench.errors import BenchFailed
from chronik.pipeline.landing.running import run
from chronik.pipeline.query.sql import query
from chronik.pipeline.spark.runtime import session

TAIL_RECORDS: Final = 100_000
SECONDS_MAX: Final = 300.0
STATEMENTS: Final = {
    "count": "SELECT count(*) FROM `{topic}`",
    "aggregate": "SELECT _partition, count(*), max(_offset), max(_timestamp) FROM `{topic}` GROUP BY _partition",
    "values": "SELECT substr(CAST(_value AS STRING), 8, 1), count(*) FROM `{topic}` GROUP BY 1 ORDER BY 1",
}


def measure_queries(plan: Plan) -> list[Figure]:
    topic = plan.topic(plan.records, "queried")
    tables = plan.folder / "queried-tables"
    shutil.rmtree(tables, ignore_errors=True)
    run(plan.bootstrap, str(tables), [topic], once=True)
    fill(plan.bootstrap, topic, TAIL_RECORDS)
    try:
        return [*_commands(plan, topic, tables), *_in_a_session(plan, topic, tables)]
    finally:
        shutil.rmtree(tables, ignore_errors=True)


def _commands(plan: Plan, topic: str, tables: Path) -> list[Figure]:
    """The command as a user runs it, from its start to its end."""
    statement = STATEMENTS["aggregate"].format(topic=topic)
    cold, first, warm = [], [], []
    for _ in range(plan.rounds):
        cold.append(_command(plan, tables, statement, "--no-server"))
        _chronik(plan, "server", "stop")
        first.append(_command(plan, tables, statement))
        _command(plan, tables, statement)
        warm.append(_command(plan, tables, statement))
    _chronik(plan, "server", "stop")
    what = f"sql over {millions(plan.records)} rows and a tail of {TAIL_RECORDS:,}"
    return [
        Figure(f"{what}: cold, no server, s", cold),
        Figure(f"{what}: the first, which starts a server, s", first),
        Figure(f"{what}: warm, s", warm),
    ]


def _command(plan: Plan, tables: Path, statement: str, *options: str) -> float:
    words = ["sql", statement, "-b", plan.bootstrap, "--table-root", str(tables), "--format", "csv", *options]
    with Stopwatch() as watch:
        answer = _chronik(plan, *words)
    counted = sum(int(line.split(",")[1]) for line in answer.splitlines()[1:])
    if counted != plan.records + TAIL_RECORDS:
        raise BenchFailed(f"{counted:,} rows were seen, not {plan.records + TAIL_RECORDS:,}")
    return watch.seconds


def _chronik(plan: Plan, *words: str) -> str:
    """With a Spark server of its own, beside whatever the user has."""
    command = [str(Path(sys.executable).with_name("chronik")), "pipeline", *words]
    environment = os.environ | {"XDG_CACHE_HOME": str(plan.folder.resolve() / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, env=environment)
    if done.returncode != 0:
        raise BenchFailed(f"chronik pipeline {words[0]}: {done.stderr.strip()}")
    return done.stdout


def _in_a_session(plan: Plan, topic: str, tables: Path) -> list[Figure]:
    """As in a notebook."""
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
