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
from tests.chaos.harness import ChaosOutcome
from tests.chaos.network import namespaces_unavailable_reason
from tests.chaos.report import RecoveryTimes, count_node_responses, format_recovery_table, recovery_times_by_kind
from tests.chaos.run import EXIT_IMPOSSIBLE, filter_possible_faults, parser, print_line, run_seed

SECONDS_PER_STEP = 20.0
"""More than a fault, its end, a pause and the wait for in-sync replicas take."""


class SeedSummary(NamedTuple):
    """The summary of one run, without its history."""

    faults: int
    acknowledged: int
    answers: int
    took: Mapping[str, RecoveryTimes]
    findings: Sequence[Finding]

    @classmethod
    def of(cls, outcome: ChaosOutcome) -> SeedSummary:
        evidence = Evidence(outcome.events)
        return cls(
            outcome.steps,
            len(evidence.acknowledged),
            count_node_responses(evidence),
            recovery_times_by_kind(evidence),
            list(outcome.findings),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    made.prog = "tests.chaos.seeds"
    made.add_argument("--seeds", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 3, 4, 5])
    made.set_defaults(steps=40)
    parsed = made.parse_args(arguments)
    no_network = namespaces_unavailable_reason()
    kinds = filter_possible_faults(parsed.faults, no_network)
    if not kinds:
        return EXIT_IMPOSSIBLE
    parsed.seconds = SECONDS_PER_STEP * parsed.steps
    tallies = {}
    for seed in parsed.seeds:
        tallies[seed] = SeedSummary.of(run_seed(parsed, kinds, seed, has_network=no_network is None))
    print_line("")
    for line in format_summary(tallies):
        print_line(line)
    return 1 if any(tally.findings for tally in tallies.values()) else 0


def format_summary(tallies: Mapping[int, SeedSummary]) -> Iterator[str]:
    for seed, tally in tallies.items():
        yield f"seed {seed}: {_counts([tally])}"
    yield f"all: {_counts(list(tallies.values()))}"
    yield ""
    yield from format_recovery_table(_merge_times(tally.took for tally in tallies.values()))


def _counts(tallies: Sequence[SeedSummary]) -> str:
    faults, found = sum(each.faults for each in tallies), sum(len(each.findings) for each in tallies)
    acknowledged, answered = sum(each.acknowledged for each in tallies), sum(each.answers for each in tallies)
    return f"{faults} faults, {acknowledged:,} acknowledged, {answered:,} responses of single nodes, {found} findings"


def _merge_times(each: Iterator[Mapping[str, RecoveryTimes]]) -> dict[str, RecoveryTimes]:
    found: dict[str, RecoveryTimes] = {}
    for taken in each:
        for kind, (went_on, back, count) in taken.items():
            before = found.get(kind, RecoveryTimes([], [], 0))
            found[kind] = RecoveryTimes(
                before.progress_seconds + went_on, before.recovery_seconds + back, before.faults + count
            )
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.exit(main())
