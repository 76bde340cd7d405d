"""Fixtures for tests of `chronik cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.cluster.local import Local, Neighbours, end_all


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    with ExitStack() as stack:
        ports = [Neighbours() for _ in range(3)]
        for each in ports:
            stack.callback(each.release)
        cluster = Local(tmp_path / "a cluster", *(each.first for each in ports))
        stack.callback(end_all, cluster.folder)
        yield cluster
