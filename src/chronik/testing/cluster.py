"""A cluster for tests: real processes that can be killed, paused, restarted and partitioned from each other."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from chronik.client.cluster import list_broker_ids
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.config import Address
from chronik.console.http_client import (
    HttpAccess,
    NodeRequestError,
    create_pinned_context,
    fetch_group,
    fetch_status,
    fetch_unready_reason,
)
from chronik.console.state_comparison import compare_states
from chronik.listeners import LISTENERS
from chronik.testing.broker import Broker
from chronik.testing.control import BrokerFailed
from chronik.testing.links import NetworkLinks
from chronik.testing.ports import HOST, ReservedPorts

REQUEST_SECONDS_MAX = 10.0
"""Timeout of one request in seconds, sufficient on a loaded machine."""

READY_SECONDS_MAX = 60.0
"""Timeout of waits in seconds. A cluster is usually ready after two; loaded machines need longer."""

POLL_SECONDS = 0.03

ROLE_LEADER = "leader"


class ClusterNode(Broker):
    """A node of a `Cluster`: a `Broker` with an HTTP interface."""

    def __init__(self, folder: Path, kafka: Address, http: Address, **config: Any) -> None:
        self.node_id: int = config["node_id"]
        self.kafka = kafka
        self.http = http
        kafka_address = {} if LISTENERS in config.get("broker", ()) else {"kafka": str(kafka)}
        if _requires_http_login(config.get("broker", {})):
            config.setdefault("http_token", secrets.token_hex(16))
        super().__init__(folder, http=str(http), **kafka_address, **config)
        self._port = kafka.port

    def __repr__(self) -> str:
        return f"<node {self.node_id} {self.bootstrap}{f' pid {self.pid}' if self.is_running else ', not running'}>"

    @property
    def bootstrap(self) -> str:
        return str(self.kafka)

    @property
    def is_live(self) -> bool:
        """Return whether the process is running and not paused."""
        return self.is_running and not self._paused

    @cached_property
    def _way(self) -> HttpAccess:
        token, keystore = self._config.get("http_token"), self._config.get("http_keystore")
        shows_itself = token is None and "http_truststore" in self._config
        tls = None if keystore is None else create_pinned_context(Path(keystore), with_client_certificate=shows_itself)
        return HttpAccess(None if token is None else str(token), tls)

    def status(self) -> dict[str, Any]:
        """Return the node's status, with its view of the cluster. Raises NodeRequestError."""
        return fetch_status(self.http, REQUEST_SECONDS_MAX, *self._way)

    def group(self, group_id: str) -> dict[str, Any] | None:
        """Return a group and its offsets as reported by this node. Raises NodeRequestError."""
        return fetch_group(self.http, group_id, REQUEST_SECONDS_MAX, *self._way)

    def not_ready_reason(self) -> str | None:
        """Return the reason why the node is not ready, or None if it is ready. Raises NodeRequestError."""
        return fetch_unready_reason(self.http, REQUEST_SECONDS_MAX, *self._way)

    def listed_brokers(self) -> list[int]:
        """Return the broker ids in this node's Metadata response. Raises ClientError."""
        with BrokerConnection(self.kafka, client_id="chronik-testing", timeout_s=REQUEST_SECONDS_MAX) as connection:
            return list_broker_ids(connection)


class NodeAddresses(NamedTuple):
    """The Kafka, HTTP and Raft addresses of a node."""

    kafka: Address
    http: Address
    raft: Address


class Cluster:
    """A cluster of nodes 1 to `nodes` on reserved ports. Other keyword arguments are config keys of all nodes.

        with Cluster(3) as cluster:
            Producer({"bootstrap.servers": cluster.bootstrap})
            cluster.leader().kill()
            cluster.wait_until_ready()

    With `links=True`, nodes connect through proxies, which `interrupt_link`, `isolate` and `restore_links` control.
    """

    def __init__(self, nodes: int = 3, folder: Path | None = None, *, links: bool = False, **config: Any) -> None:
        """Create the nodes without starting them.

        Raises:
            ConfigError: The config is invalid.
        """
        self._temporary: weakref.finalize[[str, bool], Cluster] | None = None
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="chronik-cluster-"))
            self._temporary = weakref.finalize(self, shutil.rmtree, str(folder), True)
        ids = range(1, nodes + 1)
        self._reserved: list[ReservedPorts] = []
        addresses = self._addresses(ids)
        self._kafka = {node_id: addresses[node_id].kafka for node_id in ids}
        self._raft = {node_id: addresses[node_id].raft for node_id in ids}
        self._links = NetworkLinks(self._raft) if links else None
        copies = min(3, nodes)
        self._folder = folder
        self._common: dict[str, Any] = {
            "cluster_secret": secrets.token_hex(32),
            "replication_factor": copies,
            "min_insync_replicas": 2 if copies == 3 else 1,
        } | config
        self.nodes: dict[int, ClusterNode] = {}
        try:
            for node_id in ids:
                self._add_cluster_node(node_id, addresses[node_id], self._peers_of(node_id))
        except BaseException:
            self.close()
            raise

    def _addresses(self, ids: Iterable[int]) -> dict[int, NodeAddresses]:
        """Reserve addresses on this machine. Subclasses with remote nodes override this method."""
        ids = list(ids)
        self._reserved.append(ReservedPorts(3 * len(ids)))
        ports = iter(self._reserved[-1].ports)
        return {node_id: NodeAddresses(*(Address(HOST, next(ports)) for _ in range(3))) for node_id in ids}

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        return ClusterNode(folder, kafka, http, **config)

    def _add_cluster_node(self, node_id: int, addresses: NodeAddresses, peers: list[dict[str, Any]]) -> ClusterNode:
        kafka, http, _ = addresses
        home = self._folder / f"node{node_id}"
        node = self._new_node(home, kafka, http, node_id=node_id, peers=peers, **self._common)
        if self._links is not None:
            others = [other for other in self._raft if other != node_id]
            node.peer_proxies = {
                str(self._raft[other]): str(self._links.get_proxy_address(node_id, other)) for other in others
            }
        self.nodes[node_id] = node
        return node

    def add_node(self, node_id: int, known: Collection[int] | None = None) -> ClusterNode:
        """Create another node without starting it or adding it to the cluster; see `chronik cluster add-node`.

        With `links=True`, it must be created before any node is started, because nodes learn their links at start.

        Args:
            node_id: The id of the new node.
            known: The other nodes in its `[[peers]]`; default: all. The other nodes' peers do not include it.
        """
        if self._links is not None and any(node.is_running for node in self.nodes.values()):
            raise ValueError("with links=True, add nodes before any node of the cluster is started")
        peers = self._peers_of(node_id)
        addresses = self._addresses([node_id])[node_id]
        self._kafka[node_id], self._raft[node_id] = addresses.kafka, addresses.raft
        if self._links is not None:
            self._links.add(node_id, addresses.raft)
            for other, node in self.nodes.items():
                node.peer_proxies[str(addresses.raft)] = str(self._links.get_proxy_address(other, node_id))
        named = [peer for peer in peers if known is None or peer["id"] in known]
        own = {"id": node_id, "kafka": str(addresses.kafka), "raft": str(addresses.raft)}
        return self._add_cluster_node(node_id, addresses, [*named, own])

    def _peers_of(self, node_id: int) -> list[dict[str, Any]]:
        """Return the `[[peers]]` of a node's config."""
        return [{"id": peer, "kafka": str(self._kafka[peer]), "raft": str(self._raft[peer])} for peer in self._raft]

    def raft_address(self, node_id: int) -> Address:
        """Return the address on which a node accepts connections from its peers."""
        return self._raft[node_id]

    def __enter__(self) -> Cluster:
        try:
            self.start()
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, node_id: int) -> ClusterNode:
        return self.nodes[node_id]

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all nodes for clients' `bootstrap.servers`."""
        return ",".join(str(address) for address in self._kafka.values())

    @property
    def live_nodes(self) -> list[ClusterNode]:
        """Return the nodes that are running and not paused."""
        return [node for node in self.nodes.values() if node.is_live]

    # Lifecycle

    def start(self) -> None:
        """Start all stopped nodes in parallel, without waiting until they form a cluster. Raises BrokerFailed."""
        _run_in_parallel(lambda node: node.start(), [node for node in self.nodes.values() if not node.is_running])

    def stop(self) -> None:
        """Stop all nodes gracefully and in parallel. Raises BrokerFailed if one exits abnormally."""
        _run_in_parallel(lambda node: node.stop(), [node for node in self.nodes.values() if node.is_running])

    def restart(self) -> None:
        """Stop and start all nodes."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the running nodes, and remove the temporary directory.

        A graceful stop of all nodes would transfer leadership repeatedly, which takes time that no test needs.
        """
        try:
            for node in self.nodes.values():
                node.kill()
        finally:
            if self._links is not None:
                self._links.close()
            for reserved in self._reserved:
                reserved.release()
            if self._temporary is not None:
                self._temporary()

    # State

    def status(self, node_id: int) -> dict[str, Any]:
        """Return the status of a node. Raises NodeRequestError."""
        return self.nodes[node_id].status()

    def leader(self, seconds: float = READY_SECONDS_MAX) -> ClusterNode:
        """Wait until all live nodes report the same live leader, and return it."""
        found: list[ClusterNode] = []

        def missing() -> str | None:
            statuses = {node.node_id: node.status() for node in self.live_nodes}
            named = {status["leader"] for status in statuses.values()}
            if len(named) == 1 and (leader := named.pop()) in statuses and statuses[leader]["role"] == ROLE_LEADER:
                found.append(self.nodes[leader])
                return None
            return f"leader by node: { {node_id: status['leader'] for node_id, status in statuses.items()} }"

        self.wait_until(missing, "one leader that all live nodes name", seconds)
        return found[0]

    def wait_until_ready(self, seconds: float = READY_SECONDS_MAX) -> None:
        """Wait until every live node is ready and lists all live nodes in its metadata."""
        live = {node.node_id for node in self.live_nodes}

        def missing() -> str | None:
            for node in self.live_nodes:
                listed = node.listed_brokers()
                if not live <= set(listed):
                    return f"node {node.node_id} lists {listed}"
                if (not_ready := node.not_ready_reason()) is not None:
                    return f"node {node.node_id} is {not_ready}"
            return None

        self.wait_until(missing, f"nodes {sorted(live)} ready, each listing all of them", seconds)

    def wait_until_listed(self, brokers: Collection[int], seconds: float = READY_SECONDS_MAX) -> None:
        """Wait until every live node lists exactly these brokers."""
        expected = sorted(brokers)

        def missing() -> str | None:
            listed = {node.node_id: node.listed_brokers() for node in self.live_nodes}
            return None if listed and all(each == expected for each in listed.values()) else f"listed: {listed}"

        self.wait_until(missing, f"brokers {expected} listed by every live node", seconds)

    def wait_until_agreed(self, seconds: float = READY_SECONDS_MAX) -> int:
        """Wait until all live nodes have identical metadata, and return its log index.

        The index includes everything that any of them had applied when the wait started.

        Raises:
            AssertionError: States differ at the same index.
        """
        goal: int = max(node.status()["applied_index"] for node in self.live_nodes)
        reached = goal

        def missing() -> str | None:
            nonlocal reached
            statuses = [node.status() for node in self.live_nodes]
            agreement = compare_states(statuses)
            if agreement.index is not None and not agreement.is_consistent:
                raise AssertionError(f"states differ at index {agreement.index}: {sorted(agreement.hashes)}")
            if agreement.index is None or agreement.index < goal:
                return f"applied: {[status['applied_index'] for status in statuses]}"
            reached = agreement.index
            return None

        self.wait_until(missing, f"all live nodes at index {goal}", seconds)
        return reached

    def wait_until(self, missing: Callable[[], str | None], what: str, seconds: float = READY_SECONDS_MAX) -> None:
        """Poll `missing` until it returns None instead of a text that describes what is missing.

        It is called again if a node does not respond.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                reason = missing()
            except (NodeRequestError, ClientError) as silent:
                reason = str(silent)
            if reason is None:
                return
            if time.monotonic() > deadline:
                raise BrokerFailed(f"timeout after {seconds:g} s waiting for {what}; last state: {reason}")
            time.sleep(POLL_SECONDS)

    # Network

    def interrupt_link(self, source: int, target: int) -> None:
        """Block all bytes that one node sends to another. The opposite direction is unaffected."""
        self._require_links().interrupt([(source, target)])

    def isolate(self, *node_ids: int) -> None:
        """Isolate the given nodes from the others in both directions (network partition)."""
        others = [node_id for node_id in self._raft if node_id not in node_ids]
        pairs = [(inside, outside) for inside in node_ids for outside in others]
        self._require_links().interrupt([*pairs, *((outside, inside) for inside, outside in pairs)])

    def restore_links(self) -> None:
        """Restore all links."""
        self._require_links().restore()

    def _require_links(self) -> NetworkLinks:
        if self._links is None:
            raise ValueError("interrupting links requires Cluster(links=True)")
        return self._links


def _run_in_parallel(action: Callable[[ClusterNode], object], nodes: Iterable[ClusterNode]) -> None:
    """Run the action on all nodes in parallel, wait for all, and raise the first error."""
    nodes = list(nodes)
    if not nodes:
        return
    with ThreadPoolExecutor(len(nodes), thread_name_prefix="chronik-cluster") as threads:
        actions = [threads.submit(action, node) for node in nodes]
    for each in actions:
        each.result()


def _requires_http_login(broker: Mapping[str, Any]) -> bool:
    """Return whether the broker configs require authentication, in which case HTTP requests need a token."""
    return "authorizer.class.name" in broker or any("SASL" in str(value) for value in broker.values())
