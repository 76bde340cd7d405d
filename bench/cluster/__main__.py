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

from bench.cluster.figures import ClusterBenchmarkPlan, Figure, format_figures
from bench.report_tables import describe_machine
from bench.servers import ROOT
from chronik.errors import ChronikError

SECTIONS: Final = {
    "up": "bench.cluster.availability:measure_up",
    "leaderless": "bench.cluster.availability:measure_leaderless",
    "gap": "bench.cluster.service_gap:measure_service_gap",
    "replication": "bench.cluster.replication:measure_replication",
    "catch-up": "bench.cluster.catch_up:measure_catch_up",
    "metadata": "bench.cluster.metadata:measure_metadata",
    "visibility": "bench.cluster.visibility:measure_visibility",
    "commands": "bench.cluster.commands:measure_commands",
    "commits": "bench.cluster.commits:measure_commits",
    "single-commits": "bench.cluster.commits:measure_single_commits",
    "snapshots": "bench.cluster.snapshots:measure_snapshots",
    "idle": "bench.cluster.idle:measure_idle",
    "idle-partitions": "bench.cluster.idle:measure_idle_partitions",
    "image": "bench.cluster.image:measure_image",
    "growth": "bench.cluster.growth:measure_growth",
    "cores": "bench.cluster.cores:measure_cores",
}

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
    return 0 if _run(plan, arguments.only or list(SECTIONS)) else 1


def _run(plan: ClusterBenchmarkPlan, sections: list[str]) -> bool:
    """Run the sections and return whether all succeeded. A failed section does not affect the others."""
    plan.directory.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    figures: list[Figure] = []
    failed: list[str] = []
    with _bytecode_cache(plan.directory), _errors_only():
        for number, section in enumerate(sections):
            print(f"== {section} ({number + 1} of {len(sections)})", file=sys.stderr, flush=True)
            try:
                figures += _load_section(section)(plan)
            except ChronikError as error:
                print(f"bench: {section}: {error}", file=sys.stderr)
                failed.append(section)
    _report(plan, figures, load_before)
    return not failed


def _report(plan: ClusterBenchmarkPlan, figures: list[Figure], load_before: float) -> None:
    report_json = {
        "machine": describe_machine(),
        "load_before": load_before,
        "figures": [figure.to_json() for figure in figures],
    }
    (plan.directory / "bench-cluster.json").write_text(json.dumps(report_json, indent=2) + "\n", encoding="utf-8")
    print(f"Nodes and their clients on {describe_machine()}; load before: {load_before:.2f}.\n")
    print(format_figures(figures))


def _load_section(name: str) -> Callable[[ClusterBenchmarkPlan], list[Figure]]:
    module, _, function = SECTIONS[name].partition(":")
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
