"""`python -m bench.tabs` (`make bench-tabs`): the cost of ten browser tabs of the console for a node.

A second node without tabs runs alongside. Single records are sent through both, interleaved, so that other load on the
machine affects both; the difference between them is the cost of the tabs. The exit code is 1 if that is 1 % of a core
or more, or if memory grows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.kafka_comparison import print_progress
from bench.results import Cell, ResultTable, add_keep_option, build_target_table, describe_run, format_report
from bench.servers import CHRONIK_OS, ROOT, BenchmarkServer
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import ensure_topic
from chronik.bench.report import BenchmarkTarget, below, rotate_servers
from chronik.bench.round_trip import WARM_UP_TRIPS, TimeSpan, open_round_trip
from chronik.bench.statistics import MEGABYTE, Latency, read_cpu_seconds, read_resident_bytes
from chronik.client.cluster import ClusterClient
from chronik.config import Address
from chronik.errors import ChronikError
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "console-tabs"
"""The name of the page and of the JSON file."""
MINUTES: Final = 60
TOPIC: Final = "probe"
PAGES: Final = (
    *("overview", "topics", f"topics/{TOPIC}", "groups", "transactions"),
    *("nodes", "security", "tables", "overview", f"topics/{TOPIC}"),
)
"""One tab each."""
WITH, WITHOUT = "with ten tabs", "without tabs"
PAUSE_SECONDS: Final = 0.5
TRIPS_AT_ONCE: Final = 5
"""Per node, followed by a pause."""
LIVE_MS_MAX: Final = 60_000
SETTLED_MINUTES: Final = 5
"""Memory growth is counted from here on (or from the middle of a shorter run), when every page was loaded once."""

CPU_PERCENT_MAX: Final = 1.0
GROWTH_MB_MAX: Final = 1.0


@dataclass(slots=True)
class TabsSubject:
    """A node under test and its samples."""

    server: BenchmarkServer
    trip: Callable[[], TimeSpan]
    trips: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """CPU seconds at the start and after each minute; `memory` has the resident bytes at the same times."""
    memory: list[int] = field(default_factory=list)

    def sample(self) -> None:
        self.cpu.append(read_cpu_seconds(self.server.pid))
        self.memory.append(read_resident_bytes(self.server.pid))

    def cpu_percent(self, seconds: float) -> float:
        return 100 * (self.cpu[-1] - self.cpu[0]) / seconds

    def growth_mb(self) -> float:
        settled = min(SETTLED_MINUTES, len(self.memory) // 2)
        return (self.memory[-1] - self.memory[settled]) / MEGABYTE


@contextmanager
def start_browser() -> Iterator[Any]:
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        raise BenchmarkError("chromium or playwright is missing: run tools/clients/setup browser")
    with sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield started
        finally:
            started.close()


def open_tabs(started: Any, http: Address) -> list[Any]:
    context = started.new_context()
    tabs = [context.new_page() for _ in PAGES]
    for tab, page in zip(tabs, PAGES, strict=True):
        tab.goto(f"http://{http}/#/{page}")
    wait_until_live(tabs)
    return tabs


def wait_until_live(tabs: list[Any]) -> None:
    for tab in tabs:
        tab.locator(".pulse", has_text="Live").wait_for(timeout=LIVE_MS_MAX)


@contextmanager
def start_subject(folder: Path) -> Iterator[TabsSubject]:
    with BenchmarkServer(CHRONIK_OS, folder, with_http=True) as server:
        with ClusterClient(server.bootstrap) as cluster:
            ensure_topic(cluster, TOPIC, 1)
        with open_round_trip(server.bootstrap, TOPIC) as trip:
            for _ in range(WARM_UP_TRIPS):
                trip()
            yield TabsSubject(server, trip)


def measure(minutes: int, folder: Path) -> tuple[dict[str, TabsSubject], float]:
    """Run the load and return both subjects and the elapsed seconds."""
    with ExitStack() as stack:
        subjects = {name: stack.enter_context(start_subject(folder)) for name in (WITH, WITHOUT)}
        http = subjects[WITH].server.http
        assert http is not None
        tabs = open_tabs(stack.enter_context(start_browser()), http)
        start_time = time.monotonic()
        _sample(subjects)
        for minute in range(1, minutes + 1):
            print_progress(f"minute {minute} of {minutes}")
            _make_round_trips(subjects, tabs[0], start_time + 60 * minute)
            _sample(subjects)
        seconds = time.monotonic() - start_time
        wait_until_live(tabs)
        return subjects, seconds


def _sample(subjects: dict[str, TabsSubject]) -> None:
    for each in subjects.values():
        each.sample()


def _make_round_trips(subjects: dict[str, TabsSubject], tab: Any, until: float) -> None:
    for iteration in count():
        if time.monotonic() > until:
            return
        for name in rotate_servers(list(subjects), iteration):  # the first in an iteration has cold caches
            subjects[name].trips += (subjects[name].trip().seconds for _ in range(TRIPS_AT_ONCE))
        tab.wait_for_timeout(1000 * PAUSE_SECONDS)  # lets Playwright process browser events


def build_table(subjects: dict[str, TabsSubject], seconds: float) -> ResultTable:
    headings = ["", "CPU, % of a core", "memory, MB", "memory growth, MB", "trips"]
    rows: list[list[Cell]] = []
    for name, each in subjects.items():
        trips = Latency.from_seconds(each.trips)
        row: list[Cell] = [name, each.cpu_percent(seconds), each.memory[-1] / MEGABYTE, each.growth_mb()]
        rows.append([*row, len(each.trips), trips.p50_ms, trips.p99_ms, trips.p999_ms, trips.max_ms])
    return ResultTable("Nodes", [*headings, "p50 ms", "p99 ms", "p99.9 ms", "max ms"], rows)


def evaluate_targets(subjects: dict[str, TabsSubject], seconds: float) -> list[BenchmarkTarget]:
    cost = subjects[WITH].cpu_percent(seconds) - subjects[WITHOUT].cpu_percent(seconds)
    growth = subjects[WITH].growth_mb() - subjects[WITHOUT].growth_mb()
    return [
        below("cost of the tabs, % of a core", cost, CPU_PERCENT_MAX),
        below("memory growth beyond that of the other node, MB", growth, GROWTH_MB_MAX),
    ]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tabs", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=MINUTES, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    add_keep_option(parser)
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    try:
        subjects, seconds = measure(arguments.minutes, arguments.folder.resolve())
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    targets = evaluate_targets(subjects, seconds)
    run = describe_run(f"Ten tabs for {arguments.minutes} minutes.", load_before)
    tables = [build_table(subjects, seconds), build_target_table(targets)]
    print(format_report(run, tables))
    if arguments.keep:
        keep_tables(NAME, run, tables)
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
