from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cluster import availability, idle, replication
from bench.cluster.__main__ import main

pytestmark = pytest.mark.slow

KILLED = ("controller", "another node")


def run_benchmark(tmp_path: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    assert main(["--folder", str(tmp_path), "--rounds", "1", *arguments]) == 0
    report = json.loads((tmp_path / "bench-cluster.json").read_text())
    assert not list(tmp_path.glob("cluster-*"))
    return {figure["what"]: figure for figure in report["figures"]}


def test_gap_benchmark_measures_producer_and_consumer_after_leader_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "OTHER_PARTITIONS", (6,))
    monkeypatch.setattr(availability, "AFTER_SECONDS", 0.5)
    figures = run_benchmark(tmp_path, "--only", "gap")
    assert list(figures) == [
        f"kill -9 of a leader, {killed}, 6 partitions: without {what}, s"
        for killed in KILLED
        for what in ("an ack", "a record consumed")
    ]
    assert all(figure["median"] > 0.1 for figure in figures.values())  # failover needs a session timeout
    assert all(figure["wanted"] == "below 3" for figure in figures.values())


def test_replication_benchmark_compares_three_replicas_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "FLUSHES", ("os",))
    monkeypatch.setattr(replication, "RECORDS", 20)
    figures = run_benchmark(tmp_path, "--megabytes", "2", "--only", "replication")
    for size in replication.SIZES:
        one = figures[f"{replication.ONE}, {size} B, os, records/s"]["median"]
        three = figures[f"{replication.THREE}, {size} B, os, records/s"]["median"]
        ratio = figures[f"{replication.THREE} / {replication.ONE}, {size} B, os"]
        assert ratio["median"] == pytest.approx(three / one)
        assert ratio["wanted"] == "at least 0.5"
    p50, p99 = (figures[f"single records, {replication.THREE}, os, {p}, ms"]["median"] for p in ("p50", "p99"))
    assert 0 < p50 <= p99


def test_catch_up_benchmark_measures_rate_of_restarted_node(tmp_path: Path) -> None:
    rate, seconds = run_benchmark(tmp_path, "--megabytes", "5", "--only", "catch-up").values()
    assert rate["what"].endswith("MB/s")
    assert rate["median"] > 0
    assert seconds["what"] == "from its start until it has 5 MB and is in sync, s"
    assert seconds["median"] > 0


def test_idle_partitions_benchmark_reports_cpu_and_memory_per_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "PARTITIONS", 30)
    cpu, resident = run_benchmark(tmp_path, "--idle-seconds", "1", "--only", "idle-partitions").values()
    assert "30 partitions" in cpu["what"]
    assert len(cpu["rounds"]) == 3
    assert cpu["wanted"] == "below 5"
    assert resident["median"] > 10
