"""`python -m bench.cluster` (`make bench-cluster`): prints Markdown and writes build/bench-cluster.json.

The exit code is 0 even if a target is missed, because the numbers depend on the machine; missed targets are marked.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure, build_table
from bench.results import add_keep_option, describe_run, format_report
from bench.servers import ROOT
from chronik.errors import ChronikError
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "cluster"
"""The name of the page and of the JSON file."""
SECTIONS: Final = {
    "up": ("Start", "bench.cluster.availability:measure_up"),
    "leaderless": ("Leader election", "bench.cluster.availability:measure_leaderless"),
    "gap": ("Service gap", "bench.cluster.availability:measure_service_gap"),
    "replication": ("Replication", "bench.cluster.replication:measure_replication"),
    "catch-up": ("Catch-up", "bench.cluster.catch_up:measure_catch_up"),
    "metadata": ("Metadata requests", "bench.cluster.metadata:measure_metadata"),
    "visibility": ("Visibility of new topics", "bench.cluster.visibility:measure_visibility"),
    "commands": ("Metadata commands", "bench.cluster.commands:measure_commands"),
    "commits": ("Offset commits", "bench.cluster.commits:measure_commits"),
    "single-commits": ("Commits of single offsets", "bench.cluster.commits:measure_single_commits"),
    "snapshots": ("Snapshots", "bench.cluster.snapshots:measure_snapshots"),
    "idle": ("Idle cluster", "bench.cluster.idle:measure_idle"),
    "idle-partitions": ("Idle cluster with partitions", "bench.cluster.idle:measure_idle_partitions"),
    "image": ("Metadata image", "bench.cluster.image:measure_image"),
    "growth": ("Growth", "bench.cluster.growth:measure_growth"),
    "cores": ("One node and two", "bench.cluster.cores:measure_cores"),
}
"""The title and the function of each section."""

IDLE_SECONDS: Final = 60.0
IDLE_SECONDS_LONG: Final = 600.0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description="Measure three nodes on this machine.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="SECONDS", help="duration of each load")
    parser.add_argument("--idle-seconds", type=float, metavar="SECONDS", help=f"(default: {IDLE_SECONDS:g})")
    parser.add_argument("--long", action="store_true", help=f"idle for {IDLE_SECONDS_LONG:g} s")
    parser.add_argument("--topics", type=int, default=3000, metavar="N", help="topics for metadata reads")
    parser.add_argument("--offsets", type=int, default=1_000_000, metavar="N", help="committed offsets in snapshots")
    parser.add_argument("--megabytes", type=int, default=300, metavar="N", help="megabytes written per measurement")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data and JSON"
    )
    parser.add_argument("--nodes", type=int, action="append", metavar="N", help="sizes for growth (default: 3, 7, 15)")
    parser.add_argument(
        "--partitions", type=int, action="append", metavar="N", help="for growth (default: 1000, 10000)"
    )
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    add_keep_option(parser)
    arguments = parser.parse_args(argv)
    plan = ClusterBenchmarkPlan(
        directory=arguments.folder.resolve(),
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        idle_seconds=arguments.idle_seconds or (IDLE_SECONDS_LONG if arguments.long else IDLE_SECONDS),
        topics=arguments.topics,
        offsets=arguments.offsets,
        megabytes=arguments.megabytes,
        sizes=tuple(arguments.nodes or ClusterBenchmarkPlan.sizes),
        partitions=tuple(arguments.partitions or ClusterBenchmarkPlan.partitions),
    )
    return 0 if _run(plan, arguments.only or list(SECTIONS), keep=arguments.keep) else 1


def _run(plan: ClusterBenchmarkPlan, sections: list[str], *, keep: bool) -> bool:
    """Run the sections and return whether all succeeded. A failed section does not affect the others."""
    plan.directory.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    figures: dict[str, list[Figure]] = {}
    with _bytecode_cache(plan.directory), _errors_only():
        for number, section in enumerate(sections):
            print(f"== {section} ({number + 1} of {len(sections)})", file=sys.stderr, flush=True)
            try:
                figures[section] = _load_section(section)(plan)
            except ChronikError as error:
                print(f"bench: {section}: {error}", file=sys.stderr)
    _report(plan, figures, load_before, keep=keep)
    return len(figures) == len(sections)


def _report(plan: ClusterBenchmarkPlan, figures: dict[str, list[Figure]], load_before: float, *, keep: bool) -> None:
    run = describe_run("All nodes and clients share the machine.", load_before)
    report_json = {
        "machine": run.machine,
        "load_before": load_before,
        "figures": [figure.to_json() for each in figures.values() for figure in each],
    }
    (plan.directory / "bench-cluster.json").write_text(json.dumps(report_json, indent=2) + "\n", encoding="utf-8")
    tables = [build_table(SECTIONS[section][0], each) for section, each in figures.items()]
    print(format_report(run, tables))
    if keep:
        keep_tables(NAME, run, tables)


def _load_section(name: str) -> Callable[[ClusterBenchmarkPlan], list[Figure]]:
    module, _, function = SECTIONS[name][1].partition(":")
    measure: Callable[[ClusterBenchmarkPlan], list[Figure]] = getattr(import_module(module), function)
    return measure


@contextmanager
def _bytecode_cache(folder: Path) -> Iterator[None]:
    """Cache bytecode like an installed package, so that nodes start as they do for users."""
    before = dict(os.environ)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _errors_only() -> Iterator[None]:
    """Log errors only. Warnings about a stalled event loop are expected under load."""
    logger = logging.getLogger("chronik")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
