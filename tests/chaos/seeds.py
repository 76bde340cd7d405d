"""`make chaos-seeds`: one chaos run per seed, and a summary of all.

    make chaos-seeds SEEDS=1,2,3,4,5 STEPS=40

Takes the options of `tests.chaos.run`; each seed gets enough time for its faults. Exits with 1 after a finding.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.chaos.evidence import Evidence
from tests.chaos.findings import Finding
from tests.chaos.harness import Outcome
from tests.chaos.namespaces import why_none
from tests.chaos.report import Took, answers, table_of_kinds, took
from tests.chaos.run import EXIT_IMPOSSIBLE, parser, possible, run_seed, say

SECONDS_PER_STEP = 20.0
"""More than a fault, its end, a pause and the wait for in-sync replicas take."""


class Tally(NamedTuple):
    """The summary of one run, without its history."""

    faults: int
    acknowledged: int
    answers: int
    took: Mapping[str, Took]
    findings: Sequence[Finding]

    @classmethod
    def of(cls, outcome: Outcome) -> Tally:
        evidence = Evidence(outcome.events)
        return cls(outcome.steps, len(evidence.acknowledged), answers(evidence), took(evidence), list(outcome.findings))


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    made.prog = "tests.chaos.seeds"
    made.add_argument("--seeds", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 3, 4, 5])
    made.set_defaults(steps=40)
    parsed = made.parse_args(arguments)
    no_network = why_none()
    kinds = possible(parsed.faults, no_network)
    if not kinds:
        return EXIT_IMPOSSIBLE
    parsed.seconds = SECONDS_PER_STEP * parsed.steps
    tallies = {}
    for seed in parsed.seeds:
        tallies[seed] = Tally.of(run_seed(parsed, kinds, seed, has_network=no_network is None))
    say("")
    for line in summary(tallies):
        say(line)
    return 1 if any(tally.findings for tally in tallies.values()) else 0


def summary(tallies: Mapping[int, Tally]) -> Iterator[str]:
    for seed, tally in tallies.items():
        yield f"seed {seed}: {_counts([tally])}"
    yield f"all: {_counts(list(tallies.values()))}"
    yield ""
    yield from table_of_kinds(_merge_times(tally.took for tally in tallies.values()))


def _counts(tallies: Sequence[Tally]) -> str:
    faults, found = sum(each.faults for each in tallies), sum(len(each.findings) for each in tallies)
    acknowledged, answered = sum(each.acknowledged for each in tallies), sum(each.answers for each in tallies)
    return f"{faults} faults, {acknowledged:,} acknowledged, {answered:,} responses of single nodes, {found} findings"


def _merge_times(each: Iterator[Mapping[str, Took]]) -> dict[str, Took]:
    found: dict[str, Took] = {}
    for taken in each:
        for kind, (went_on, back, count) in taken.items():
            before = found.get(kind, Took([], [], 0))
            found[kind] = Took(before.went_on_s + went_on, before.back_s + back, before.faults + count)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
