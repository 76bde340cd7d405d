"""`make chaos`: inject faults into a cluster of three nodes and report what its clients observed.

    make chaos SECONDS=60 SEED=1 FAULTS=kill,pause WORKLOAD=queue
    .venv/bin/python -m tests.chaos.run --judge FOLDER      # check a saved history again

Exits with 1 after a finding and keeps the history, the nodes' logs and their data.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.checkers import judge
from tests.chaos.harness import JOURNAL, ChaosOptions, ChaosOutcome, planned_steps, run_chaos
from tests.chaos.history import FaultBegan, events_of_type, read_journal
from tests.chaos.network import namespaces_unavailable_reason
from tests.chaos.report import render_report
from tests.chaos.schedules import FAULT_KINDS
from tests.chaos.workloads import WORKLOADS

ALL = "all"
EXIT_IMPOSSIBLE = 2
REPORT = "report.txt"


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parser().parse_args(arguments)
    if parsed.judge is not None:
        return _judge_again(parsed.judge)
    no_network = namespaces_unavailable_reason()
    kinds = filter_possible_faults(parsed.faults, no_network)
    if not kinds:
        return EXIT_IMPOSSIBLE
    outcome = run_seed(parsed, kinds, parsed.seed, has_network=no_network is None)
    return 1 if outcome.findings else 0


def run_seed(parsed: argparse.Namespace, kinds: tuple[str, ...], seed: int, *, has_network: bool) -> ChaosOutcome:
    """Run one seed, print its schedule and report, and keep the directory if there are findings."""
    folder = Path(tempfile.mkdtemp(prefix="chronik-chaos-"))
    options = ChaosOptions(
        folder=folder,
        seconds=parsed.seconds,
        steps_max=parsed.steps,
        seed=seed,
        faults=kinds,
        has_network=has_network,
        workloads=tuple(WORKLOADS[name] for name in parsed.workload),
        rate=parsed.rate,
        replication=parsed.replication,
        min_insync=parsed.min_insync if parsed.min_insync is not None else min(2, parsed.replication),
    )
    print_line(f"seed {options.seed}: {', '.join(options.faults)} for {options.seconds:g} s, in {folder}")
    for step in planned_steps(options):
        print_line(str(step))
    outcome = run_chaos(options, print_line)
    report_text = "\n".join(render_report(outcome))
    (folder / REPORT).write_text(report_text + "\n", encoding="utf-8")
    print_line(f"\n{report_text}")
    _leave(folder, outcome, _command(parsed, seed))
    return outcome


def filter_possible_faults(kinds: Sequence[str], no_network: str | None) -> tuple[str, ...]:
    """Return the faults that are possible here, or none if an explicitly requested one is not."""
    if no_network is None:
        return tuple(kinds)
    left_out = [kind for kind in kinds if FAULT_KINDS[kind].needs_network]
    print_line(f"no network namespaces: {no_network}. Nodes are isolated by proxies instead.")
    if left_out and set(kinds) != set(FAULT_KINDS):
        print_line(f"rejected: {', '.join(left_out)}: these faults require network namespaces")
        return ()
    print_line(f"skipped: {', '.join(left_out)}")
    return tuple(kind for kind in kinds if kind not in left_out)


def _leave(folder: Path, outcome: ChaosOutcome, command: str) -> None:
    if not outcome.findings:
        shutil.rmtree(folder, ignore_errors=True)
        return
    print_line(f"\nkept: {folder} (report, history, logs and data of the nodes)")
    print_line(f"check it again:  .venv/bin/python -m tests.chaos.run --judge {folder}")
    print_line(f"run it again:    {command}")


def _judge_again(folder: Path) -> int:
    events = read_journal(folder / JOURNAL)
    outcome = ChaosOutcome(events, judge(events), steps=len(list(events_of_type(events, FaultBegan))))
    for line in render_report(outcome):
        print_line(line)
    return 1 if outcome.findings else 0


def _command(parsed: argparse.Namespace, seed: int) -> str:
    command = f"make chaos SECONDS={parsed.seconds:g} SEED={seed} RATE={parsed.rate:g}"
    command += f" STEPS={parsed.steps}" if parsed.steps else ""
    command += f" FAULTS={','.join(parsed.faults)} WORKLOAD={','.join(parsed.workload)}"
    return command if parsed.replication == 3 else f"{command} REPLICATION={parsed.replication}"


def parser() -> argparse.ArgumentParser:
    argument_parser = argparse.ArgumentParser(
        prog="tests.chaos.run", description="Inject faults into a cluster of three nodes."
    )
    argument_parser.add_argument("--seconds", type=float, default=60.0, help="duration of the fault injection")
    argument_parser.add_argument("--steps", type=int, default=None, help="maximum number of faults")
    argument_parser.add_argument("--seed", type=int, default=1, help="seed of the fault schedule")
    argument_parser.add_argument(
        "--faults", type=_some_of(FAULT_KINDS), default=ALL, help=f"{', '.join(FAULT_KINDS)}, or {ALL}"
    )
    argument_parser.add_argument(
        "--workload", type=_some_of(WORKLOADS), default=ALL, help=f"{', '.join(WORKLOADS)}, or {ALL}"
    )
    argument_parser.add_argument("--rate", type=float, default=120.0, help="records per second of each workload")
    argument_parser.add_argument("--replication", type=int, default=3, help="replication factor of each topic")
    argument_parser.add_argument(
        "--min-insync", type=int, default=None, help="min.insync.replicas (default 2; 1 with one replica)"
    )
    argument_parser.add_argument(
        "--judge", type=Path, default=None, metavar="FOLDER", help="check a saved history again"
    )
    return argument_parser


def _some_of(known: Mapping[str, Any]) -> Any:
    def parse(text: str) -> list[str]:
        chosen = list(known) if text == ALL else text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected {', '.join(known)} or {ALL}")
        return chosen

    return parse


def print_line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
