"""Quick and slow tests: `make test` runs all, `make quick` (`pytest --quick`) only the quick ones.

A quick test starts no process and uses no network beyond loopback. A test is quick unless it uses a fixture of
SLOW_FIXTURES, is in a directory of SLOW_DIRECTORIES, or has one of two marks: `xdist_group`, if it shares processes
with other tests, or `slow`. If a quick test violates this, `--quick` fails it with a message.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS_DIRECTORY = Path(__file__).parent

SLOW_FIXTURES = frozenset(
    {"chronik_broker", "chronik_topic", "chronik_broker_factory", "chronik_cluster_factory", "spark", "pytester"}
)
"""Fixtures that start a process."""

SLOW_MARKS = ("slow", "xdist_group")

SLOW_DIRECTORIES = (
    "abuse",
    "bench/pipeline",
    "clients",
    "cluster",
    "data_directories",
    "faults",
    "feature_levels",
    "pipeline",
    "testing",
)
"""Directories whose tests all start processes, or use table libraries that take seconds to import. `--quick` does not
even import them."""

CPU_SECONDS_MAX = 2.0
"""CPU time of one quick test, even on a slow machine."""

PROCESS_EVENTS = frozenset(
    {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "chronik.testing.fork"}
)
LOOPBACK = ("127.", "::1", "localhost")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run only tests that start no processes: see tests/quick.py")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: starts a process or takes seconds; excluded by `--quick`")
    if config.getoption("quick"):
        config.pluginmanager.register(Quick(), "chronik-quick")


class Quick:
    """The plugin behind `--quick`: deselects slow tests, and fails quick tests that violate the rules."""

    def __init__(self) -> None:
        self._violations: list[str] | None = None
        """Violations of the running test; None between tests."""
        sys.addaudithook(self._audit)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path in (TESTS_DIRECTORY / folder for folder in SLOW_DIRECTORIES) else None

    @pytest.hookimpl(trylast=True)  # marks and fixtures of the tests are known then
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if is_slow(item)])
        items[:] = [item for item in items if not is_slow(item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._violations = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        result = yield
        violations = [*(self._violations or ())]
        cpu_seconds = time.process_time() - began
        if cpu_seconds > CPU_SECONDS_MAX:
            violations.append(f"used {cpu_seconds:.1f} s of CPU time, more than {CPU_SECONDS_MAX:g}")
        if violations:
            text = ", ".join(violations)
            pytest.fail(f"{item.name} is not quick: it {text}. Mark it slow (tests/quick.py).", pytrace=False)
        return result

    def pytest_runtest_teardown(self) -> None:
        self._violations = None

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record violations. Python calls audit hooks in all threads and very often: it must be cheap and not raise."""
        if self._violations is None:
            return
        if event in PROCESS_EVENTS:
            self._violations.append(f"started a process ({event})")
        elif event == "socket.connect" and is_external(arguments[1]):
            self._violations.append(f"connected to {arguments[1]!r}")


def is_slow(item: pytest.Item) -> bool:
    """Return whether the test uses a fixture or mark of slow tests."""
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return not SLOW_FIXTURES.isdisjoint(fixtures) or any(map(item.get_closest_marker, SLOW_MARKS))


def is_external(address: object) -> bool:
    """Return whether an address is not on loopback; addresses of Unix sockets are not tuples."""
    return isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK)
