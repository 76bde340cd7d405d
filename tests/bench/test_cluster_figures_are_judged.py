from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.cluster.__main__ import main
from bench.cluster.figures import Figure, figures_table
from chronik.bench.rounds import MISSED, Spread


def test_the_median_is_judged() -> None:
    quick = Figure("seconds", [1.0, 9.0, 2.0], below=5)
    assert quick.spread == Spread(2.0, 1.0, 9.0)
    many = Figure("commands/s", [9.0, 11.0, 12.0], at_least=10)
    assert quick.target
    assert quick.target.met
    assert many.target
    assert many.target.met


def test_a_missed_target_is_marked_and_no_target_is_none() -> None:
    table = figures_table([Figure("slow, ms", [7.0], below=5), Figure("told, ms", [7.0])])
    slow, told = table.splitlines()[2:]
    assert slow.split("|")[1:-1][-2:] == [" below 5 ", f" {MISSED} "]
    assert not "".join(told.split("|")[6:]).strip()
    assert Figure("told, ms", [7.0]).target is None


@pytest.mark.slow
def test_figures_are_kept_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--folder", str(tmp_path), "--rounds", "2", "--offsets", "20000", "--only", "snapshots"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    kept = json.loads((tmp_path / "bench-cluster.json").read_text())
    figures = {figure["what"]: figure for figure in kept["figures"]}
    assert all(what in printed for what in figures)
    assert figures["snapshot of 10,000 topics, MB"]["met"]
    held = figures["loop held while 20,000 offsets are snapshotted, ms"]
    assert len(held["rounds"]) == 2
    assert 0 < held["least"] <= held["median"] <= held["most"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] in ([], ["bytecode"])


@pytest.mark.slow
def test_three_nodes_come_up_lose_their_leader_and_go_away(tmp_path: Path) -> None:
    words = ["--folder", str(tmp_path), "--rounds", "1", "--only", "up", "--only", "leaderless"]
    assert main(words) == 0
    kept = json.loads((tmp_path / "bench-cluster.json").read_text())
    up, leaderless = kept["figures"]
    assert up["what"].startswith("cluster up")
    assert up["median"] > 0
    assert leaderless["median"] > 0
    assert not list(tmp_path.glob("cluster-*"))


@pytest.mark.slow
def test_three_stores_agree_on_commands(tmp_path: Path) -> None:
    words = ["--folder", str(tmp_path), "--rounds", "1", "--seconds", "0.5", "--only", "commands"]
    assert main(words) == 0
    kept = json.loads((tmp_path / "bench-cluster.json").read_text())
    assert [figure["median"] > 0 for figure in kept["figures"]] == [True, True, True]
