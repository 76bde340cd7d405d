"""A separate network for one run: each node, and all clients together, have a namespace that is linked to a router.

The router passes, drops, rejects or delays packets by source and target. The private addresses exist inside the
namespaces only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import permutations

from tests.chaos.link_faults import Direction, LossyLink, Way, build_ruleset
from tests.chaos.namespaces import Namespace
from tests.chaos.slow_device import SlowDevice

CLIENTS = 0
"""The place of all clients in the network. Nodes have the place of their id."""


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
