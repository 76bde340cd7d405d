"""`make abuse`: every attack against a real node and a real cluster, each beside a probe, and what it cost the probe.

    make abuse SEED=1 ATTACKS=idle-connections,endless-frame
    python -m tests.abuse.run --report docs/abuse.md

Ends with 1 when a row is over its budget, a node is unwell afterwards, or anything acknowledged is lost.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.abuse import stage
from tests.abuse.attack import Attack
from tests.abuse.budget import is_only_slow
from tests.abuse.catalogue import ATTACKS
from tests.abuse.report import Row, cells, flood_cells, report

ALL: Final = "all"
LOOKS_MAX: Final = 3

HEADLINE: Final = """# Hostile input

`make abuse` attacks a node and a cluster of three, real processes, freshly started for each row. Beside each attack a
probe, in a process of its own, produces one record of 100 bytes with acks=1 every 50 ms; another client asks each node
every 20 ms for what costs it nothing, which tells how long its event loop was held. Both times are judged less the
time in which the node's loop or the client was ready to run and another process had the core (the kernel counts it);
the raw times are in brackets, and behind them the probe's raw p99 in the two seconds before the attack. Memory is the
growth of the largest node at its peak. Nodes are as users have them: the list of requests that brokers of tests keep,
a sixth of the loop's time where small requests come at full speed, is switched off.

Where a listener with TLS or logins is attacked, the attacker comes from one address and the probe from another, through
the same listener: with what it is connected by already, and every 100 ms anew. Such an arrival is the connection, TLS,
the login and the first answer.

A flood runs in a process of its own and repeats expensive requests on many connections, from one address
(127.0.1.1) or 120. The probe connects from 127.0.0.1, produces with acks=all, and fetches the latest record every
50 ms. In the floods of the HTTP port, the probe also logs in, sends one request every 200 ms, and holds a `/stream`.
Budgets of a flood: each kind of honest request p99 250 ms and at most 1 s, 200 MB of memory above idle on every node,
no honest request rejected, no stream cut, and in a cluster no new Raft term and no fenced broker.

Budgets of the other attacks: loop held 100 ms, memory 100 MB + 3 × the largest request, probe p99 250 ms, arrivals p99
250 ms, 64 kB of log.
Afterwards the same process must answer, without an error in its log, and every record that the probe was told is
written must be read back. A row that is only slow is measured again, up to three times.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    rows = []
    for row in measured(parsed.attacks, parsed.against, parsed.seed, few=parsed.few, looks=parsed.looks):
        say("  ".join(flood_cells(row) if row.figures.honest else cells(row)))
        for overrun in row.overruns:
            say(f"    {overrun}")
        rows.append(row)
    told = list(report(rows, parsed.seed))
    say("\n" + told[0])
    if parsed.report is not None:
        parsed.report.write_text(HEADLINE + "\n" + "\n".join(told) + "\n", encoding="utf-8")
    return 1 if any(row.overruns for row in rows) else 0


def measured(
    attacks: Sequence[Attack], against: Sequence[str], seed: int, *, few: bool = False, looks: int = LOOKS_MAX
) -> Iterator[Row]:
    for attack in attacks:
        for kind in attack.against:
            if kind in against:
                yield row_of(attack, kind, seed, few=few, looks=looks)


def row_of(attack: Attack, kind: str, seed: int, *, few: bool = False, looks: int = LOOKS_MAX) -> Row:
    for look in range(1, looks + 1):
        row = Row(attack, kind, stage.run(attack, kind, seed, few=few), look)
        if not row.overruns or not is_only_slow(row.figures, attack.budget):
            break
    return row


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.abuse.run", description="Attacks a node and a cluster.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attacks", type=_attacks, default=ALL, help="names or patterns (flood-*), comma-separated")
    parser.add_argument("--against", type=lambda text: text.split(","), default="node,cluster")
    parser.add_argument("--looks", type=int, default=LOOKS_MAX, help="measurements of a row that is only slow")
    parser.add_argument("--few", action="store_true", help="small counts, as in the tests")
    parser.add_argument("--report", type=Path, default=None, metavar="FILE", help="a table in Markdown")
    return parser


def _attacks(text: str) -> list[Attack]:
    patterns = ["*"] if text == ALL else text.split(",")
    if unknown := [each for each in patterns if not fnmatch.filter(ATTACKS, each)]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(ATTACKS)}")
    names = dict.fromkeys(name for each in patterns for name in fnmatch.filter(ATTACKS, each))
    return [ATTACKS[name] for name in names]


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
