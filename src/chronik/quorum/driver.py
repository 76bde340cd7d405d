"""One node's Raft on an event loop: carries events to the core, and carries out what the core wants.

The core itself keeps the order that safety rests on (see `chronik.raft`); here it is enough that a `Persist` is
durable before it is reported so, that there is one at a time, and that a failed one stops everything.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import msgspec

from chronik.errors import StorageFailed
from chronik.files import FileSystem
from chronik.meters import Histogram
from chronik.news import News
from chronik.peers.transport import PeerTransport
from chronik.quorum.applying import Applier
from chronik.quorum.messenger import Messenger
from chronik.quorum.outcomes import Committed, DriverStopped, OutcomeUnknown, Until
from chronik.quorum.peer_times import PeerTimes
from chronik.quorum.settings import TIMEOUT_SECONDS, DriverSettings, DriverStatus
from chronik.quorum.snapshotting import Snapshots, StateMachine
from chronik.quorum.storage import RaftStorage
from chronik.quorum.waiters import AppliedWaiters, Kind, Waiter, Waiters
from chronik.quorum.watchdog import LoopWatchdog
from chronik.quorum.writing import LogWriter
from chronik.raft.entries import SnapshotMetadata
from chronik.raft.events import (
    Applied,
    Campaign,
    ChangeMembership,
    Event,
    Persisted,
    Propose,
    ReadIndex,
    Ready,
    SnapshotTaken,
    Status,
    Tick,
    TransferLeadership,
)
from chronik.raft.membership import Change
from chronik.raft.messages import AnyMessage
from chronik.raft.node import RaftNode
from chronik.raft.roles import Role

logger = logging.getLogger("chronik.raft")

TURN_EVENTS_MAX: Final = 250
"""Events given to the core at once: a few milliseconds of work. The rest waits for the next turn, so that others get
the loop in between."""


class _Parts(msgspec.Struct):
    """The parts that exist from `start` to `stop`."""

    log_thread: Executor
    storage: RaftStorage
    writer: LogWriter
    snapshots: Snapshots
    applier: Applier


class RaftDriver:
    """`start` works without a quorum. `on_fatal` is called once, when the node must stop: nothing is said to anybody
    after that. `on_status` is called when role, term or leader change. `passes` says which messages go in and out."""

    def __init__(
        self,
        settings: DriverSettings,
        files: FileSystem,
        machine: StateMachine,
        transport: PeerTransport,
        *,
        on_fatal: Callable[[BaseException], None],
        on_status: Callable[[Status], None] = lambda status: None,
        passes: Callable[[AnyMessage], bool] = lambda message: True,
        randomness: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._files = files
        self._machine = machine
        self._on_fatal = on_fatal
        self._on_status = on_status
        self._random = randomness or random.Random()
        self.transport: Final = transport
        self.watchdog: Final = LoopWatchdog()

        self._loop: asyncio.AbstractEventLoop
        self._node: RaftNode
        self._parts: _Parts
        self._undo = AsyncExitStack()
        self._events: deque[Event] = deque()
        self._is_turn_due = False
        self._is_tick_waiting = False
        self._ticker: asyncio.TimerHandle | None = None
        self._waiters = Waiters()
        self._applied = AppliedWaiters()
        self._status_news = News()
        self._peer_times = PeerTimes()
        self._messenger = Messenger(settings.node_id, transport, self._peer_times, passes, self._feed)
        self._is_running = False
        self._failure: BaseException | None = None

    # ---------------------------------------------------------------------------------------------------------- life

    async def start(self) -> None:
        """Returns when the node takes part. Raises DataDamaged, StorageFailed or OSError; call `stop` then too."""
        self._loop = asyncio.get_running_loop()
        self._undo.push_async_callback(self.transport.stop)  # it may hold its port already
        self._parts = await self._open_parts()
        parts = self._parts
        snapshot = parts.storage.recovered.snapshot
        if snapshot.index:
            await parts.snapshots.restore(snapshot.index)
            self._applied.reached(snapshot.index)
        self._node = await self._loop.run_in_executor(parts.log_thread, self._make_node, parts.storage)
        self._is_running = True
        self._undo.push_async_callback(parts.writer.stop)
        parts.applier.start()
        self._undo.push_async_callback(parts.snapshots.stop)
        self._undo.push_async_callback(parts.applier.stop)
        self._undo.push_async_callback(self.transport.stop)
        await self.transport.start(self._messenger)
        self.watchdog.start()
        self._undo.callback(self.watchdog.stop)
        self._schedule_tick()
        if self._node.membership.voters == (self._settings.node_id,):
            self._feed(Campaign())  # nobody else could lead: no need to wait for silence
        self._feed()

    async def stop(self) -> None:
        """Finishes what is being written, and tells those who wait. Does nothing the second time."""
        self._is_running = False
        self._end_waiting(DriverStopped("the node stops"))
        if self._ticker is not None:
            self._ticker.cancel()
        await self._undo.aclose()

    async def _open_parts(self) -> _Parts:
        log_thread = ThreadPoolExecutor(1, thread_name_prefix="raft-log")
        self._undo.callback(log_thread.shutdown)
        snapshot_thread = ThreadPoolExecutor(1, thread_name_prefix="raft-snapshot")
        self._undo.callback(snapshot_thread.shutdown)
        opening = partial(RaftStorage.open, self._files, self._settings.folder)
        storage = await self._loop.run_in_executor(log_thread, opening)
        self._undo.push_async_callback(_run_in, log_thread, storage.close)
        writer = LogWriter(storage, log_thread, self._persisted, self._fail)
        snapshots = Snapshots(
            self._machine,
            storage,
            snapshot_thread,
            log_thread,
            self.watchdog,
            taken=self._snapshot_taken,
            read=self._feed,
            failed=self._fail,
        )
        applier = Applier(
            self._machine, snapshots, self._waiters, self._applied, self.watchdog, self._applied_through, self._fail
        )
        return _Parts(log_thread, storage, writer, snapshots, applier)

    def _make_node(self, storage: RaftStorage) -> RaftNode:
        """Is called in a thread, since it reads the whole log once."""
        settings = self._settings
        return RaftNode(
            settings.node_id,
            settings.directory_id,
            settings.raft,
            storage,
            storage.recovered,
            settings.bootstrap,
            self._random,
        )

    def _fail(self, error: BaseException) -> None:
        """Stops the node, and says nothing more to anybody: what is on disk, or in the state machine, is unknown."""
        if self._failure is not None:
            return
        self._failure = error
        self._is_running = False
        self._events.clear()
        self._end_waiting(StorageFailed(f"the node has stopped: {error}"))
        self._on_fatal(error)

    def _end_waiting(self, error: Exception) -> None:
        self._waiters.fail_all(error)
        self._applied.fail_all(error)
        self._status_news.tell()

    # ------------------------------------------------------------------------------------------------------- requests

    @property
    def node_id(self) -> int:
        return self._settings.node_id

    @property
    def leader(self) -> int:
        """The leader that this node knows of, perhaps itself, or NOBODY. Only after `start`."""
        return self._node.status.leader

    @property
    def sync_times(self) -> Histogram:
        """How long syncs of the log took. Only after `start`."""
        return self._parts.storage.sync_times

    @property
    def status(self) -> DriverStatus:
        """How this node stands. Only after `start`."""
        node = self._node
        return DriverStatus(
            role=node.status.role,
            term=node.status.term,
            leader=node.status.leader,
            first_index=node.first_index,
            last_index=node.last_index,
            durable_index=node.durable_index,
            commit_index=node.commit,
            applied_index=self._applied.index,
            snapshot_index=node.snapshot.index,
            membership=node.membership,
            membership_index=node.membership_index,
            matches=dict(node.matches()),
            peer_times=dict(self._peer_times.known),
            now=self._loop.time(),
            connected=tuple(self.transport.connected_peers),
            waiting=len(self._waiters),
        )

    def term_at(self, index: int) -> int | None:
        """Return the term of the log entry at `index`, or None if the log does not hold it. Only after `start`."""
        return self._node.term_at(index)

    async def propose(self, data: bytes, timeout: float = TIMEOUT_SECONDS, until: Until = Until.APPLIED) -> Committed:
        """Returns when the command is committed, and applied on this node, which must be the leader; or, if `until`
        asks for less, when it is on this node's disk.

        Raises NotLeader, ProposalRefused or ProposalLost when it is certain that the command is not committed and never
        will be, OutcomeUnknown when that is not certain, and DriverStopped or StorageFailed when the node has stopped.
        """
        waiter = self._open_waiter(Kind.APPLIED if until is Until.APPLIED else Kind.WRITTEN, timeout)
        self._feed(Propose((data,), waiter.context))
        committed: Committed = await waiter.answer
        return committed

    async def change_membership(self, change: Change, timeout: float = TIMEOUT_SECONDS) -> Committed:
        """Raises as `propose` does."""
        waiter = self._open_waiter(Kind.APPLIED, timeout)
        self._feed(ChangeMembership(change, waiter.context))
        committed: Committed = await waiter.answer
        return committed

    async def read_index(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Returns the index that must be applied for a read of the local state to be linearizable, on any node.

        Raises NotLeader when no leader is known or it changed meanwhile, ReadTimedOut, ProposalRefused, DriverStopped
        or StorageFailed.
        """
        waiter = self._open_waiter(Kind.READ, timeout)
        self._feed(ReadIndex(waiter.context))
        index: int = await waiter.answer
        return index

    async def wait_applied(self, index: int, timeout: float = TIMEOUT_SECONDS) -> None:
        """Returns when the state machine has applied `index`. Raises OutcomeUnknown."""
        self._refuse_when_stopped()
        await self._applied.wait(index, timeout)

    async def transfer_leadership(self, target: int, timeout: float = TIMEOUT_SECONDS) -> None:
        """Returns when this node does not lead any more.

        Raises NotLeader or ProposalRefused when the transfer was not begun, OutcomeUnknown when it took too long.
        """
        deadline = self._loop.time() + timeout
        waiter = self._open_waiter(Kind.TRANSFER, timeout)
        term = self._node.status.term
        self._feed(TransferLeadership(target, waiter.context))
        await waiter.answer
        while self._node.status.role is Role.LEADER and self._node.status.term == term:
            if not await self._status_news.since(self._status_news.count, deadline - self._loop.time()):
                raise OutcomeUnknown("leadership was not handed over in time")
            self._refuse_when_stopped()

    def _open_waiter(self, kind: Kind, timeout: float) -> Waiter:
        self._refuse_when_stopped()
        return self._waiters.open(kind, self._loop.time() + timeout)

    def _refuse_when_stopped(self) -> None:
        if self._failure is not None:
            raise StorageFailed(f"the node has stopped: {self._failure}")
        if not self._is_running:
            raise DriverStopped("the node does not run")

    # ------------------------------------------------------------------------------------------ events for the core

    def _feed(self, *events: Event) -> None:
        if not self._is_running:
            return
        self._events.extend(events)
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _schedule_tick(self) -> None:
        self._ticker = self._loop.call_later(self._settings.tick_seconds, self._tick)

    def _tick(self) -> None:
        """Feeds a tick, unless one waits for its turn already: time lost in a stall is not made up for."""
        if not self._is_tick_waiting:
            self._is_tick_waiting = True
            self._feed(Tick())
        self._waiters.expire(self._loop.time())
        self._schedule_tick()

    def _turn(self) -> None:
        self._is_turn_due = False
        if not self._is_running:
            return
        began = self._loop.time()
        events = [self._events.popleft() for _ in range(min(len(self._events), TURN_EVENTS_MAX))]
        try:
            ready = self._node.handle(*events)
            self._is_tick_waiting = False
            self._carry_out(ready)
        except Exception as error:
            self._fail(error)
            return
        if self._node.status.role is Role.LEADER:
            node = self._node
            self._peer_times.lead(node.membership, node.matches(), node.last_index, began)
        else:
            self._peer_times.follow()
        if self._events:
            self._feed()
        self.watchdog.ran("a turn of Raft", self._loop.time() - began)

    # --------------------------------------------------------------------------------------- what the core wants done

    def _carry_out(self, ready: Ready) -> None:
        if ready.persist is not None:
            self._parts.writer.put(ready.persist)
        if ready.messages:
            self._messenger.send(ready.messages)
        for outcome in ready.outcomes:
            self._waiters.take(outcome)
        self._waiters.written(self._node.durable_index, self._node.term_at)
        if ready.restore is not None:
            self._parts.applier.put(ready.restore)
        if ready.committed:
            self._parts.applier.put(ready.committed)
        for wanted in ready.chunks_wanted:
            self._parts.snapshots.read_piece(wanted, self._node.snapshot)
        for step in ready.steps:
            logger.info("node %d, %s", self._settings.node_id, step)
        if ready.status is not None:
            self._status_news.tell()
            self._on_status(ready.status)

    # ---------------------------------------------------------------------------------------------------- what is done

    def _persisted(self, sequence: int) -> None:
        self._feed(Persisted(sequence))

    def _applied_through(self, index: int) -> None:
        self._events.append(Applied(index))
        if self._node.commit > index:
            self._feed()  # the core has more to apply; otherwise it hears of this with whatever comes next
        self._begin_snapshot_if_due(index)

    def _begin_snapshot_if_due(self, index: int) -> None:
        applier, snapshots = self._parts.applier, self._parts.snapshots
        if not applier.is_snapshot_due(self._settings) or snapshots.is_under_way:
            return
        term = self._node.term_at(index)
        if term is None or index <= self._node.snapshot.index:
            return  # a received one, which waits to be written or restored, is newer
        applier.begun_snapshot()
        snapshots.begin(index, term, self._node.membership_at(index))

    def _snapshot_taken(self, snapshot: SnapshotMetadata) -> None:
        through = self._parts.storage.compaction_point(snapshot.index, self._settings.bytes_kept)
        self._feed(SnapshotTaken(snapshot, through))


async def _run_in(thread: Executor, work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(thread, work)
