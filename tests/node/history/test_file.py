"""The history of a node in its data directory: restarts and unusable files."""

from __future__ import annotations

import errno
import math
from pathlib import Path

import pytest

from chronik.history.metrics import Scope
from chronik.history.series import RESOLUTIONS, Reading
from chronik.history.snapshot import take_snapshot
from chronik.history.store import HistoryQuery, HistoryStore
from chronik.node.data_directory import HISTORY_FILE
from chronik.node.history.file import HistoryFile
from tests import run_size
from tests.api.authorizing_node import AuthorizingNode
from tests.files.simulated_files import SimulatedFileSystem

NODE = ((),)
NOW_S = 1_700_000_000.0


def memory_values(node: AuthorizingNode) -> list[float]:
    """Return the known values of the last hour."""
    latest = node.services.clock.now_ms() // 10_000
    query = HistoryQuery(Scope.NODE, ("memory",), NODE, None, None, RESOLUTIONS[0].step_s, latest - 360, 361)
    answer = node.query_history(query)
    return [value for series in answer.series for value in series.decode() if value == value]


def test_history_survives_a_restart(tmp_path: Path) -> None:
    node = AuthorizingNode(tmp_path, "127.0.0.1:0")
    node.sample_history()
    before = memory_values(node)
    node.close()
    assert (tmp_path / HISTORY_FILE).stat().st_mode & 0o077 == 0
    node = AuthorizingNode(tmp_path, "127.0.0.1:0")
    try:
        assert before
        assert memory_values(node)[: len(before)] == before
    finally:
        node.close()


@pytest.mark.parametrize("damage", [b"", b"damaged", b"\0" * (17 << 20)], ids=["empty", "damaged", "too large"])
def test_unusable_file_starts_an_empty_history(tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / HISTORY_FILE).write_bytes(damage)
    node = AuthorizingNode(tmp_path, "127.0.0.1:0")
    try:
        assert memory_values(node) == []
        assert "history: reading the file failed" in caplog.text
        node.sample_history()
        assert len(memory_values(node)) == 1
    finally:
        node.close()


def store_with(lag: float) -> HistoryStore:
    store = HistoryStore()
    for _ in store.tables[Scope.GROUP].record(NOW_S, NOW_S, 10, {("billing",): Reading((lag,))}):
        pass
    return store


def latest_lag(store: HistoryStore) -> float | None:
    (value,) = store.tables[Scope.GROUP].read(("billing",), "group_lag", RESOLUTIONS[0], int(NOW_S) // 10 - 1, 1)
    return None if math.isnan(value) else value


@pytest.mark.parametrize("seed", range(run_size.sized(20, 1000)))
def test_power_failure_leaves_the_old_or_new_history_or_an_empty_one(seed: int) -> None:
    files = SimulatedFileSystem()
    for lag in (1.0, 2.0):
        HistoryFile(files).save(take_snapshot(store_with(lag)))
    assert latest_lag(HistoryFile(files.kill()).load()) == 2.0
    found = HistoryFile(files.crash(seed)).load()
    assert latest_lag(found) in (None, 1.0, 2.0)
    HistoryFile(files).save(take_snapshot(found))


def test_failed_write_is_logged_once_and_keeps_the_previous_file(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFileSystem()
    file = HistoryFile(files)
    file.save(take_snapshot(store_with(1.0)))
    files.fail_at(files.events, errno.EIO)
    for _ in range(3):
        file.save(take_snapshot(store_with(2.0)))
    assert caplog.text.count("history: writing the file failed") == 1
