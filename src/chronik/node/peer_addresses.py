"""Addresses of the peers: from the config file at first, then from the metadata.

`[[peers]]` are only hints. A node that has joined reads the addresses of the others from its own metadata image, even
after a restart and without a majority, because an address is committed before the membership that needs it. The hints
are used again while there is no leader, in case all nodes have moved and only their config files know the new
addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.clock import Clock
from chronik.config import Address
from chronik.controller.membership import has_node_records
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.metadata.delta import Delta
from chronik.metadata.stores.raft_store import RaftStore
from chronik.quorum.driver import RaftDriver
from chronik.quorum.settings import DriverStatus
from chronik.raft.membership import NO_NODE

HINT_SECONDS: Final = 5.0
"""The interval in seconds at which a leaderless node alternates between configured and stored peer addresses."""


class PeerAddresses:
    """The addresses under which the peer transport connects to the other nodes."""

    def __init__(self, node_id: int, hints: Mapping[int, Address], store: RaftStore, driver: RaftDriver, clock: Clock):
        self._node_id = node_id
        self._hints = dict(hints)
        self._learned: dict[int, Address] = {}
        """The addresses received from peers, by node id. These nodes may not be in the metadata image yet."""
        self._store = store
        self._driver = driver
        self._clock = clock
        self._leaderless_since: float | None = None
        store.subscribe(self._apply_delta)

    @property
    def own(self) -> Address:
        """Return the configured peer address of this node."""
        return self._hints[self._node_id]

    @property
    def has_moved(self) -> bool:
        """Return whether this node's configured address differs from its address in the metadata."""
        known = self._store.image.nodes.get(self._node_id)
        return has_node_records(self._store.image) and known is not None and (known.host, known.port) != self.own

    def learn(self, nodes: Iterable[tuple[int, str, int]]) -> None:
        """Store the node addresses received from a peer, and update the peer transport."""
        for node_id, host, port in nodes:
            self._learned[node_id] = Address(host, port)
        self.refresh()

    def on_peer_connected(self, node_id: int, host: str, port: int) -> None:
        """Store the address of a connected peer that is a cluster member but has no address in the metadata yet.

        The address is used if the peer is a member whose address is not in the local metadata: its log entry may be
        stored locally, but not known to be committed.
        """
        is_member = self._driver.status.membership.get(node_id) is not None
        if is_member and node_id not in self._driver.transport.addresses:
            self.learn([(node_id, host, port)])

    def _apply_delta(self, delta: Delta) -> None:
        for old, new in delta.nodes:
            if old is not None and new is None:
                self._learned.pop(old.id, None)
        if delta.nodes or delta.features:
            self.refresh()

    def refresh(self) -> None:
        """Update the addresses in the peer transport. Called periodically to follow membership changes."""
        transport = self._driver.transport
        wanted = self._get_target_addresses()
        for node_id in [each for each in transport.addresses if each not in wanted and each != self._node_id]:
            transport.remove_peer(node_id)
        for node_id, address in wanted.items():
            if node_id in transport.addresses or len(transport.addresses) < CLUSTER_MEMBERS_MAX:
                transport.set_peer(node_id, address)

    def _get_target_addresses(self) -> dict[int, Address]:
        """Return the addresses to connect to. For connected peers, this is the address in use."""
        status, present = self._driver.status, self._driver.transport.addresses
        wanted = self._get_known_addresses(status)
        return wanted | {each: present[each] for each in status.connected if each in wanted and each in present}

    def _get_known_addresses(self, status: DriverStatus) -> dict[int, Address]:
        image = self._store.image
        if not has_node_records(image):
            return self._hints | self._learned
        if status.leader in image.nodes:  # the leader's metadata is on its way to this node
            self._learned = {each: address for each, address in self._learned.items() if each in image.nodes}
        known = {node.id: Address(node.host, node.port) for node in image.nodes.values()}
        if self._prefers_configured_addresses(status.leader):
            known |= {each: address for each, address in self._hints.items() if each in known}
        others = {**self._driver.transport.addresses, **self._hints, **self._learned}
        # A node that is being removed is a member until it is, and the leader is answered even if the image is older.
        participant_ids = {status.leader, *self._learned, *(member.node_id for member in status.membership.members)}
        for node_id, address in others.items():
            is_hint = status.leader == NO_NODE and node_id in self._hints
            if node_id not in known and (node_id in participant_ids or is_hint):
                known[node_id] = address
        return known

    def _prefers_configured_addresses(self, leader: int) -> bool:
        """Return whether the configured peer addresses currently take precedence over those in the metadata."""
        if leader != NO_NODE:
            self._leaderless_since = None
            return False
        now = self._clock.monotonic()
        if self._leaderless_since is None:
            self._leaderless_since = now
        return int((now - self._leaderless_since) / HINT_SECONDS) % 2 == 1
