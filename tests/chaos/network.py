"""A separate network for one run: each node, and all clients together, have a namespace that is linked to a router.

The router passes, drops, rejects or delays packets by source and target. The private addresses exist inside the
namespaces only.

Namespaces are unnamed: each is an open file and disappears with the last process that holds it, so nothing of a run's
networks is left on the machine, however the run ends. A namespace belongs to a thread and is inherited by the threads
and processes that it starts.

A TUN device delays, duplicates or loses the packets that the router sends to it. Linux can do this with netem, which
many kernels lack. The packet rate of these tests is low enough for Python.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from ipaddress import IPv4Address
from itertools import permutations
from pathlib import Path
from typing import TypeAlias

TUN_DEVICE = Path("/dev/net/tun")
OF_THIS_THREAD = "/proc/thread-self/ns/net"
CLONE_NEWNET = 0x4000_0000

COMMANDS = {"ip": "iproute2", "nft": "nftables"}
"""The required commands and their Debian packages; `tools/clients/setup network` installs them."""

SLOW_DEVICE = "slow"
SLOW_MARK = 7
TABLE = "chaos"

Direction: TypeAlias = tuple[int, int]
"""The source and target of packets. The opposite direction is separate."""

TUNSETIFF = 0x4004_54CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX = 64 * 1024
SOURCE, TARGET = slice(12, 16), slice(16, 20)
"""The addresses in an IPv4 header."""

ROUTES = "100"
QUEUE_PACKETS = "10000"

CLIENTS = 0
"""The place of all clients in the network. Nodes have the place of their id."""


class NoNamespaces(Exception):
    """Network namespaces are not available; the message has the reason."""


class Namespace:
    """A network namespace, created by the constructor and released by `close`."""

    def __init__(self) -> None:
        """Create the namespace. Raises NoNamespaces."""
        home = os.open(OF_THIS_THREAD, os.O_RDONLY)
        try:
            _call("unshare", CLONE_NEWNET)
            self._file = os.open(OF_THIS_THREAD, os.O_RDONLY)
            _call("setns", home, CLONE_NEWNET)
        finally:
            os.close(home)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self) -> str:
        """The path of the namespace for other commands, valid while this process runs."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread, and everything that it starts, into the namespace during the block."""
        home = os.open(OF_THIS_THREAD, os.O_RDONLY)
        try:
            _call("setns", self._file, CLONE_NEWNET)
            try:
                yield
            finally:
                _call("setns", home, CLONE_NEWNET)
        finally:
            os.close(home)

    def run(self, *command: str, stdin: str | None = None) -> None:
        """Run a command in the namespace. Raises NoNamespaces with the error output of the command."""
        with self.entered():
            done = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise NoNamespaces(f"{' '.join(command)}: {done.stderr.strip()}")

    def set(self, setting: str, value: str) -> None:
        """Write a setting below /proc/sys/net, which belongs to the current namespace."""
        with self.entered():
            Path("/proc/sys/net", setting).write_text(value, encoding="ascii")

    def close(self) -> None:
        os.close(self._file)


def namespaces_unavailable_reason() -> str | None:
    """Return why network namespaces are not available, or None."""
    if sys.platform != "linux":
        return f"{sys.platform} has no network namespaces"
    for command, package in COMMANDS.items():
        if shutil.which(command) is None:
            return f"the command {command} is not installed (Debian package {package})"
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        return f"{TUN_DEVICE} is missing or cannot be opened"
    try:
        Namespace().close()
    except (NoNamespaces, OSError) as failure:
        return str(failure)
    return None


def _call(function: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise NoNamespaces(f"{function}: {reason} (network namespaces require CAP_SYS_ADMIN and CAP_NET_ADMIN)")


class Barrier(Enum):
    """A way to block packets."""

    DROPS = "drop"
    """Packets are dropped silently."""
    REJECTS = "meta l4proto tcp reject with tcp reset"
    """Packets are rejected with a TCP reset to their sender."""


@dataclass(frozen=True)
class LossyLink:
    """A lossy link: packets are delayed, lost, duplicated and, with different delays, reordered."""

    delay_s: float = 0.0
    spread_s: float = 0.0
    """Maximum random addition to the delay of each packet."""
    loss: float = 0.0
    twice: float = 0.0
    """Fractions of the packets that are lost and duplicated."""


Way: TypeAlias = Barrier | LossyLink


def build_ruleset(ways: Mapping[Direction, Way], address: Mapping[int, str]) -> str:
    """Return the complete nftables rule set, which is applied atomically. Delayed packets go to the slow device."""
    slow = [direction for direction, way in ways.items() if isinstance(way, LossyLink)]
    lines = [f"table ip {TABLE}", f"delete table ip {TABLE}", f"table ip {TABLE} {{"]
    lines += _chain("prerouting", "mangle", {f"meta mark set {SLOW_MARK}": slow}, address)
    barriers = {barrier.value: [direction for direction, way in ways.items() if way is barrier] for barrier in Barrier}
    lines += _chain("forward", "filter", barriers, address)
    return "\n".join([*lines, "}"]) + "\n"


def _chain(hook: str, priority: str, verdicts: Mapping[str, list[Direction]], address: Mapping[int, str]) -> list[str]:
    rules = [
        f"ip saddr . ip daddr {{ {_pairs(directions, address)} }} {verdict}"
        for verdict, directions in verdicts.items()
        if directions
    ]
    head = f"chain {hook} {{ type filter hook {hook} priority {priority};"
    return [head, f'iifname "{SLOW_DEVICE}" accept', *rules, "}"]


def _pairs(directions: list[Direction], address: Mapping[int, str]) -> str:
    return ", ".join(f"{address[source]} . {address[target]}" for source, target in sorted(directions))


class SlowDevice:
    """A packet delay device, which runs on its own thread until `close`."""

    def __init__(self, router: Namespace, address: Mapping[int, str]) -> None:
        self._places = {IPv4Address(text).packed: place for place, text in address.items()}
        with router.entered():
            self._device = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self._device, TUNSETIFF, struct.pack("16sH22x", SLOW_DEVICE.encode(), IFF_TUN | IFF_NO_PI))
        router.run("ip", "link", "set", SLOW_DEVICE, "up", "txqueuelen", QUEUE_PACKETS)
        router.run("ip", "route", "add", "default", "dev", SLOW_DEVICE, "table", ROUTES)
        router.run("ip", "rule", "add", "fwmark", str(SLOW_MARK), "lookup", ROUTES)
        self._rng = random.Random(SLOW_DEVICE)
        self._held: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._lines: Mapping[Direction, LossyLink] = {}
        self._ending, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="chaos-slow-device", daemon=True)
        self._thread.start()

    def set_links(self, lines: Mapping[Direction, LossyLink]) -> None:
        self._lines = dict(lines)

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._ending)
        os.close(self._device)

    def _run(self) -> None:
        while True:
            wait_s = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
            ready, _, _ = select.select([self._device, self._ending], [], [], wait_s)
            if self._ending in ready:
                return
            if self._device in ready:
                self._hold_all()
            self._pass_on()

    def _hold_all(self) -> None:
        try:
            while True:
                self._hold(os.read(self._device, PACKET_BYTES_MAX))
        except BlockingIOError:
            pass

    def _hold(self, packet: bytes) -> None:
        direction = self._places.get(packet[SOURCE], -1), self._places.get(packet[TARGET], -1)
        line = self._lines.get(direction, LossyLink())  # the fault ended while the packet was on its way
        if self._rng.random() < line.loss:
            return
        for _ in range(2 if self._rng.random() < line.twice else 1):
            self._count += 1
            due_at = time.monotonic() + line.delay_s + line.spread_s * self._rng.random()
            heappush(self._held, (due_at, self._count, packet))

    def _pass_on(self) -> None:
        while self._held and self._held[0][0] <= time.monotonic():
            _, _, packet = heappop(self._held)
            try:
                os.write(self._device, packet)
            except OSError:  # full buffer: the packet is lost, as on a real link
                return


class Network:
    """The network of a run. Raises NoNamespaces. Processes inside keep it alive after `close` until they exit."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self.places = [CLIENTS, *node_ids]
        self._address = {place: f"10.90.{place}.2" for place in self.places}
        self._layers: list[Mapping[Direction, Way]] = []
        self._lock = threading.Lock()
        with ExitStack() as stack:
            self._router = stack.enter_context(closing(Namespace()))
            self._at = {place: stack.enter_context(closing(Namespace())) for place in self.places}
            for place in self.places:
                self._connect(place)
            self._router.set("ipv4/ip_forward", "1")
            self._slow = stack.enter_context(closing(SlowDevice(self._router, self._address)))
            self._apply()
            self._stack = stack.pop_all()

    def _connect(self, place: int) -> None:
        cable, gateway, there = f"to{place}", f"10.90.{place}.1", self._at[place]
        self._router.run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", there.path)
        self._router.run("ip", "address", "add", f"{gateway}/24", "dev", cable)
        self._router.run("ip", "link", "set", cable, "up")
        there.run("ip", "address", "add", f"{self._address[place]}/24", "dev", "eth0")
        there.run("ip", "link", "set", "eth0", "up")
        there.run("ip", "route", "add", "default", "via", gateway)

    def close(self) -> None:
        self._stack.close()

    def address(self, place: int) -> str:
        return self._address[place]

    def entered(self, place: int) -> AbstractContextManager[None]:
        """Move this thread, and everything that it starts, to a place of the network during the block."""
        return self._at[place].entered()

    @contextmanager
    def imposed(self, ways: Mapping[Direction, Way]) -> Iterator[None]:
        """Apply faults on top of the existing ones, atomically, and remove them atomically after the block."""
        layer = dict(ways)
        self._apply(lambda: self._layers.append(layer))
        try:
            yield
        finally:
            self._apply(lambda: self._forget(layer))

    def _forget(self, layer: Mapping[Direction, Way]) -> None:
        self._layers = [each for each in self._layers if each is not layer]

    def _apply(self, change: Callable[[], None] = lambda: None) -> None:
        """Apply a change and update the rules. Thread-safe."""
        with self._lock:
            change()
            self._take_effect()

    def _take_effect(self) -> None:
        ways: dict[Direction, Way] = {}
        for layer in self._layers:
            ways |= layer
        self._slow.set_links({direction: way for direction, way in ways.items() if isinstance(way, LossyLink)})
        self._router.run("nft", "-f", "-", stdin=build_ruleset(ways, self._address))


def directions_between(some: Iterable[int], others: Iterable[int]) -> list[Direction]:
    """Return all directions between two sets of places, both ways."""
    pairs = [(one, other) for one in some for other in others]
    return [*pairs, *((other, one) for one, other in pairs)]


def directions_among(places: Iterable[int]) -> list[Direction]:
    return list(permutations(places, 2))
