"""Tasks may run on other machines, and in other folders: what they cannot see is told, and never taken for lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path

import pytest

from chronik.pipeline.audit import CannotLook, Report, audit
from chronik.pipeline.spark.tasks import Item, Result, Tasks, in_this_process
from chronik.testing.plugin import BrokerFactory
from tests.pipeline.audit.test_rows_are_compared_past_damaged_tables import Site


@pytest.fixture
def site(chronik_broker_factory: BrokerFactory, tmp_path: Path) -> Site:
    return Site(chronik_broker_factory(), tmp_path / "tables")


def audited(site: Site, tasks: Tasks) -> Report:
    """With paths that are relative to where the audit was called."""
    with chdir(Path(site.root).parent):
        folder = os.path.relpath(site.broker.data_dir)
        return audit([folder], bootstrap=site.broker.bootstrap, table_root="tables", tasks=tasks)


class Elsewhere:
    """Tasks in another folder, on a machine that another one may look like."""

    def __init__(self, folder: Path, before: Callable[[], object] = lambda: None) -> None:
        self._folder, self._before = folder, before
        self.calls = 0

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        self.calls += 1
        self._before()
        with chdir(self._folder):
            return in_this_process(function, items)


def test_relative_paths_lead_to_the_same_place_wherever_tasks_run(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tasks = Elsewhere(tmp_path_factory.mktemp("work"))
    report = audited(site, tasks)
    assert report.is_clean, report.text()
    assert (report.tables, report.rows) == (2, 40)
    assert tasks.calls > 0


@pytest.mark.parametrize(
    ("found", "told"),
    [(None, r"is not a node's data folder"), (b'{"node_id":7}', r"not the data folder of node \d+, but another")],
)
def test_a_data_folder_that_tasks_do_not_see_is_not_a_log_that_is_lost(
    site: Site, tmp_path: Path, found: bytes | None, told: str
) -> None:
    """The same path is often another node's folder on another machine."""
    identity = site.broker.data_dir / "node.json"

    def another_machine() -> None:
        identity.unlink()
        if found is not None:
            identity.write_bytes(found)

    with pytest.raises(CannotLook, match=rf"^on \S+, where tasks of the audit run: {site.broker.data_dir} .*{told}"):
        audited(site, Elsewhere(tmp_path, another_machine))


def test_tables_that_tasks_do_not_see_are_not_lost_rows(site: Site, tmp_path: Path) -> None:
    with pytest.raises(CannotLook, match=rf"where tasks of the audit run: there is no folder {site.root}"):
        audited(site, Elsewhere(tmp_path, lambda: Path(site.root).rename(f"{site.root} elsewhere")))
