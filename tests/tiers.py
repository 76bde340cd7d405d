"""Two tiers of tests: `make test` runs all, `make quick` (`pytest --quick`) those that are pure.

A pure test starts no process and talks to nobody outside of its own; it may open sockets on loopback and files in its
folder. All tests are taken for pure but those that ask for a fixture or stand in a place that is named here, so that a
new test need not be listed. With `--quick` a test that starts a process, connects to another machine or takes longer
than a pure one may is failed, with a word on what to do: so what is named here can be wrong, but not for long.
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

PLACES = (
    "abuse",
    "bench/test_acknowledgements_are_timed_one_by_one.py",
    "bench/test_cluster_commits_are_all_answered.py",
    "bench/test_commands_measure_a_real_broker.py",
    "bench/test_gaps_in_service_are_seen.py",
    "chaos/test_acknowledged_records_survive_chaos.py",
    "chaos/test_clients_leave_a_leader_that_is_rejected.py",
    "chaos/test_networks_do_what_faults_ask.py",
    "cli/demo",
    "clients",
    "cluster",
    "faults",
    "folders",
    "levels",
    "testing",
)
"""Folders and files whose tests have processes by other means; they are not even imported."""

CPU_SECONDS_MAX = 5.0
"""For one pure test, on however slow a machine: one that needs more takes its counts from tests/long.py."""

PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"})
LOOPBACK = ("127.", "::1", "localhost")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests without processes: see tests/tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        config.pluginmanager.register(Quick(), "chronik-quick")


class Quick:
    """What `--quick` does: leaves out what is not pure, and watches what is said to be."""

    def __init__(self) -> None:
        self._offences: list[str] | None = None
        """Of the test that runs, None between tests."""
        sys.addaudithook(self._watch)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path.is_relative_to(HERE) and is_listed(collection_path) else None

    @pytest.hookimpl(trylast=True)  # by then a test's marks and fixtures are known
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if FIXTURES.intersection(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._offences = offences = []
        began = time.process_time()
        try:
            result = yield
        finally:
            self._offences = None
        spent = time.process_time() - began
        if spent > CPU_SECONDS_MAX:
            offences.append(f"took {spent:.1f} s of a processor, more than {CPU_SECONDS_MAX:g}")
        if offences:
            pytest.fail(f"{item.name} is not quick: it {', '.join(offences)}. See tests/tiers.py.", pytrace=False)
        return result

    def _watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by Python for much of what it does, in all threads: it must cost nothing and raise nothing."""
        if self._offences is None:
            return
        if event in PROCESS_EVENTS:
            self._offences.append(f"started a process ({event})")
        elif event == "socket.connect" and is_elsewhere(arguments[1]):
            self._offences.append(f"connected to {arguments[1]!r}")


def is_listed(path: Path) -> bool:
    name = path.relative_to(HERE).as_posix()
    return any(name == place or name.startswith(f"{place}/") for place in PLACES)


def is_elsewhere(address: object) -> bool:
    """Addresses of Unix sockets are no tuples."""
    return isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK)
