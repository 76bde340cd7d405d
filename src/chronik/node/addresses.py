"""Where the peers are: at first where the file says, then where the metadata says.

`[[peers]]` are only hints. A node that was let in reads the others' addresses in its own image, also after a restart
and without a majority: an address is committed before the membership that needs it. Hints help again while nobody
leads, if all nodes have moved at once and only their files know where to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.clock import Clock
from chronik.config import Address
from chronik.controller.membership import names_its_nodes
from chronik.limits import CLUSTER_MEMBERS_MAX
from chronik.metadata.delta import Delta
from chronik.metadata.stores.raft_store import RaftStore
from chronik.quorum.driver import RaftDriver
from chronik.quorum.settings import DriverStatus
from chronik.raft.membership import NOBODY

HINT_SECONDS: Final = 5.0
"""While nobody leads, peers that do not answer are looked for so long in one place, and so long in the other."""


class Addresses:
    def __init__(self, node_id: int, hints: Mapping[int, Address], store: RaftStore, driver: RaftDriver, clock: Clock):
        self._node_id = node_id
        self._hints = dict(hints)
        self._learnt: dict[int, Address] = {}
        """What peers told, about nodes of which the image may not know yet."""
        self._store = store
        self._driver = driver
        self._clock = clock
        self._leaderless_since: float | None = None
        store.subscribe(self._follow)

    @property
    def own(self) -> Address:
        return self._hints[self._node_id]

    @property
    def has_moved(self) -> bool:
        """Whether the others look for this node somewhere else."""
        known = self._store.image.nodes.get(self._node_id)
        return names_its_nodes(self._store.image) and known is not None and (known.host, known.port) != self.own

    def learn(self, nodes: Iterable[tuple[int, str, int]]) -> None:
        """Takes what a peer told."""
        for node_id, host, port in nodes:
            self._learnt[node_id] = Address(host, port)
        self.refresh()

    def met(self, node_id: int, host: str, port: int) -> None:
        """A peer has asked, and says where it is. Of a member whose address is not on this disk yet that is how it is
        found: entries of the log may be here, and that they are committed not."""
        is_member = self._driver.status.membership.get(node_id) is not None
        if is_member and node_id not in self._driver.transport.addresses:
            self.learn([(node_id, host, port)])

    def _follow(self, delta: Delta) -> None:
        for old, new in delta.nodes:
            if old is not None and new is None:
                self._learnt.pop(old.id, None)
        if delta.nodes or delta.features:
            self.refresh()

    def refresh(self) -> None:
        """Dials whom it should and hangs up on others. Called again and again: the membership changes unheard."""
        transport = self._driver.transport
        wanted = self._wanted()
        for node_id in [each for each in transport.addresses if each not in wanted and each != self._node_id]:
            transport.remove_peer(node_id)
        for node_id, address in wanted.items():
            if node_id in transport.addresses or len(transport.addresses) < CLUSTER_MEMBERS_MAX:
                transport.set_peer(node_id, address)

    def _wanted(self) -> dict[int, Address]:
        """Whoever is connected is where it should be, whatever is written: it may have moved before that was noted."""
        status, present = self._driver.status, self._driver.transport.addresses
        wanted = self._known(status)
        return wanted | {each: present[each] for each in status.connected if each in wanted and each in present}

    def _known(self, status: DriverStatus) -> dict[int, Address]:
        image = self._store.image
        if not names_its_nodes(image):
            return self._hints | self._learnt
        if status.leader in image.nodes:  # what it knows is on its way here
            self._learnt = {each: address for each, address in self._learnt.items() if each in image.nodes}
        known = {node.id: Address(node.host, node.port) for node in image.nodes.values()}
        if self._looks_elsewhere(status.leader):
            known |= {each: address for each, address in self._hints.items() if each in known}
        others = {**self._driver.transport.addresses, **self._hints, **self._learnt}
        # One that is to be removed takes part until it is; and whoever leads is answered, even if the image is older.
        takes_part = {status.leader, *self._learnt, *(member.node_id for member in status.membership.members)}
        for node_id, address in others.items():
            is_hint = status.leader == NOBODY and node_id in self._hints
            if node_id not in known and (node_id in takes_part or is_hint):
                known[node_id] = address
        return known

    def _looks_elsewhere(self, leader: int) -> bool:
        """Whether it is the hints' turn."""
        if leader != NOBODY:
            self._leaderless_since = None
            return False
        now = self._clock.monotonic()
        if self._leaderless_since is None:
            self._leaderless_since = now
        return int((now - self._leaderless_since) / HINT_SECONDS) % 2 == 1
