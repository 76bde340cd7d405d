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

HEADLINE: Final = """# Abuse tests

`make abuse` attacks Chronik with hostile clients and measures the effect on an honest one. Use this page to see which
attacks are tested, which budgets apply, and the latest results.

## Run the tests
`make abuse` runs every attack against one node and against a cluster of three nodes, and writes this page. Every attack
gets newly started processes.

| option | default | description |
|---|---|---|
| `ATTACKS` | all | comma-separated names or patterns, such as `make abuse ATTACKS=idle-connections,flood-*` |
| `SEED` | 1 | seed of the random parts of the attacks |

The exit code is 1 if an attack exceeds its budget, a node is unhealthy after it, or an acknowledged record is lost.
`.venv/bin/python -m tests.abuse.run --help` lists further options.

## Measurements
| figure | meaning |
|---|---|
| loop blocked | The longest time for which a node's event loop was blocked. A client pings every node every 20 ms. |
| probe | Latency of an honest client, which produces a record of 100 bytes with acks=1 every 50 ms. |
| new connections | Time to connect, negotiate TLS, log in and receive the first response, every 100 ms. |
| memory | The peak growth of the node that grew most. |
| log | Log output of the node that logged most. |

Latencies exclude the time in which a process waited for a CPU core. The raw latencies are in parentheses. For the
probe, they are followed by its raw p99 in the two seconds before the attack.

In attacks on TLS and SASL, the attacker and the probe use the same listener from different addresses.

In a flood, a process repeats expensive requests on many connections, from one address or from 120. The probe produces
with acks=all, and fetches the latest record every 50 ms. In floods of the HTTP port, it also logs in, sends one
request every 200 ms, and holds a `/stream` open.

## Budgets
| figure | attacks | floods |
|---|---|---|
| loop blocked | 100 ms | 1 s |
| memory | 100 MB + 3 × the largest request | 200 MB on every node |
| probe p99 | 250 ms | 250 ms for each kind of honest request |
| probe maximum | none | 1 s for each kind of honest request |
| new connections p99 | 250 ms | 250 ms |
| log of a node | 64 kB | 64 kB |
| rejected honest requests, interrupted streams | none allowed | none allowed |
| new Raft terms, fenced brokers | none allowed | none allowed |

After every attack, the same process must respond without errors in its log, and every acknowledged record of the probe
must be readable. An attack that only exceeds latency budgets is measured up to three times.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    rows = []
    for row in measure_all(parsed.attacks, parsed.against, parsed.seed, few=parsed.few, looks=parsed.looks):
        print_line("  ".join(format_flood_cells(row) if row.figures.honest else format_cells(row)))
        for overrun in row.overruns:
            print_line(f"    {overrun}")
        rows.append(row)
    lines = list(format_report(rows, parsed.seed, ATTACKS.values()))
    print_line("\n" + lines[1])
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
