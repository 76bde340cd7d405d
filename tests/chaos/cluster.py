"""The cluster under test: nodes with adjustable clocks, each in its own network namespace where available."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from chronik.config import Address
from chronik.testing.cluster import Cluster, ClusterNode, NodeAddresses
from tests.chaos import wall_clock_node
from tests.chaos.history import now
from tests.chaos.network import CLIENTS, Barrier, Direction, Network, directions_among, directions_between

KAFKA_PORT, HTTP_PORT, RAFT_PORT = 9092, 8080, 9093

StartCallback = Callable[[int, float], None]
"""A callback with the id of a started node and the time at which the start began."""

Place = Callable[[], AbstractContextManager[None]]


class ChaosNode(ClusterNode):
    """A node whose wall clock can be shifted."""

    def __init__(self, at: Place, started: StartCallback, folder: Path, *addresses: Address, **config: Any) -> None:
        self._at = at
        self._started = started
        self._clock_file = folder / "clock-shift"
        wall_clock_node.create_clock_file(self._clock_file)
        super().__init__(folder, *addresses, **config)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", wall_clock_node.__file__, str(self._clock_file)]

    def start(self) -> ChaosNode:
        self._started(self.node_id, now())
        with self._at():
            super().start()
        return self

    def shift_clock(self, seconds: float) -> None:
        """Set the difference between the node's wall clock and the real time."""
        wall_clock_node.shift_clock(self._clock_file, seconds)


class ChaosCluster(Cluster):
    """A cluster with its own network, or on the loopback address with proxies between the nodes."""

    def __init__(self, nodes: int, folder: Path, *, has_network: bool, started: StartCallback, **config: Any) -> None:
        """Create the cluster. Raises NoNamespaces."""
        self._network = Network(range(1, nodes + 1)) if has_network else None
        self._started = started
        self._cuts = ExitStack()
        try:
            token = {"http_token": secrets.token_hex()} if has_network else {}  # required outside of loopback
            super().__init__(nodes, folder, links=not has_network, **token, **config)
        except BaseException:
            self.close()
            raise

    @property
    def has_network(self) -> bool:
        return self._network is not None

    @property
    def network(self) -> Network:
        assert self._network is not None, "this fault requires a cluster with its own network"
        return self._network

    def in_client_namespace(self) -> AbstractContextManager[None]:
        """Move this thread, and those that it starts, into the clients' network namespace."""
        return nullcontext() if self._network is None else self._network.entered(CLIENTS)

    def _addresses(self, ids: Iterable[int]) -> dict[int, NodeAddresses]:
        if self._network is None:
            return super()._addresses(ids)
        ports = (KAFKA_PORT, HTTP_PORT, RAFT_PORT)
        return {
            node_id: NodeAddresses(*(Address(self._network.address(node_id), port) for port in ports))
            for node_id in ids
        }

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ChaosNode:
        node_id: int = config["node_id"]
        return ChaosNode(lambda: self._where(node_id), self._started, folder, kafka, http, **config)

    def _where(self, node_id: int) -> AbstractContextManager[None]:
        return nullcontext() if self._network is None else self._network.entered(node_id)

    def close(self) -> None:
        super().close()
        if self._network is not None:
            self._network.close()

    # Cuts between nodes, by the router or by the proxies

    def interrupt_link(self, source: int, target: int) -> None:
        self._drop([(source, target)]) if self._network else super().interrupt_link(source, target)

    def isolate(self, *node_ids: int) -> None:
        if self._network is None:
            super().isolate(*node_ids)
        else:
            self._drop(directions_between(node_ids, [each for each in self.nodes if each not in node_ids]))

    def isolate_all(self) -> None:
        """Isolate every node from all others."""
        if self._network is None:
            self._require_links().interrupt(directions_among(self.nodes))
        else:
            self._drop(directions_among(self.nodes))

    def _drop(self, directions: Iterable[Direction]) -> None:
        self._cuts.enter_context(self.network.imposed(dict.fromkeys(directions, Barrier.DROPS)))

    def restore_links(self) -> None:
        self._cuts.close() if self._network else super().restore_links()
