"""`chronik top`: looks at a cluster every few seconds, and shows what it sees."""

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

from chronik.cli.arguments import add_debug_argument, add_json_argument, positive_seconds, security_of
from chronik.cli.cluster.asking import http_way
from chronik.cli.cluster.local_nodes import existing_nodes
from chronik.cli.output import print_json
from chronik.cli.top.frame import Line, Sorting, Style, frame
from chronik.cli.top.view import View, view_of
from chronik.cli.watching.arguments import add_watching_arguments, ports_named
from chronik.cli.watching.facts import ClusterFacts, to_json
from chronik.cli.watching.pages import HttpPort
from chronik.cli.watching.watcher import Watcher
from chronik.client.access.settings import Access
from chronik.client.errors import ClientError
from chronik.protocol.errors import KafkaError

EXIT_OK: Final = 0
INTERVAL_S: Final = 2.0
ONCE_INTERVAL_S: Final = 1.0
"""Between the two looks that one frame takes: rates need two."""

TIMEOUT_S: Final = 3.0
REST_SHARE: Final = 3
"""A look that takes long is followed by a rest that is so many times as long: watching must not be what is watched."""

WIDTH_UNLIMITED: Final = 200
STALE_S: Final = 5.0
KEYS: Final = "q quits   s sorts topics   p pauses"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_watching_arguments(parser)
    parser.add_argument("--dir", type=Path, metavar="DIR", help="a cluster on this machine: all its nodes are asked")
    parser.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help=f"between two looks (default: {INTERVAL_S:g})"
    )
    parser.add_argument(
        "--once", action="store_true", help="print one frame, also where nobody types; a pipe gets that"
    )
    add_json_argument(parser, "print one look, with rates, as JSON")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="when to give up on a node (default: %(default)g)",
    )
    add_debug_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    access, ports = _whom(arguments)
    with Watcher(access, ports, timeout_s=arguments.timeout, is_thorough=False) as watcher:
        if arguments.once or arguments.json or not _is_live():
            return _once(watcher, arguments)
        return _live(watcher, arguments.interval or INTERVAL_S)


def _whom(arguments: argparse.Namespace) -> tuple[Access, list[HttpPort]]:
    """Raises WrongInput, ConfigError, ClientError."""
    security = security_of(arguments)
    ports = ports_named(arguments)
    servers = arguments.bootstrap_server
    if arguments.dir is not None:
        nodes = existing_nodes(arguments.dir)
        ways = [http_way(node, security) for node in nodes]
        ports += [HttpPort(*way) for way in ways if way is not None]
        servers = servers or ",".join(str(node.config.listeners[0].advertised or node.config.kafka) for node in nodes)
    return Access(servers or arguments.bootstrap_default, security), ports


# One frame


def _once(watcher: Watcher, arguments: argparse.Namespace) -> int:
    before = watcher.look()
    time.sleep(arguments.interval or ONCE_INTERVAL_S)
    view = view_of(watcher.look(), before)
    if arguments.json:
        print_json(told(view))
        return EXIT_OK
    width = get_terminal_size((WIDTH_UNLIMITED, 0)).columns if sys.stdout.isatty() else WIDTH_UNLIMITED
    print("\n".join(line.text for line in frame(view, width, None)))
    return EXIT_OK


def told(view: View) -> dict[str, Any]:
    """Returns what a program gets: facts, and rates beside them."""
    return {
        "facts": to_json(view.facts),
        "seconds": view.seconds,
        "verdict": view.facts.verdict,
        "rates": {"records_s": view.records_s, "written_bytes_s": view.written_bytes_s, "requests_s": view.requests_s},
        "nodes": [
            {"id": row.node.id} | {key: value for key, value in msgspec.to_builtins(row).items() if key != "node"}
            for row in view.nodes
        ],
        "topics": to_json(view.topics),
        "groups": [
            {"name": row.group.name, "lag": row.group.lag, "lag_change_s": row.lag_change_s} for row in view.groups
        ],
        "attention": [
            {"check": each.check, "severity": each.severity.name.lower(), "what": each.what, "do": each.do}
            for each in view.attention
        ],
    }


# Live


def _is_live() -> bool:
    if sys.platform == "win32":
        return False  # there is no termios; one frame is printed
    from chronik.cli.top.screen import is_possible

    return is_possible()


class Looking(threading.Thread):
    """Looks again and again, beside whoever draws: a node that does not answer must not hold up keys and resizes."""

    def __init__(self, watcher: Watcher, interval_s: float) -> None:
        super().__init__(name="looking", daemon=True)
        self._watcher = watcher
        self._interval_s = interval_s
        self._over = threading.Event()
        self.paused = threading.Event()
        self.looks: tuple[ClusterFacts | None, ClusterFacts | None] = None, None
        """The last, and the one before: replaced as one."""
        self.failure: str | None = None
        self.tell: Callable[[], object] = bool
        """Is called after each look."""

    def run(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            if not self.paused.is_set():
                self._look()
                self.tell()
            took_s = time.monotonic() - began
            self._over.wait(max(self._interval_s - took_s, min(REST_SHARE * took_s, 10 * self._interval_s)))

    def _look(self) -> None:
        try:
            self.looks, self.failure = (self._watcher.look(), self.looks[0]), None
        except (ClientError, KafkaError, OSError) as error:
            self.failure = " ".join(str(error).split())
        except Exception:
            if not self._over.is_set():  # else whoever watched has left, and closed what was being asked
                raise

    def end(self) -> None:
        self._over.set()


def _live(watcher: Watcher, interval_s: float) -> int:
    from chronik.cli.top.screen import Screen

    looking = Looking(watcher, interval_s)
    sorting = Sorting.TRAFFIC
    with Screen(sys.stdin, sys.stdout) as screen:
        looking.tell = screen.wake
        looking.start()
        try:
            while True:
                width, height = screen.size
                screen.draw(_lines(looking, width, height, sorting))
                for typed in screen.key(1.0):
                    if typed in "qQ\x04":
                        return EXIT_OK
                    if typed in "sS":
                        sorting = sorting.next
                    elif typed in "pP ":
                        (looking.paused.clear if looking.paused.is_set() else looking.paused.set)()
        finally:
            looking.end()
            looking.tell = bool


def _lines(looking: Looking, width: int, height: int, sorting: Sorting) -> list[Line]:
    now, before = looking.looks
    footer = f"{KEYS} (now by {sorting.value})"
    if now is None:
        waiting = looking.failure or "looking …"
        lines = [
            Line("chronik top", Style.TITLE),
            Line(waiting[:width], Style.ERROR if looking.failure else Style.PLAIN),
        ]
        return lines[:height]
    age_s = time.monotonic() - now.monotonic_s
    if looking.paused.is_set():
        footer = f"PAUSED   {footer}"
    elif looking.failure is not None:
        footer = f"NO ANSWER for {age_s:.0f} s: {looking.failure}"
    elif age_s > STALE_S:
        footer = f"{age_s:.0f} s old, asking …   {footer}"
    return frame(view_of(now, before), width, height, sorting=sorting, footer=footer)
