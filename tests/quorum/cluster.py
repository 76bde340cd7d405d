"""A cluster of Raft drivers in one process, on real sockets and files, with a state machine that keeps all commands."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from chronik.config import Address
from chronik.files import DiskFileSystem, FileSystem
from chronik.peers.transport import PeerTransport
from chronik.quorum.driver import RaftDriver
from chronik.quorum.forwarder import ProposalForwarder
from chronik.quorum.outcomes import NotLeader, OutcomeUnknown, ProposalLost, ProposalRejected
from chronik.quorum.settings import DriverSettings
from chronik.raft.config import RaftConfig
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.membership import UNBOUND_DIRECTORY, Membership, RaftMember
from chronik.raft.roles import Role
from tests.peers.helpers import ANY_PORT, DEADLINE_SECONDS, SECRET, identity, until

TICK_SECONDS = 0.03


class RecordingStateMachine:
    """A state machine that keeps all commands, and a hash chain over all entries to compare histories."""

    def __init__(self) -> None:
        self.index = 0
        self.digest = b""
        self.commands: list[bytes] = []
        self.digests: dict[int, bytes] = {}
        self.installed: list[int] = []

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        for entry in entries:
            assert entry.index == self.index + 1, f"{entry.index} is applied after {self.index}"
            self.index = entry.index
            self.digest = hashlib.blake2b(self.digest + entry.data, digest_size=8).digest()
            self.digests[entry.index] = self.digest
            if entry.kind is EntryKind.COMMAND:
                self.commands.append(entry.data)

    def begin_snapshot(self) -> Iterator[bytes]:
        commands = list(self.commands)
        yield msgspec.msgpack.encode((self.index, self.digest, len(commands)))
        for begin in range(0, len(commands), 100):
            yield msgspec.msgpack.encode(commands[begin : begin + 100])

    async def install_snapshot(self, index: int, chunks: AsyncIterator[bytes]) -> None:
        head = await anext(chunks)
        snapshot_index, digest, count = msgspec.msgpack.decode(head, type=tuple[int, bytes, int])
        commands: list[bytes] = []
        async for chunk in chunks:
            commands += msgspec.msgpack.decode(chunk, type=list[bytes])
        assert (snapshot_index, len(commands)) == (index, count)
        self.index, self.digest, self.commands = index, digest, commands
        self.installed.append(index)


class Node:
    """A run of a node: a restart creates another Node on the same directory and port."""

    def __init__(
        self,
        node_id: int,
        files: FileSystem,
        members: Sequence[int],
        *,
        address: Address = ANY_PORT,
        secret: str = SECRET,
        directory_id: bytes | None = None,
        snapshot_entries: int = 100_000,
        snapshot_seconds: float = 10.0,
        bytes_kept: int = 8 * 1024 * 1024,
        raft: RaftConfig | None = None,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self.node_id = node_id
        self.files = files
        self.address = address
        self.machine = RecordingStateMachine()
        self.fatal: list[BaseException] = []
        self.roles: list[Role] = []
        self.transport = PeerTransport(identity(node_id, secret), address, {}, self.fatal.append)
        bootstrap = Membership(tuple(RaftMember(member, UNBOUND_DIRECTORY, True) for member in members))
        settings = DriverSettings(
            node_id=node_id,
            directory_id=directory_id or bytes([node_id]) * 16,
            bootstrap=bootstrap,
            raft=raft or RaftConfig(),
            tick_seconds=tick_seconds,
            snapshot_entries=snapshot_entries,
            snapshot_seconds=snapshot_seconds,
            retained_log_bytes=bytes_kept,
        )
        self.driver = RaftDriver(
            settings,
            files,
            self.machine,
            self.transport,
            on_fatal=self.fatal.append,
            on_status=lambda status: self.roles.append(status.role),
            randomness=random.Random(node_id),
        )
        self.forwarder = ProposalForwarder(self.driver)

    async def bind(self) -> None:
        self.address = await self.transport.bind()


class RaftCluster:
    """Raft nodes that can be stopped and restarted."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._folder = folder
        self._options = options
        self.members = [1, 2, 3]
        self.nodes: dict[int, Node] = {}
        self.addresses: dict[int, Address] = {}

    def make(self, node_id: int, **options: Any) -> Node:
        merged = {"files": DiskFileSystem(self._folder / str(node_id)), **self._options, **options}
        address = self.addresses.get(node_id, ANY_PORT)
        return Node(node_id, members=self.members, address=address, **merged)

    async def start(self) -> None:
        made = [self.make(node_id) for node_id in self.members]
        for node in made:
            await node.bind()
            self.addresses[node.node_id] = node.address
        for node in made:
            await self._start_node(node)

    async def restart(self, node_id: int, **options: Any) -> Node:
        node = self.make(node_id, **options)
        await self._start_node(node)
        return node

    async def _start_node(self, node: Node) -> None:
        for node_id, address in self.addresses.items():
            node.transport.set_peer(node_id, address)
        self.nodes[node.node_id] = node
        await node.driver.start()

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids or list(self.nodes):
            await self.nodes.pop(node_id).driver.stop()

    @property
    def leaders(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.driver.status.role is Role.LEADER]

    async def leader(self, excluding: int | None = None) -> Node:
        """Wait until all running nodes, except `but`, agree on a leader and the cluster is bootstrapped.

        Until the directories of all voters are committed, the cluster needs every initial voter.
        """
        await until(lambda: self._agreed(excluding) is not None, "election")
        agreed = self._agreed(excluding)
        assert agreed is not None
        await until(lambda: _is_bootstrapped(agreed), "bootstrap")
        return agreed

    def _agreed(self, but: int | None) -> Node | None:
        statuses = [node.driver.status for node in self.nodes.values() if node.node_id != but]
        named = {(status.leader, status.term) for status in statuses}
        if len(named) != 1:
            return None
        leader = self.nodes.get(statuses[0].leader)
        return leader if leader is not None and leader.driver.status.role is Role.LEADER else None

    async def propose(self, data: bytes) -> None:
        """Propose a command through the current leader with retries, which may commit it twice."""
        deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        while True:
            try:
                leader = await self.leader()
                await leader.driver.propose(data, timeout=2.0)
                return
            except (NotLeader, ProposalRejected, ProposalLost, OutcomeUnknown):
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.01)

    async def wait_for_convergence(self) -> None:
        """Wait until all nodes have applied the same entries."""
        await until(lambda: len({node.machine.index for node in self.nodes.values()}) == 1, "convergence")
        digests = {node.machine.digest for node in self.nodes.values()}
        assert len(digests) == 1
        assert digests != {b""}


def _is_bootstrapped(node: Node) -> bool:
    status = node.driver.status
    is_bound = all(member.directory_id != UNBOUND_DIRECTORY for member in status.membership.members)
    return is_bound and status.membership_index <= status.commit_index


@asynccontextmanager
async def running_cluster(folder: Path, **options: Any) -> AsyncIterator[RaftCluster]:
    cluster = RaftCluster(folder, **options)
    try:
        await cluster.start()
        yield cluster
        for node in cluster.nodes.values():
            assert node.fatal == []
    finally:
        await cluster.stop()
