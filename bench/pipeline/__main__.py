"""`python -m bench.pipeline` (`make bench`): printed as Markdown, and kept as build/bench-pipeline.json.

Exit code 0 also when a target is missed, for figures depend on the machine: such lines are marked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from bench.cluster.figures import Figure, figures_table
from bench.pipeline.plan import PARTITIONS, TEMPLATE, Plan
from bench.servers import CHRONIK_GROUP, ROOT, Server
from bench.tables import machine
from chronik.bench.measures import MILLION
from chronik.errors import ChronikError

SECTIONS: Final = {
    "landing": "bench.pipeline.landing:measure_landing",
    "growth": "bench.pipeline.growth:measure_growth",
    "sql": "bench.pipeline.queries:measure_queries",
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description="Topics into tables, and queries.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--records", type=int, default=5 * MILLION, metavar="N", help="of the comparison and queries")
    parser.add_argument(
        "--sizes",
        type=lambda text: tuple(map(int, text.split(","))),
        default=(MILLION, 5 * MILLION, 20 * MILLION),
        metavar="N,N",
        help="of topics, in records, whose landing is compared",
    )
    parser.add_argument("--long", action="store_true", help="sizes are compared in all rounds, not in one")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="for data and the JSON")
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # workers are to start as they do for users
    load_before = os.getloadavg()[0]
    with Server(CHRONIK_GROUP, folder) as server:
        growth_rounds = arguments.rounds if arguments.long else 1
        plan = Plan(folder, server.bootstrap, arguments.rounds, arguments.records, arguments.sizes, growth_rounds)
        figures, complete = _run(plan, arguments.only or list(SECTIONS))
    _tell(folder, figures, load_before)
    return 0 if complete else 1


def _run(plan: Plan, sections: list[str]) -> tuple[list[Figure], bool]:
    """The figures, and whether all sections could be measured; one that could not leaves the others theirs."""
    figures: list[Figure] = []
    complete = True
    for number, section in enumerate(sections):
        print(f"== {section} ({number + 1} of {len(sections)})", file=sys.stderr, flush=True)
        try:
            figures += _section(section)(plan)
        except ChronikError as error:
            print(f"bench: {section}: {error}", file=sys.stderr)
            complete = False
    return figures, complete


def _section(name: str) -> Callable[[Plan], list[Figure]]:
    module, _, function = SECTIONS[name].partition(":")
    measure: Callable[[Plan], list[Figure]] = getattr(import_module(module), function)
    return measure


def _tell(folder: Path, figures: list[Figure], load_before: float) -> None:
    kept = {
        "machine": machine(),
        "load_before": load_before,
        "figures": [figure.as_json() for figure in figures],
    }
    (folder / "bench-pipeline.json").write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    print(f"Topics of {PARTITIONS} partitions, records of {len(TEMPLATE)} B; the broker, Spark and all else are on")
    print(f"{machine()}; load before: {load_before:.2f}.\n")
    print(figures_table(figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
