"""Two tiers of tests: `make test` runs all, `make quick` (`pytest --quick`) those that are quick.

A quick test starts no process and talks to nobody but itself: sockets on loopback and files are its own affair. A test
is quick unless it says otherwise: it asks for a fixture that is named here, or stands in a folder that is, or has one
of two marks: `xdist_group`, by which it shares processes with others, or `slow`. So a new test need not be listed
anywhere; and if it should have said otherwise, `--quick` fails it and tells so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

FIXTURES = frozenset(
    {"chronik_broker", "chronik_topic", "chronik_broker_factory", "chronik_cluster_factory", "spark", "pytester"}
)
"""Whoever asks for one of them gets a process."""

MARKS = ("slow", "xdist_group")

FOLDERS = (
    "abuse",
    "bench/pipeline",
    "cli/demo",
    "clients",
    "cluster",
    "faults",
    "folders",
    "levels",
    "pipeline",
    "testing",
)
"""Everything there is about processes, or about tables, whose libraries take seconds to load: their tests are not even
imported."""

CPU_SECONDS_MAX = 2.0
"""For one quick test, on however slow a machine."""

PROCESS_EVENTS = frozenset(
    {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "chronik.testing.fork"}
)
LOOPBACK = ("127.", "::1", "localhost")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that start no processes: see tests/tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: starts a process by itself, or takes seconds: `--quick` leaves it out")
    if config.getoption("quick"):
        config.pluginmanager.register(Quick(), "chronik-quick")


class Quick:
    """What `--quick` does: leaves out what is not quick, and watches what is said to be."""

    def __init__(self) -> None:
        self._offences: list[str] | None = None
        """Of the test that runs, None between tests."""
        sys.addaudithook(self._watch)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path in (HERE / folder for folder in FOLDERS) else None

    @pytest.hookimpl(trylast=True)  # by then a test's marks and fixtures are known
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if is_slow(item)])
        items[:] = [item for item in items if not is_slow(item)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._offences = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        result = yield
        offences = [*(self._offences or ())]
        spent = time.process_time() - began
        if spent > CPU_SECONDS_MAX:
            offences.append(f"took {spent:.1f} s of a processor, more than {CPU_SECONDS_MAX:g}")
        if offences:
            told = ", ".join(offences)
            pytest.fail(f"{item.name} is not quick: it {told}. Mark it slow (tests/tiers.py).", pytrace=False)
        return result

    def pytest_runtest_teardown(self) -> None:
        self._offences = None

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by Python for much of what it does, in all threads: it must cost nothing and raise nothing."""
        if self._offences is None:
            return
        if event in PROCESS_EVENTS:
            self._offences.append(f"started a process ({event})")
        elif event == "socket.connect" and is_elsewhere(arguments[1]):
            self._offences.append(f"connected to {arguments[1]!r}")


def is_slow(item: pytest.Item) -> bool:
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return not FIXTURES.isdisjoint(fixtures) or any(map(item.get_closest_marker, MARKS))


def is_elsewhere(address: object) -> bool:
    """Addresses of Unix sockets are no tuples."""
    return isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK)
