"""A simulated metadata log with nodes that lag behind it.

The nodes use real stores; only the transport of proposals and entries is simulated. Proposals are lost, or committed
long after their proposers have timed out.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from typing import Final, cast

from chronik.metadata.apply import apply
from chronik.metadata.commands.envelope import Command, Envelope, decode_command, encode_command
from chronik.metadata.delta import diff_images
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.snapshot import SnapshotLoader, encode_snapshot
from chronik.metadata.stores.raft_store import RaftStore
from chronik.metadata.stores.store import BARRIER_SECONDS, Acks
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.forwarder import ProposalForwarder
from chronik.quorum.outcomes import CommittedPosition, CompletionPoint, NotLeader, OutcomeUnknown
from chronik.raft.entries import EntryKind, RaftEntry
from chronik.raft.membership import NO_NODE
from tests.replication.virtual_loop import ProcessRun

CONTROLLER_ID = 0
"""Node id of the controller's own commands in the log."""

LATE_SECONDS_MAX: Final = 6.0
PROPOSE_SECONDS: Final = 1.5
"""Timeout of a proposal, shorter than that of the real store, so that many are committed after their timeout."""

_NOBODYS_CONTEXT: Final = contextvars.Context()


class SimulatedMetadataLog:
    """A metadata log without replication."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.image = Image()
        self.log: list[bytes] = []
        self.followers: dict[int, VirtualStore] = {}
        self.silenced: set[bytes] = set()
        """Process runs whose messages are dropped."""
        self.on_committed: Callable[[], None] = lambda: None
        self.loss = chance.choice((0.0, 0.05, 0.2))
        self.lag_seconds_max = chance.choice((0.01, 0.1, 0.6))
        self._sequence = 0
        self._incarnation = chance.getrandbits(128).to_bytes(16, "big")

    def heal(self) -> None:
        self.loss = 0.0
        self.lag_seconds_max = 0.02

    def arrive(self, data: bytes) -> None:
        if decode_command(data).incarnation not in self.silenced:
            self._commit(data)

    def _commit(self, data: bytes) -> ApplyResult:
        self.log.append(data)
        result, _ = apply(self.image, decode_command(data), len(self.log))
        for store in self.followers.values():
            store.has_more.set()
        self.on_committed()
        return result

    def command(self, command: Command) -> ApplyResult:
        """Commit a command of the controller immediately."""
        self._sequence += 1
        return self._commit(
            encode_command(Envelope(CONTROLLER_ID, self._incarnation, self._sequence, self._sequence - 1, command))
        )

    def entries(self, first: int, last: int) -> list[RaftEntry]:
        return [RaftEntry(index, 1, EntryKind.COMMAND, self.log[index - 1]) for index in range(first, last + 1)]

    def is_lost(self) -> bool:
        return self.chance.random() < self.loss

    def is_late(self) -> bool:
        return self.chance.random() < self.loss


class _Lane:
    """A node's path to the log, in place of the forwarder."""

    def __init__(self, store: VirtualStore, consensus: SimulatedMetadataLog) -> None:
        self._store = store
        self._consensus = consensus

    async def propose(self, data: bytes, timeout: float, until: CompletionPoint) -> CommittedPosition:
        consensus = self._consensus
        if self._store.is_cut_off() and consensus.chance.random() < 0.3:
            raise NotLeader(NO_NODE)
        if not (self._store.is_cut_off() or consensus.is_lost()):
            late = LATE_SECONDS_MAX if consensus.is_late() else 0.05
            # Without the proposer's context, so that it is committed even if its proposer was killed. Registrations are
            # excepted, because a late one would fence the next run of the process.
            context = self._store.life.context if self._store.is_registering else _NOBODYS_CONTEXT
            consensus.loop.call_later(consensus.chance.uniform(0.001, late), consensus.arrive, data, context=context)
        applied: asyncio.Future[None] = consensus.loop.create_future()
        self._store.awaited.setdefault(data, []).append(applied)
        try:
            async with asyncio.timeout(timeout):
                await applied
        except TimeoutError:
            raise OutcomeUnknown("no majority responded in time") from None
        return CommittedPosition(self._store.image.applied_index, 1)


class VirtualStore(RaftStore):
    """A metadata store that uses the simulated log."""

    def __init__(
        self,
        node_id: int,
        incarnation: bytes,
        consensus: SimulatedMetadataLog,
        life: ProcessRun,
        is_cut_off: Callable[[], bool],
    ) -> None:
        super().__init__(node_id, incarnation)
        self._consensus = consensus
        self._forwarder = cast(ProposalForwarder, _Lane(self, consensus))
        self.life = life
        self.is_cut_off = is_cut_off
        self.has_more = asyncio.Event()
        self.awaited: dict[bytes, list[asyncio.Future[None]]] = {}
        consensus.followers[node_id] = self

    async def propose(
        self, command: Command, timeout: float = PROPOSE_SECONDS, *, acks: Acks = Acks.ALL, local_only: bool = False
    ) -> ApplyResult:
        return await super().propose(command, timeout, acks=acks, local_only=local_only)

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Wait for the index that a majority would confirm."""
        index, deadline = len(self._consensus.log), self._consensus.loop.time() + seconds
        while self.is_cut_off() or self.image.applied_index < index:
            await self._breathe_until(deadline)

    def is_durable(self, index: int) -> bool:
        return index <= self.image.applied_index

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        deadline = self._consensus.loop.time() + seconds
        while self.image.applied_index < index:
            await self._breathe_until(deadline)

    async def _breathe_until(self, deadline: float) -> None:
        if self._consensus.loop.time() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        await asyncio.sleep(0.02)

    @property
    def is_registering(self) -> bool:
        """Whether the node is registering, during which nothing else is proposed."""
        broker = self.image.brokers.get(self._node_id)
        return broker is None or broker.incarnation != self.incarnation

    def begin(self, index: int) -> None:
        """Apply the local part of the log without notifications, and then notify subscribers once."""
        self.machine.apply(self._consensus.entries(1, index))
        self._started = True
        self._publish(diff_images(Image(), self.image))

    async def keep_applying(self) -> None:
        consensus, chance = self._consensus, self._consensus.chance
        while True:
            if self.image.applied_index == len(consensus.log):
                self.has_more.clear()
                await self.has_more.wait()
            await asyncio.sleep(chance.uniform(0.0005, consensus.lag_seconds_max))
            behind = len(consensus.log) - self.image.applied_index
            if self.is_cut_off() or behind == 0:
                await asyncio.sleep(0.05)
            elif behind > 3 and chance.random() < 0.2:
                self._install_snapshot()
            else:
                self._apply(chance.randint(1, behind))

    def _apply(self, count: int) -> None:
        first = self.image.applied_index + 1
        entries = self._consensus.entries(first, first + count - 1)
        self.machine.apply(entries)
        for entry in entries:
            self._tell(entry.data)

    def _tell(self, data: bytes) -> None:
        for waiter in self.awaited.pop(data, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _install_snapshot(self) -> None:
        """Install a snapshot in one step, because the real slices depend on the wall clock."""
        loader = SnapshotLoader()
        authority = self._consensus.image
        for chunk in encode_snapshot(authority.freeze()):
            loader.add(chunk)
        before, self.machine.image = self.image, loader.finish()
        self._publish(diff_images(before, self.image))
        self._on_snapshot_restored()
        for data in [data for data in self.awaited if data in self._consensus.log]:
            self._tell(data)
