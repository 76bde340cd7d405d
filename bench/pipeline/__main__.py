"""`python -m bench.pipeline` (`make bench-pipeline`): prints Markdown and writes build/bench-pipeline.json.

The exit code is 0 even if a target is missed, because the numbers depend on the machine; missed targets are marked.
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

from bench.cluster.figures import Figure, build_table
from bench.pipeline.plan import PARTITIONS, TEMPLATE, PipelineBenchmarkPlan
from bench.results import add_keep_option, describe_run, format_report
from bench.servers import CHRONIK_GROUP, ROOT, BenchmarkServer
from chronik.bench.statistics import MILLION
from chronik.errors import ChronikError
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "pipeline"
"""The name of the page and of the JSON file."""
SECTIONS: Final = {
    "landing": ("Landing", "bench.pipeline.landing:measure_landing"),
    "json": ("Landing of JSON", "bench.pipeline.landing:measure_json"),
    "growth": ("Growth", "bench.pipeline.growth:measure_growth"),
    "rounds": ("Duration of rounds", "bench.pipeline.rounds:measure_rounds"),
    "sql": ("SQL", "bench.pipeline.queries:measure_queries"),
    "maintenance": ("Table maintenance", "bench.pipeline.maintenance:measure_maintenance"),
    "typed": ("Landing of Avro and Protobuf", "bench.pipeline.typed:measure_typed"),
}
"""The title and the function of each section."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description="Measure landing and SQL queries.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--records", type=int, default=5 * MILLION, metavar="N", help="for the comparison and queries")
    parser.add_argument(
        "--sizes",
        type=lambda text: tuple(map(int, text.split(","))),
        default=(MILLION, 5 * MILLION, 20 * MILLION),
        metavar="N,N",
        help="topic sizes in records for the growth comparison",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="FACTOR",
        help="fraction of the topics, landed rows, partitions and columns in the section 'rounds'",
    )
    parser.add_argument("--long", action="store_true", help="compare topic sizes in all rounds, not in one")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data and JSON"
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    add_keep_option(parser)
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # so that workers start as they do for users
    load_before = os.getloadavg()[0]
    with BenchmarkServer(CHRONIK_GROUP, folder, with_http=True) as server:  # the schema registry needs HTTP
        growth_rounds = arguments.rounds if arguments.long else 1
        plan = PipelineBenchmarkPlan(
            folder,
            server.bootstrap,
            arguments.rounds,
            arguments.records,
            arguments.sizes,
            growth_rounds,
            arguments.scale,
        )
        sections = arguments.only or list(SECTIONS)
        figures = _run(plan, sections)
    _report(folder, figures, load_before, keep=arguments.keep)
    return 0 if len(figures) == len(sections) else 1


def _run(plan: PipelineBenchmarkPlan, sections: list[str]) -> dict[str, list[Figure]]:
    """Return the figures of the sections that succeeded. A failed section does not affect the others."""
    figures: dict[str, list[Figure]] = {}
    for number, section in enumerate(sections):
        print(f"== {section} ({number + 1} of {len(sections)})", file=sys.stderr, flush=True)
        try:
            figures[section] = _load_section(section)(plan)
        except ChronikError as error:
            print(f"bench: {section}: {error}", file=sys.stderr)
    return figures


def _load_section(name: str) -> Callable[[PipelineBenchmarkPlan], list[Figure]]:
    module, _, function = SECTIONS[name][1].partition(":")
    measure: Callable[[PipelineBenchmarkPlan], list[Figure]] = getattr(import_module(module), function)
    return measure


def _report(folder: Path, figures: dict[str, list[Figure]], load_before: float, *, keep: bool) -> None:
    settings = f"Topics of {PARTITIONS} partitions, records of {len(TEMPLATE)} B. Broker and Spark share the machine."
    run = describe_run(settings, load_before)
    report_json = {
        "machine": run.machine,
        "load_before": load_before,
        "figures": [figure.to_json() for each in figures.values() for figure in each],
    }
    (folder / "bench-pipeline.json").write_text(json.dumps(report_json, indent=2) + "\n", encoding="utf-8")
    tables = [build_table(SECTIONS[section][0], each) for section, each in figures.items()]
    print(format_report(run, tables))
    if keep:
        keep_tables(NAME, run, tables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
