"""`python -m bench` (`make bench`): Chronik compared with a minimal server. Writes build/bench.json.

The exit code is 0 even if a target is missed, because the numbers depend on the machine; missed targets are marked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from bench.idle import measure_idle
from bench.loads import Figures, Plan, run_once, run_round
from bench.servers import ROOT
from bench.tables import as_json, markdown, targets
from chronik.bench.measures import MEGABYTE
from chronik.errors import ChronikError


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
    arguments = parser.parse_args(argv)
    bytes_written = arguments.megabytes * MEGABYTE
    plan = Plan(arguments.rounds, bytes_written, arguments.trips, arguments.topics, 5 * arguments.topics)
    try:
        _run(plan, arguments.folder, arguments.starts, arguments.idle_seconds)
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _run(plan: Plan, folder: Path, starts: int, idle_seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    _print_progress(f"{starts} starts, then idle for {idle_seconds:g} s")
    idle = measure_idle(folder, starts, idle_seconds)
    figures = Figures()
    for number in range(plan.rounds):
        _print_progress(f"round {number + 1} of {plan.rounds}")
        run_round(plan, number, folder, figures)
    _print_progress("topics and metadata")
    run_once(plan, folder, figures)
    target_results = targets(figures, idle)
    json_text = json.dumps(as_json(figures, idle, target_results, load_before), indent=2)
    (folder / "bench.json").write_text(json_text + "\n", encoding="utf-8")
    print(markdown(figures, idle, target_results, load_before))


def _print_progress(progress: str) -> None:
    print(f"== {progress}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
