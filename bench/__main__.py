"""`python -m bench` (`make bench`): Chronik compared with a minimal server. Writes build/bench.json.

The exit code is 0 even if a target is missed, because the numbers depend on the machine; missed targets are marked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Final

from bench.report_tables import build_tables, evaluate_targets, to_json
from bench.results import add_keep_option, describe_run, format_report
from bench.servers import ROOT
from bench.workloads import WorkloadPlan, WorkloadResults, measure_idle, run_round, run_single_measurements
from chronik.bench.statistics import MEGABYTE
from chronik.errors import ChronikError
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "single-node"
"""The name of the page and of the JSON file."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare Chronik with a minimal server.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--megabytes", type=int, default=1000, metavar="N", help="megabytes written per measurement")
    parser.add_argument("--trips", type=int, default=2000, metavar="N", help="round trips per round")
    parser.add_argument("--topics", type=int, default=1000, metavar="N")
    parser.add_argument("--starts", type=int, default=10, metavar="N")
    parser.add_argument("--idle-seconds", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data and JSON"
    )
    add_keep_option(parser)
    arguments = parser.parse_args(argv)
    bytes_written = arguments.megabytes * MEGABYTE
    plan = WorkloadPlan(arguments.rounds, bytes_written, arguments.trips, arguments.topics, 5 * arguments.topics)
    try:
        _run(plan, arguments.folder, arguments.starts, arguments.idle_seconds, keep=arguments.keep)
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _run(plan: WorkloadPlan, folder: Path, starts: int, idle_seconds: float, *, keep: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    _print_progress(f"{starts} starts, then idle for {idle_seconds:g} s")
    idle = measure_idle(folder, starts, idle_seconds)
    figures = WorkloadResults()
    for number in range(plan.rounds):
        _print_progress(f"round {number + 1} of {plan.rounds}")
        run_round(plan, number, folder, figures)
    _print_progress("topics and metadata")
    run_single_measurements(plan, folder, figures)
    target_results = evaluate_targets(figures, idle)
    tables = build_tables(figures, idle, target_results)
    run = describe_run(f"Medians of {plan.rounds} interleaved rounds.", load_before)
    json_text = json.dumps(to_json(figures, idle, target_results, run), indent=2)
    (folder / "bench.json").write_text(json_text + "\n", encoding="utf-8")
    print(format_report(run, tables))
    if keep:
        keep_tables(NAME, run, tables)


def _print_progress(progress: str) -> None:
    print(f"== {progress}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
