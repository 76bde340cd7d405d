"""Three schema registries on the metadata stores of a cluster, in one process, on real sockets and files."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from chronik.config import Address
from chronik.files import DiskFileSystem
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.levels import FEATURE_NAME, HIGHEST
from chronik.metadata.stores.raft_store import RaftStore
from chronik.peers.transport import PeerTransport
from chronik.quorum.driver import RaftDriver
from chronik.quorum.settings import DriverSettings
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, RaftMember
from chronik.raft.roles import Role
from tests.peers.helpers import ANY_PORT, identity, until
from tests.registry.registry_node import RegistryNode

NODE_IDS: Final = (1, 2, 3)
TICK_SECONDS: Final = 0.03


class ClusteredRegistry(RegistryNode):
    """The registry of a cluster node. A restart creates another one on the same directory and port."""

    def __init__(self, node_id: int, folder: Path, address: Address) -> None:
        self.node_id = node_id
        self.fatal: list[BaseException] = []
        self.raft_store = RaftStore(node_id)
        self.transport = PeerTransport(identity(node_id), address, {}, self.fatal.append)
        members = tuple(RaftMember(member, UNBOUND_DIRECTORY, True) for member in NODE_IDS)
        self.driver = RaftDriver(
            DriverSettings(
                node_id=node_id,
                directory_id=bytes([node_id]) * 16,
                bootstrap=Membership(members),
                tick_seconds=TICK_SECONDS,
            ),
            DiskFileSystem(folder / str(node_id)),
            self.raft_store.machine,
            self.transport,
            on_fatal=self.fatal.append,
            on_status=lambda _: self.raft_store.notify_leader_change(),
            randomness=random.Random(node_id),
        )
        self.raft_store.attach(self.driver)
        super().__init__(self.raft_store)


class RegistryCluster:
    """Three registries that share their state."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses: dict[int, Address] = {}
        self._nodes: dict[int, ClusteredRegistry] = {}

    @property
    def nodes(self) -> list[ClusteredRegistry]:
        """Return the running nodes."""
        return list(self._nodes.values())

    @property
    def leader(self) -> ClusteredRegistry:
        return next(node for node in self.nodes if node.driver.status.role is Role.LEADER)

    @property
    def followers(self) -> list[ClusteredRegistry]:
        return [node for node in self.nodes if node is not self.leader]

    async def start(self) -> None:
        made = [ClusteredRegistry(node_id, self._folder, ANY_PORT) for node_id in NODE_IDS]
        for node in made:
            self._addresses[node.node_id] = await node.transport.bind()
        for node in made:
            await self._start_node(node)
        await until(lambda: any(node.driver.status.role is Role.LEADER for node in self.nodes), "election")
        await self.nodes[0].store.propose(SetFeatureLevel(FEATURE_NAME, HIGHEST))

    async def restart(self, node_id: int) -> None:
        await self._start_node(ClusteredRegistry(node_id, self._folder, self._addresses[node_id]))

    async def _start_node(self, node: ClusteredRegistry) -> None:
        for node_id, address in self._addresses.items():
            node.transport.set_peer(node_id, address)
        self._nodes[node.node_id] = node
        await node.store.start()

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self._nodes):
            node = self._nodes.pop(node_id)
            await node.registry.close()
            await node.store.close()
            assert not node.fatal

    async def wait_for_agreement(self) -> None:
        """Wait until all nodes have the same image."""
        await until(lambda: len({node.store.image.applied_index for node in self.nodes}) == 1, "agreement")
        assert len({node.store.image.state_hash for node in self.nodes}) == 1


@asynccontextmanager
async def running_registries(folder: Path) -> AsyncIterator[RegistryCluster]:
    """Start a cluster, and stop it at the end."""
    cluster = RegistryCluster(folder)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
