"""`chronik pipeline repair`: landing continues after a table was rolled back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.pipeline.tables.commit_plan import PartitionRange
from tests.pipeline.table_fixtures import expected_offsets
from tests.pipeline.tables.iceberg.iceberg_tables import append, load_iceberg, open_iceberg_table, read_positions

FIRST, SECOND = PartitionRange(0, 0, 10), PartitionRange(0, 10, 15)


@pytest.fixture
def rolled_back(tmp_path: Path) -> Path:
    """Return the root of a table whose second commit was rolled back."""
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    first = table.snapshot().version
    append(table, SECOND)
    load_iceberg(table).manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    return tmp_path


def repair(root: Path, *arguments: str) -> int:
    return main(["pipeline", "repair", "orders", "--table-root", str(root), *arguments])


def test_removed_records_land_again(rolled_back: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert repair(rolled_back, "--removed-records", "land-again") == 0
    assert capsys.readouterr().out == "orders: landing continues at 0: 10\n"
    table = open_iceberg_table(rolled_back)
    append(table, SECOND)
    assert read_positions(table.files()) == expected_offsets(FIRST, SECOND)


def test_removed_records_are_skipped(rolled_back: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert repair(rolled_back, "--removed-records", "skip", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"table": "orders", "next_offsets": {"0": 15}}
    table = open_iceberg_table(rolled_back)
    append(table, PartitionRange(0, 15, 16))
    assert read_positions(table.files()) == expected_offsets(FIRST, PartitionRange(0, 15, 16))


def test_table_that_was_not_rolled_back_is_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    before = table.snapshot().version
    assert repair(tmp_path, "--removed-records", "skip") == 0
    assert "landing continues at 0: 10" in capsys.readouterr().out
    assert table.snapshot().version == before


def test_repair_requires_a_choice(rolled_back: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        repair(rolled_back)
    assert "--removed-records" in capsys.readouterr().err
