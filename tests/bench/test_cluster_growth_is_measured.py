from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cluster import cores, growth, image
from bench.cluster.__main__ import main


def measured(tmp_path: Path, *words: str) -> dict[str, dict[str, Any]]:
    assert main(["--folder", str(tmp_path), "--rounds", "1", *words]) == 0
    kept = json.loads((tmp_path / "bench-cluster.json").read_text())
    assert not list(tmp_path.glob("cluster-*"))
    return {figure["what"]: figure for figure in kept["figures"]}


def test_a_broker_that_comes_and_one_that_goes_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "SIZES", ((5, 150), (6, 10)))
    figures = measured(tmp_path, "--only", "image")
    for where in ("image of 150 partitions on 5 brokers", "image of 10 partitions on 6 brokers"):
        for what in ("a broker more, ms", "a broker goes, ms", "it comes back, ms", "its snapshot, MB"):
            assert figures[f"{where}: {what}"]["least"] > 0


@pytest.mark.slow
def test_what_growth_costs_is_told_by_nodes_and_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "NEWCOMERS", 1)
    monkeypatch.setattr(growth, "JOINED_SECONDS", 0.1)
    monkeypatch.setattr(growth, "SETTLED_SECONDS", 0.1)
    words = ("--nodes", "4", "--partitions", "120", "--idle-seconds", "0.5", "--only", "growth")
    figures = measured(tmp_path, *words)
    assert all(what.startswith("4 nodes, 120 partitions: ") for what in figures)
    told = {what.partition(": ")[2]: figure for what, figure in figures.items()}
    assert len(told["idle CPU of another node, % of a core"]["rounds"]) == 3
    assert told["memory of a node, MB"]["median"] > 10
    assert told["metadata of a topic of 100, p50, ms"]["median"] > 0
    assert told["a node more, until it is ready, s"]["median"] > 0
    assert told["kill -9 of the controller, until others lead its partitions, s"]["median"] > 0.1
    assert len(told["CPU of the controller for a node more, ms"]["rounds"]) == 1


@pytest.mark.slow
def test_one_node_is_compared_with_two(tmp_path: Path) -> None:
    figures = measured(tmp_path, "--megabytes", "6", "--only", "cores")
    for load in (cores.LARGE, cores.SMALL, cores.READ):
        one, two = (figures[f"{load}, 100 B: {way}, records/s"]["median"] for way in cores.WAYS)
        assert figures[f"{load}, 100 B: two nodes, of one"]["median"] == pytest.approx(two / one)
        assert all(figures[f"{load}, 100 B: {way}, CPU of nodes, s/M"]["median"] > 0 for way in cores.WAYS)
