from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.cluster.__main__ import main
from bench.cluster.figures import Figure, build_table
from chronik.bench.rounds import MISSED_LABEL, Spread


def test_figure_target_is_met_by_median() -> None:
    fast = Figure("seconds", [1.0, 9.0, 2.0], below=5)
    assert fast.spread == Spread(2.0, 1.0, 9.0)
    many = Figure("commands/s", [9.0, 11.0, 12.0], at_least=10)
    assert fast.target
    assert fast.target.met
    assert many.target
    assert many.target.met


def test_figures_table_marks_missed_targets_only() -> None:
    slow, untargeted = build_table("Title", [Figure("slow, ms", [7.0], below=5), Figure("untargeted, ms", [7.0])]).rows
    assert slow == ["slow, ms", 7.0, 7.0, 7.0, 1, "below 5", MISSED_LABEL]
    assert untargeted[-2:] == [None, None]
    assert Figure("untargeted, ms", [7.0]).target is None


@pytest.mark.slow
def test_cluster_benchmark_writes_figures_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--folder", str(tmp_path), "--rounds", "2", "--offsets", "20000", "--only", "snapshots"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    report = json.loads((tmp_path / "bench-cluster.json").read_text())
    figures = {figure["what"]: figure for figure in report["figures"]}
    assert all(what in printed for what in figures)
    assert figures["snapshot of 10,000 topics, MB"]["met"]
    stall = figures["event loop stall while 20,000 offsets are snapshotted, ms"]
    assert len(stall["rounds"]) == 2
    assert 0 < stall["least"] <= stall["median"] <= stall["most"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] in ([], ["bytecode"])


@pytest.mark.slow
def test_cluster_benchmark_measures_startup_and_leader_failover(tmp_path: Path) -> None:
    arguments = ["--folder", str(tmp_path), "--rounds", "1", "--only", "up", "--only", "leaderless"]
    assert main(arguments) == 0
    report = json.loads((tmp_path / "bench-cluster.json").read_text())
    up, leaderless = report["figures"]
    assert up["what"].startswith("cluster up")
    assert up["median"] > 0
    assert leaderless["median"] > 0
    assert not list(tmp_path.glob("cluster-*"))


@pytest.mark.slow
def test_cluster_benchmark_measures_metadata_commands(tmp_path: Path) -> None:
    arguments = ["--folder", str(tmp_path), "--rounds", "1", "--seconds", "0.5", "--only", "commands"]
    assert main(arguments) == 0
    report = json.loads((tmp_path / "bench-cluster.json").read_text())
    assert [figure["median"] > 0 for figure in report["figures"]] == [True, True, True]
