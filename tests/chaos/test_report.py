"""The report of a run: counts, the longest unavailability, faults and findings; and a saved history checked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.checkers import judge
from tests.chaos.evidence import Evidence
from tests.chaos.harness import JOURNAL, ChaosOutcome
from tests.chaos.history import (
    Acknowledged,
    AnyEvent,
    Consumed,
    FaultBegan,
    FaultEnded,
    FinalRead,
    Journal,
    Place,
    Promised,
    RecordId,
    Sent,
    Unknown,
)
from tests.chaos.report import longest_gaps, render_report
from tests.chaos.run import main
from tests.chaos.seeds import SeedSummary, format_summary


def build_history(*, loses: bool) -> list[AnyEvent]:
    """Build a history of ten seconds with a record per second; partition 0 of two is silent from 2 to 8."""
    events: list[AnyEvent] = [Promised(topic="t", partitions=2)]
    log: dict[Place, list[RecordId]] = {Place("t", 0): [], Place("t", 1): []}
    for second in range(11):
        record, place = RecordId("p", second), Place("t", second % 2)
        events.append(Sent(at=second, id=record, topic="t"))
        if place.partition == 0 and 2 < second < 8:
            events.append(Unknown(at=second, id=record, error="_MSG_TIMED_OUT"))
            continue
        events.append(Acknowledged(at=second, id=record, place=place, offset=len(log[place])))
        log[place].append(record)
    events.append(FaultBegan(at=2.5, number=1, kind="kill", what="node 1 killed", demands_progress=True))
    events.append(FaultEnded(at=7.5, number=1, progressed_s=1.5))
    for place, records in log.items():
        kept = records[:-1] if loses else records
        events.append(FinalRead(at=20, reader="final", place=place, start=0, end=len(kept)))
        for offset, record in enumerate(kept):
            read = Consumed(at=20, reader="final", group=None, assignment=0, place=place, offset=offset, id=record)
            events.append(read)
    return events


def test_unavailability_is_measured_overall_and_for_worst_partition() -> None:
    gaps = longest_gaps(Evidence(build_history(loses=False)), "t")
    assert (gaps.whole, gaps.worst_partition) == (2, 6)


def test_report_counts_records_faults_and_violations() -> None:
    events = build_history(loses=True)
    lines = render_report(ChaosOutcome(events, judge(events), steps=1))
    assert lines[1].split() == ["t", "11", "9", "2", "0", "0", "0", "2.0", "6.0"]
    assert "faults: 1 (1 kill)" in lines
    assert "every partition had to make progress in 1 of them: it did in 1, after 1.5 s (median), 1.5 s (most)" in lines
    assert "findings: 2" in lines
    assert "  lost: 2" in lines


def test_report_contains_recovery_times() -> None:
    lines = render_report(ChaosOutcome(build_history(loses=False), [], steps=1))
    (row,) = (line for line in lines if line.startswith("kill "))
    assert row.split() == ["kill", "1", "1.5", "1.5", "1.5", "1.5"]


def test_summary_adds_up_seeds() -> None:
    tallies = {
        seed: SeedSummary.of(ChaosOutcome(events := build_history(loses=loses), judge(events), steps=1))
        for seed, loses in ((1, False), (2, True))
    }
    lines = list(format_summary(tallies))
    assert lines[:3] == [
        "seed 1: 1 faults, 9 acknowledged, 0 responses of single nodes, 0 findings",
        "seed 2: 1 faults, 9 acknowledged, 0 responses of single nodes, 2 findings",
        "all: 2 faults, 18 acknowledged, 0 responses of single nodes, 2 findings",
    ]
    (row,) = (line for line in lines if line.startswith("kill "))
    assert row.split() == ["kill", "2", "1.5", "1.5", "1.5", "1.5"]


@pytest.mark.parametrize("loses", [False, True])
def test_saved_history_can_be_rechecked_with_exit_code(
    tmp_path: Path, loses: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(tmp_path / JOURNAL)
    for event in build_history(loses=loses):
        journal.add(event)
    journal.close()
    assert main(["--judge", str(tmp_path)]) == int(loses)
    assert f"findings: {2 * loses}" in capsys.readouterr().out
