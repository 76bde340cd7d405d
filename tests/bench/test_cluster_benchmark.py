from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cluster import cores, growth, image
from bench.cluster.__main__ import main
from bench.cluster.figures import Figure, build_table
from chronik.bench.report import MISSED_LABEL, Spread


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
    medians = [figure["median"] for figure in report["figures"]]
    assert len(medians) == 3
    assert max(medians) > 0  # on a busy machine, no command may complete within one of the periods


def run_benchmark(tmp_path: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    assert main(["--folder", str(tmp_path), "--rounds", "1", *arguments]) == 0
    report = json.loads((tmp_path / "bench-cluster.json").read_text())
    assert not list(tmp_path.glob("cluster-*"))
    return {figure["what"]: figure for figure in report["figures"]}


def test_image_benchmark_times_broker_join_and_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "SIZES", ((5, 150), (6, 10)))
    figures = run_benchmark(tmp_path, "--only", "image")
    for where in ("image of 150 partitions on 5 brokers", "image of 10 partitions on 6 brokers"):
        for what in ("a broker joins, ms", "a broker goes offline, ms", "a broker comes back, ms", "snapshot, MB"):
            assert figures[f"{where}: {what}"]["least"] > 0


@pytest.mark.slow
def test_growth_benchmark_reports_costs_by_nodes_and_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "ADDED_NODES", 1)
    monkeypatch.setattr(growth, "JOIN_PERIOD_SECONDS", 0.1)
    monkeypatch.setattr(growth, "SETTLED_SECONDS", 0.1)
    arguments = ("--nodes", "4", "--partitions", "120", "--idle-seconds", "0.5", "--only", "growth")
    figures = run_benchmark(tmp_path, *arguments)
    assert all(what.startswith("4 nodes, 120 partitions: ") for what in figures)
    by_metric = {what.partition(": ")[2]: figure for what, figure in figures.items()}
    assert len(by_metric["idle CPU of another node, % of a core"]["rounds"]) == 3
    assert by_metric["memory of a node, MB"]["median"] > 10
    assert by_metric["metadata of a topic of 100, p50, ms"]["median"] > 0
    assert by_metric["add a node, until it is ready, s"]["median"] > 0
    assert by_metric["kill -9 of the controller, until others lead its partitions, s"]["median"] > 0.1
    assert len(by_metric["CPU of the controller to add a node, ms"]["rounds"]) == 1


@pytest.mark.slow
def test_cores_benchmark_compares_one_node_with_two(tmp_path: Path) -> None:
    figures = run_benchmark(tmp_path, "--megabytes", "6", "--only", "cores")
    for load in (cores.LARGE, cores.SMALL, cores.READ):
        one, two = (figures[f"{load}, 100 B: {setup}, records/s"]["median"] for setup in cores.NODE_COUNTS)
        assert figures[f"{load}, 100 B: two nodes / one node"]["median"] == pytest.approx(two / one)
        assert all(
            figures[f"{load}, 100 B: {setup}, CPU of nodes, s per million"]["median"] > 0 for setup in cores.NODE_COUNTS
        )
