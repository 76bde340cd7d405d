"""`python -m bench.tabs` (`make bench-tabs`): what a browser with ten tabs of the console costs a node.

Beside it runs a node that nobody looks at. Single records are sent through both, in turn, all the time: whatever else
the machine does hits both alike, and what the first one uses beyond the second is what the tabs cost. Exit code 1 when
that is 1 % of a core or more, or when memory grows.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.beside_kafka import say
from bench.servers import CHRONIK_OS, ROOT, Server
from bench.tables import machine
from chronik.bench.clients import ensure_topic
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import MEGABYTE, Latency, cpu_seconds, resident_bytes
from chronik.bench.report import number
from chronik.bench.round_trip import WARM_UP_TRIPS, Span, traveller
from chronik.bench.rounds import below, in_turn, markdown_table, target_rows
from chronik.client.cluster import Cluster
from chronik.config import Address
from chronik.errors import ChronikError

MINUTES: Final = 60
TOPIC: Final = "probe"
PAGES: Final = (
    *("overview", "topics", f"topics/{TOPIC}", "groups", "transactions"),
    *("nodes", "security", "tables", "overview", f"topics/{TOPIC}"),
)
"""A tab each."""
WITH, WITHOUT = "with ten tabs", "with none"
PAUSE_SECONDS: Final = 0.5
TRIPS_AT_ONCE: Final = 5
"""To each node, and then a pause."""
LIVE_MS_MAX: Final = 60_000
SETTLED_MINUTES: Final = 5
"""After which all has been seen once: what memory grows by is counted from here, or from half of a shorter run."""

CPU_PERCENT_MAX: Final = 1.0
GROWTH_MB_MAX: Final = 1.0


@dataclass(slots=True)
class Subject:
    server: Server
    trip: Callable[[], Span]
    trips: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Seconds of a processor, and below bytes of memory, at the start and after each minute."""
    memory: list[int] = field(default_factory=list)

    def look(self) -> None:
        self.cpu.append(cpu_seconds(self.server.pid))
        self.memory.append(resident_bytes(self.server.pid))

    def cpu_percent(self, seconds: float) -> float:
        return 100 * (self.cpu[-1] - self.cpu[0]) / seconds

    def growth_mb(self) -> float:
        settled = min(SETTLED_MINUTES, len(self.memory) // 2)
        return (self.memory[-1] - self.memory[settled]) / MEGABYTE


@contextmanager
def browser() -> Iterator[Any]:
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        raise BenchFailed("chromium or playwright is missing: run tools/clients/setup browser")
    with sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield started
        finally:
            started.close()


def open_tabs(started: Any, http: Address) -> list[Any]:
    context = started.new_context()
    tabs = [context.new_page() for _ in PAGES]
    for tab, place in zip(tabs, PAGES, strict=True):
        tab.goto(f"http://{http}/#/{place}")
    wait_until_live(tabs)
    return tabs


def wait_until_live(tabs: list[Any]) -> None:
    for tab in tabs:
        tab.locator(".pulse", has_text="Live").wait_for(timeout=LIVE_MS_MAX)


@contextmanager
def subject(folder: Path) -> Iterator[Subject]:
    with Server(CHRONIK_OS, folder, tells_status=True) as server:
        with Cluster(server.bootstrap) as cluster:
            ensure_topic(cluster, TOPIC, 1)
        with traveller(server.bootstrap, TOPIC) as trip:
            for _ in range(WARM_UP_TRIPS):
                trip()
            yield Subject(server, trip)


def measure(minutes: int, folder: Path) -> tuple[dict[str, Subject], float]:
    """Returns both, and the seconds that it took."""
    with ExitStack() as stack:
        subjects = {name: stack.enter_context(subject(folder)) for name in (WITH, WITHOUT)}
        http = subjects[WITH].server.http
        assert http is not None
        tabs = open_tabs(stack.enter_context(browser()), http)
        began = time.monotonic()
        _look(subjects)
        for minute in range(1, minutes + 1):
            say(f"minute {minute} of {minutes}")
            _travel(subjects, tabs[0], began + 60 * minute)
            _look(subjects)
        seconds = time.monotonic() - began
        wait_until_live(tabs)
        return subjects, seconds


def _look(subjects: dict[str, Subject]) -> None:
    for each in subjects.values():
        each.look()


def _travel(subjects: dict[str, Subject], tab: Any, until: float) -> None:
    for turn in count():
        if time.monotonic() > until:
            return
        for name in in_turn(list(subjects), turn):  # who comes first finds all caches cold
            subjects[name].trips += (subjects[name].trip().seconds for _ in range(TRIPS_AT_ONCE))
        tab.wait_for_timeout(1000 * PAUSE_SECONDS)  # which lets Playwright hear what the browser tells


def report(subjects: dict[str, Subject], seconds: float) -> tuple[str, bool]:
    rows = []
    for name, each in subjects.items():
        trips = Latency.of(each.trips)
        figures = (each.cpu_percent(seconds), each.memory[-1] / MEGABYTE, each.growth_mb())
        times = (trips.p50_ms, trips.p99_ms, trips.p999_ms, trips.max_ms)
        rows.append([name, *map(number, figures), f"{len(each.trips):,}", *map(number, times)])
    headings = (
        "node",
        "CPU, % of a core",
        "memory, MB",
        "grown by, MB",
        "trips",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max",
    )
    cost = subjects[WITH].cpu_percent(seconds) - subjects[WITHOUT].cpu_percent(seconds)
    growth = subjects[WITH].growth_mb() - subjects[WITHOUT].growth_mb()
    goals = [
        below("what the tabs cost, % of a core", cost, CPU_PERCENT_MAX),
        below("memory beyond what the other grew by, MB", growth, GROWTH_MB_MAX),
    ]
    told = markdown_table(("what", "wanted", "measured", ""), target_rows(goals))
    return f"{markdown_table(headings, rows)}\n\n{told}", all(goal.met for goal in goals)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tabs", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=int, default=MINUTES, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="for data")
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    try:
        told, met = report(*measure(arguments.minutes, arguments.folder.resolve()))
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"Ten tabs for {arguments.minutes} minutes, on {machine()}.\n\n{told}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
