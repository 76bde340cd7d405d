"""`python -m bench` (`make bench`): Chronik beside the floor, printed as Markdown and kept as build/bench.json.

Exit code 0 also when a target is missed, for figures depend on the machine: such lines are marked.
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
    parser = argparse.ArgumentParser(prog="python -m bench", description="Chronik beside a bare server, in one run.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--megabytes", type=int, default=1000, metavar="N", help="written per measurement")
    parser.add_argument("--trips", type=int, default=2000, metavar="N", help="single records per round")
    parser.add_argument("--topics", type=int, default=1000, metavar="N")
    parser.add_argument("--starts", type=int, default=10, metavar="N")
    parser.add_argument("--idle-seconds", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="for data and bench.json")
    arguments = parser.parse_args(argv)
    written = arguments.megabytes * MEGABYTE
    plan = Plan(arguments.rounds, written, arguments.trips, arguments.topics, 5 * arguments.topics)
    try:
        _run(plan, arguments.folder, arguments.starts, arguments.idle_seconds)
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _run(plan: Plan, folder: Path, starts: int, idle_seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    _say(f"{starts} starts, then {idle_seconds:g} s of idling")
    idle = measure_idle(folder, starts, idle_seconds)
    figures = Figures()
    for number in range(plan.rounds):
        _say(f"round {number + 1} of {plan.rounds}")
        run_round(plan, number, folder, figures)
    _say("topics and metadata")
    run_once(plan, folder, figures)
    met = targets(figures, idle)
    kept = json.dumps(as_json(figures, idle, met, load_before), indent=2)
    (folder / "bench.json").write_text(kept + "\n", encoding="utf-8")
    print(markdown(figures, idle, met, load_before))


def _say(progress: str) -> None:
    print(f"== {progress}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
