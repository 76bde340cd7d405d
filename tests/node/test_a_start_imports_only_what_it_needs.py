"""Brokers are started for a single test of a user's: what they import is most of the time that takes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

NOT_NEEDED = (
    *("importlib.metadata", "tomllib", "pyspark", "pyarrow", "numpy", "h11"),
    *("chronik.replication", "chronik.client", "chronik.configs.kept_keys", "chronik.configs.group_keys"),
)

SCRIPT = """
import sys
import chronik.cli.main
import chronik.cli.start
import chronik.node.run
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_a_standalone_broker_imports_nothing_that_it_does_not_use() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, *NOT_NEEDED], check=True, capture_output=True, text=True
    ).stdout.split()
    assert found == []
