"""`make abuse`: run every attack against a node and a cluster, and measure its effect on a probe.

    make abuse SEED=1 ATTACKS=idle-connections,endless-frame
    python -m tests.abuse.run --report docs/internals/abuse.md

The exit code is 1 if an attack exceeds its budget, a node is not healthy afterwards, or an acknowledged record is lost.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.abuse import attack_stage
from tests.abuse.attack import Attack
from tests.abuse.budget import exceeds_only_latency
from tests.abuse.catalogue import ATTACKS
from tests.abuse.report import ReportRow, format_cells, format_flood_cells, format_report

ALL: Final = "all"
RUNS_MAX: Final = 3

HEADLINE: Final = """# Hostile input

`make abuse` attacks a node and a cluster of three nodes. Every attack runs against newly started processes. A probe in
a process of its own produces one record of 100 bytes with acks=1 every 50 ms, and another client pings every node every
20 ms with a cheap request, which shows how long the event loop was blocked. Both latencies exclude the time in which
the node's event loop or the client waited for a CPU core, as counted by the kernel. The raw latencies are in
parentheses, followed by the probe's raw p99 in the two seconds before the attack. Memory is the peak growth of the
largest node. Request recording, which test brokers use and which takes a sixth of the event loop's time, is disabled.

When a listener with TLS or SASL is attacked, the attacker uses one address and the probe another, on the same listener.
The probe keeps its connections open, and opens a new one every 100 ms: connection, TLS, login and the first response.

A flood runs in a process of its own and repeats expensive requests on many connections, from one address
(127.0.1.1) or 120. The probe connects from 127.0.0.1, produces with acks=all, and fetches the latest record every
50 ms. In floods of the HTTP port, the probe also logs in, sends one request every 200 ms, and holds a `/stream`.
Budgets of a flood: p99 250 ms and maximum 1 s for each kind of honest request, 200 MB of memory above idle on every
node, no rejected honest request, no interrupted stream, and in a cluster no new Raft term and no fenced broker.

Budgets of the other attacks: event loop blocked for 100 ms, memory 100 MB + 3 × the largest request, probe p99 250 ms,
new connections p99 250 ms, 64 kB of log.
Afterwards, the same process must respond without errors in its log, and every acknowledged record of the probe must be
readable. An attack that only exceeds latency budgets is measured up to three times.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    rows = []
    for row in measure_all(parsed.attacks, parsed.against, parsed.seed, few=parsed.few, looks=parsed.looks):
        print_line("  ".join(format_flood_cells(row) if row.figures.honest else format_cells(row)))
        for overrun in row.overruns:
            print_line(f"    {overrun}")
        rows.append(row)
    lines = list(format_report(rows, parsed.seed))
    print_line("\n" + lines[0])
    if parsed.report is not None:
        parsed.report.write_text(HEADLINE + "\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return 1 if any(row.overruns for row in rows) else 0


def measure_all(
    attacks: Sequence[Attack], against: Sequence[str], seed: int, *, few: bool = False, looks: int = RUNS_MAX
) -> Iterator[ReportRow]:
    for attack in attacks:
        for kind in attack.targets:
            if kind in against:
                yield measure(attack, kind, seed, few=few, looks=looks)


def measure(attack: Attack, kind: str, seed: int, *, few: bool = False, looks: int = RUNS_MAX) -> ReportRow:
    for look in range(1, looks + 1):
        row = ReportRow(attack, kind, attack_stage.run_attack(attack, kind, seed, few=few), look)
        if not row.overruns or not exceeds_only_latency(row.figures, attack.budget):
            break
    return row


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests.abuse.run", description="Attack a node and a cluster, and measure the effects."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--attacks", type=_attacks, default=ALL, help="comma-separated names or patterns such as flood-*"
    )
    parser.add_argument("--against", type=lambda text: text.split(","), default="node,cluster")
    parser.add_argument(
        "--looks",
        type=int,
        default=RUNS_MAX,
        help="maximum number of measurements of an attack that only exceeds latency budgets",
    )
    parser.add_argument("--few", action="store_true", help="use the small counts of the quick tests")
    parser.add_argument("--report", type=Path, default=None, metavar="FILE", help="write a report in Markdown")
    return parser


def _attacks(text: str) -> list[Attack]:
    patterns = ["*"] if text == ALL else text.split(",")
    if unknown := [each for each in patterns if not fnmatch.filter(ATTACKS, each)]:
        raise argparse.ArgumentTypeError(f"unknown attacks {', '.join(unknown)}; available: {', '.join(ATTACKS)}")
    names = dict.fromkeys(name for each in patterns for name in fnmatch.filter(ATTACKS, each))
    return [ATTACKS[name] for name in names]


def print_line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
