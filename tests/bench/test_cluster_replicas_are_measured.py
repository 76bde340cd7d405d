from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cluster import idle, replication, service_gap
from bench.cluster.__main__ import main

pytestmark = pytest.mark.slow

KILLED = ("controller", "another node")


def measured(tmp_path: Path, *words: str) -> dict[str, dict[str, Any]]:
    assert main(["--folder", str(tmp_path), "--rounds", "1", *words]) == 0
    kept = json.loads((tmp_path / "bench-cluster.json").read_text())
    assert not list(tmp_path.glob("cluster-*"))
    return {figure["what"]: figure for figure in kept["figures"]}


def test_a_killed_leader_leaves_a_gap_for_both_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_gap, "PARTITIONS_BESIDE", (6,))
    monkeypatch.setattr(service_gap, "AFTER_SECONDS", 0.5)
    figures = measured(tmp_path, "--only", "gap")
    assert list(figures) == [
        f"kill -9 of a leader, {killed}, 6 partitions: without {what}, s"
        for killed in KILLED
        for what in ("an ack", "a record consumed")
    ]
    assert all(figure["median"] > 0.1 for figure in figures.values())  # nobody takes over without a sign of death
    assert all(figure["wanted"] == "below 3" for figure in figures.values())


def test_copies_are_compared_with_one_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "FLUSHES", ("os",))
    monkeypatch.setattr(replication, "RECORDS", 20)
    figures = measured(tmp_path, "--megabytes", "2", "--only", "replication")
    for size in replication.SIZES:
        one = figures[f"{replication.ONE}, {size} B, os, records/s"]["median"]
        three = figures[f"{replication.THREE}, {size} B, os, records/s"]["median"]
        ratio = figures[f"{replication.THREE}, of {replication.ONE}, {size} B, os"]
        assert ratio["median"] == pytest.approx(three / one)
        assert ratio["wanted"] == "at least 0.5"
    p50, p99 = (figures[f"single records, {replication.THREE}, os, {p}, ms"]["median"] for p in ("p50", "p99"))
    assert 0 < p50 <= p99


def test_a_node_that_was_away_catches_up(tmp_path: Path) -> None:
    rate, seconds = measured(tmp_path, "--megabytes", "5", "--only", "catch-up").values()
    assert rate["what"].endswith("MB/s")
    assert rate["median"] > 0
    assert seconds["what"] == "from its start until it has 5 MB and is in sync, s"
    assert seconds["median"] > 0


def test_idle_partitions_cost_each_node_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "PARTITIONS", 30)
    cpu, resident = measured(tmp_path, "--idle-seconds", "1", "--only", "idle-partitions").values()
    assert "30 partitions" in cpu["what"]
    assert len(cpu["rounds"]) == 3
    assert cpu["wanted"] == "below 5"
    assert resident["median"] > 10
