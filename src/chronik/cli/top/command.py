"""`chronik top`: collect the facts of a cluster periodically and display them."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Final

import msgspec

from chronik.cli.arguments import add_debug_argument, add_json_argument, load_security, parse_positive_seconds
from chronik.cli.cluster.local_nodes import get_http_endpoint, load_nodes
from chronik.cli.monitoring.arguments import add_monitoring_arguments, parse_http_endpoints
from chronik.cli.monitoring.cluster_monitor import ClusterMonitor
from chronik.cli.monitoring.facts import ClusterFacts, facts_to_json
from chronik.cli.monitoring.node_pages import HttpEndpoint
from chronik.cli.output import print_json
from chronik.cli.top.frame import StyledLine, TextStyle, TopicOrder, render_frame
from chronik.cli.top.view import TopView, build_view
from chronik.client.access.settings import BootstrapAccess
from chronik.client.errors import ClientError
from chronik.protocol.errors import KafkaError

EXIT_OK: Final = 0
INTERVAL_S: Final = 2.0
ONCE_INTERVAL_S: Final = 1.0
"""Interval in seconds over which `chronik top --once` measures rates."""

TIMEOUT_S: Final = 3.0
PAUSE_FACTOR: Final = 3
"""Minimum pause between collections of facts, as a multiple of the duration of a collection.

It limits the load on the cluster.
"""

WIDTH_UNLIMITED: Final = 200
STALE_AFTER_S: Final = 5.0
KEY_HELP: Final = "q: quit   s: sort topics   p: pause"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_monitoring_arguments(parser)
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="directory of a cluster on this machine; queries all nodes"
    )
    parser.add_argument(
        "--interval", type=parse_positive_seconds, metavar="SECONDS", help=f"refresh interval (default: {INTERVAL_S:g})"
    )
    parser.add_argument(
        "--once", action="store_true", help="print one frame and exit (default if stdin or stdout is no terminal)"
    )
    add_json_argument(parser, "print one snapshot with rates as JSON")
    parser.add_argument(
        "--timeout",
        type=parse_positive_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="request timeout per node (default: %(default)g)",
    )
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    access, ports = _resolve_target(arguments)
    with ClusterMonitor(access, ports, timeout_s=arguments.timeout, find_hanging_transactions=False) as watcher:
        if arguments.once or arguments.json or not _is_interactive():
            return _print_once(watcher, arguments)
        return _run_live(watcher, arguments.interval or INTERVAL_S)


def _resolve_target(arguments: argparse.Namespace) -> tuple[BootstrapAccess, list[HttpEndpoint]]:
    """Return the connection settings of the cluster, and the HTTP endpoints of its nodes."""
    security = load_security(arguments)
    ports = parse_http_endpoints(arguments)
    servers = arguments.bootstrap_server
    if arguments.dir is not None:
        nodes = load_nodes(arguments.dir)
        endpoints = [get_http_endpoint(node, security) for node in nodes]
        ports += [HttpEndpoint(*endpoint) for endpoint in endpoints if endpoint is not None]
        servers = servers or ",".join(str(node.config.listeners[0].advertised or node.config.kafka) for node in nodes)
    return BootstrapAccess(servers or arguments.bootstrap_default, security), ports


# One frame


def _print_once(watcher: ClusterMonitor, arguments: argparse.Namespace) -> int:
    before = watcher.collect()
    time.sleep(arguments.interval or ONCE_INTERVAL_S)
    view = build_view(watcher.collect(), before)
    if arguments.json:
        print_json(view_to_json(view))
        return EXIT_OK
    width = get_terminal_size((WIDTH_UNLIMITED, 0)).columns if sys.stdout.isatty() else WIDTH_UNLIMITED
    print("\n".join(line.text for line in render_frame(view, width, None)))
    return EXIT_OK


def view_to_json(view: TopView) -> dict[str, Any]:
    """Return the view of the cluster that `top` shows, with facts and rates, as a JSON object."""
    return {
        "facts": facts_to_json(view.facts),
        "seconds": view.seconds,
        "verdict": view.facts.verdict,
        "rates": {"records_s": view.records_s, "written_bytes_s": view.written_bytes_s, "requests_s": view.requests_s},
        "nodes": [
            {"id": row.node.id} | {key: value for key, value in msgspec.to_builtins(row).items() if key != "node"}
            for row in view.nodes
        ],
        "topics": facts_to_json(view.topics),
        "groups": [
            {"name": row.group.name, "lag": row.group.lag, "lag_change_s": row.lag_change_s} for row in view.groups
        ],
        "attention": [
            {"check": each.check, "severity": each.severity.name.lower(), "what": each.what, "do": each.do}
            for each in view.attention
        ],
    }


# Live


def _is_interactive() -> bool:
    if sys.platform == "win32":
        return False  # no termios: print one frame
    from chronik.cli.top.screen import is_interactive

    return is_interactive()


class CollectorThread(threading.Thread):
    """A thread that collects facts periodically, so that a slow node does not block keyboard input and resizing."""

    def __init__(self, watcher: ClusterMonitor, interval_s: float) -> None:
        super().__init__(name="facts-collector", daemon=True)
        self._watcher = watcher
        self._interval_s = interval_s
        self._stop_event = threading.Event()
        self.paused = threading.Event()
        self.snapshots: tuple[ClusterFacts | None, ClusterFacts | None] = None, None
        """The latest and the previous facts about the cluster, replaced atomically."""
        self.failure: str | None = None
        self.on_update: Callable[[], object] = bool
        """A callback that is called after each collection of facts."""

    def run(self) -> None:
        while not self._stop_event.is_set():
            began = time.monotonic()
            if not self.paused.is_set():
                self._collect()
                self.on_update()
            took_s = time.monotonic() - began
            self._stop_event.wait(max(self._interval_s - took_s, min(PAUSE_FACTOR * took_s, 10 * self._interval_s)))

    def _collect(self) -> None:
        try:
            self.snapshots, self.failure = (self._watcher.collect(), self.snapshots[0]), None
        except (ClientError, KafkaError, OSError) as error:
            self.failure = " ".join(str(error).split())
        except Exception:
            if not self._stop_event.is_set():  # otherwise the connections were closed during shutdown
                raise

    def request_stop(self) -> None:
        self._stop_event.set()


def _run_live(watcher: ClusterMonitor, interval_s: float) -> int:
    from chronik.cli.top.screen import TerminalScreen

    collector = CollectorThread(watcher, interval_s)
    sorting = TopicOrder.TRAFFIC
    with TerminalScreen(sys.stdin, sys.stdout) as screen:
        collector.on_update = screen.wake
        collector.start()
        try:
            while True:
                width, height = screen.size
                screen.draw(_build_frame(collector, width, height, sorting))
                for typed in screen.read_keys(1.0):
                    if typed in "qQ\x04":
                        return EXIT_OK
                    if typed in "sS":
                        sorting = sorting.next_order
                    elif typed in "pP ":
                        (collector.paused.clear if collector.paused.is_set() else collector.paused.set)()
        finally:
            collector.request_stop()
            collector.on_update = bool


def _build_frame(collector: CollectorThread, width: int, height: int, sorting: TopicOrder) -> list[StyledLine]:
    now, before = collector.snapshots
    footer = f"{KEY_HELP} (now by {sorting.value})"
    if now is None:
        waiting = collector.failure or "collecting …"
        lines = [
            StyledLine("chronik top", TextStyle.TITLE),
            StyledLine(waiting[:width], TextStyle.ERROR if collector.failure else TextStyle.PLAIN),
        ]
        return lines[:height]
    age_s = time.monotonic() - now.monotonic_s
    if collector.paused.is_set():
        footer = f"PAUSED   {footer}"
    elif collector.failure is not None:
        footer = f"NO RESPONSE for {age_s:.0f} s: {collector.failure}"
    elif age_s > STALE_AFTER_S:
        footer = f"{age_s:.0f} s old, refreshing …   {footer}"
    return render_frame(build_view(now, before), width, height, order=sorting, footer=footer)
