"""Fixtures for tests of `chronik cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.cluster.local_cluster import ConsecutivePorts, LocalCluster, kill_nodes


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    with ExitStack() as stack:
        ports = [ConsecutivePorts() for _ in range(3)]
        for each in ports:
            stack.callback(each.release)
        cluster = LocalCluster(tmp_path / "a cluster", *(each.first for each in ports))
        stack.callback(kill_nodes, cluster.directory)
        yield cluster
