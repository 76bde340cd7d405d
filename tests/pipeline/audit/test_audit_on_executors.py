"""Audit tasks on other machines: directories that are missing there are reported, and not mistaken for lost data."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path

import pytest

from chronik.pipeline.audit import AuditInputError, AuditReport, audit
from chronik.pipeline.spark.tasks import Item, Result, TaskRunner, run_locally
from chronik.testing.plugin import BrokerFactory
from tests.pipeline.audit.test_damaged_tables import BrokerWithTables


@pytest.fixture
def site(chronik_broker_factory: BrokerFactory, tmp_path: Path) -> BrokerWithTables:
    return BrokerWithTables(chronik_broker_factory(), tmp_path / "tables")


def audited(site: BrokerWithTables, tasks: TaskRunner) -> AuditReport:
    """Audit with paths relative to the current directory."""
    with chdir(Path(site.root).parent):
        directory = os.path.relpath(site.broker.data_dir)
        return audit([directory], bootstrap=site.broker.bootstrap, table_root="tables", tasks=tasks)


class RemoteTaskRunner:
    """A task runner with another working directory, which may change files first as if on another machine."""

    def __init__(self, directory: Path, before: Callable[[], object] = lambda: None) -> None:
        self._directory, self._before = directory, before
        self.calls = 0

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        self.calls += 1
        self._before()
        with chdir(self._directory):
            return run_locally(function, items)


def test_relative_paths_work_from_another_working_directory(
    site: BrokerWithTables, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tasks = RemoteTaskRunner(tmp_path_factory.mktemp("work"))
    report = audited(site, tasks)
    assert report.is_clean, report.to_text()
    assert (report.tables, report.rows) == (2, 40)
    assert tasks.calls > 0


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, r"is not a node's data directory"),
        (b'{"node_id":7}', r"is a different data directory than the one of node \d+"),
    ],
)
def test_data_directory_missing_on_executor_is_an_error(
    site: BrokerWithTables, tmp_path: Path, found: bytes | None, message: str
) -> None:
    """The same path is often another node's data directory on another machine."""
    identity = site.broker.data_dir / "node.json"

    def replace_identity() -> None:
        identity.unlink()
        if found is not None:
            identity.write_bytes(found)

    with pytest.raises(AuditInputError, match=rf"^cannot audit on executor \S+: {site.broker.data_dir} .*{message}"):
        audited(site, RemoteTaskRunner(tmp_path, replace_identity))


def test_table_root_missing_on_executor_is_an_error(site: BrokerWithTables, tmp_path: Path) -> None:
    with pytest.raises(AuditInputError, match=rf"cannot audit on executor \S+: table root {site.root} does not exist"):
        audited(site, RemoteTaskRunner(tmp_path, lambda: Path(site.root).rename(f"{site.root} elsewhere")))
