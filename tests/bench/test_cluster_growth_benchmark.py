from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cluster import cores, growth, image
from bench.cluster.__main__ import main


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
