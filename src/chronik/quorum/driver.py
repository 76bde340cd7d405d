"""The event-loop driver of a Raft node: passes events to the core and executes its instructions.

The core guarantees the ordering that safety depends on (see `chronik.raft`). The driver must only report a `Persist`
after it is durable, write one at a time, and stop the node if a write fails.
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

from chronik.errors import StorageError
from chronik.files import FileSystem
from chronik.histogram import Histogram
from chronik.notifier import Notifier
from chronik.peers.transport import PeerTransport
from chronik.quorum.applier import Applier
from chronik.quorum.messenger import RaftMessenger
from chronik.quorum.outcomes import CommittedPosition, CompletionPoint, DriverStopped, OutcomeUnknown
from chronik.quorum.peer_activity import PeerActivityTracker
from chronik.quorum.settings import DEFAULT_TIMEOUT_SECONDS, DriverSettings, DriverStatus
from chronik.quorum.snapshot_manager import SnapshotManager, StateMachine
from chronik.quorum.storage import RaftLogWriter, RaftStorage
from chronik.quorum.waiters import AppliedWaiters, RequestWaiters, Waiter, WaiterKind
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.raft.entries import SnapshotMetadata
from chronik.raft.events import (
    Campaign,
    ChangeMembership,
    EntriesApplied,
    Persisted,
    Propose,
    RaftEvent,
    RaftStatus,
    ReadIndex,
    Ready,
    SnapshotTaken,
    Tick,
    TransferLeadership,
)
from chronik.raft.membership import MembershipChange
from chronik.raft.messages import AnyRaftMessage
from chronik.raft.node import RaftNode
from chronik.raft.roles import Role

logger = logging.getLogger("chronik.raft")

EVENTS_PER_ITERATION_MAX: Final = 250
"""The maximum number of Raft events processed per event-loop iteration, which takes a few milliseconds."""


class _DriverComponents(msgspec.Struct):
    """The components of a Raft driver that exist only while it is started."""

    log_thread: Executor
    storage: RaftStorage
    writer: RaftLogWriter
    snapshots: SnapshotManager
    applier: Applier


class RaftDriver:
    """The driver that runs a Raft node on the event loop and connects it to its storage, transport and state machine.

    `start` does not require a quorum. `on_fatal` is called once if the node must stop; it sends no messages after that.
    `on_status` is called when the role, term or leader changes. `passes` filters messages in both directions.
    """

    def __init__(
        self,
        settings: DriverSettings,
        files: FileSystem,
        machine: StateMachine,
        transport: PeerTransport,
        *,
        on_fatal: Callable[[BaseException], None],
        on_status: Callable[[RaftStatus], None] = lambda status: None,
        is_message_allowed: Callable[[AnyRaftMessage], bool] = lambda message: True,
        randomness: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._files = files
        self._machine = machine
        self._on_fatal = on_fatal
        self._on_status = on_status
        self._random = randomness or random.Random()
        self.transport: Final = transport
        self.watchdog: Final = EventLoopWatchdog()

        self._loop: asyncio.AbstractEventLoop
        self._node: RaftNode
        self._components: _DriverComponents
        self._exit_stack = AsyncExitStack()
        self._events: deque[RaftEvent] = deque()
        self._is_iteration_scheduled = False
        self._is_tick_queued = False
        self._ticker: asyncio.TimerHandle | None = None
        self._waiters = RequestWaiters()
        self._applied = AppliedWaiters()
        self._status_changes = Notifier()
        self._peer_times = PeerActivityTracker()
        self._messenger = RaftMessenger(settings.node_id, transport, self._peer_times, is_message_allowed, self._feed)
        self._is_running = False
        self._failure: BaseException | None = None

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def start(self) -> None:
        """Recover the Raft node from disk, and start the peer transport and the node.

        Raises DamagedDataError, StorageError or OSError; call `stop` in that case, too.
        """
        self._loop = asyncio.get_running_loop()
        self._exit_stack.push_async_callback(self.transport.stop)  # the transport may already listen on its port
        self._components = await self._open_components()
        components = self._components
        snapshot = components.storage.recovered.snapshot
        if snapshot.index:
            await components.snapshots.restore(snapshot.index)
            self._applied.advance_applied_index(snapshot.index)
        self._node = await self._loop.run_in_executor(components.log_thread, self._create_raft_node, components.storage)
        self._is_running = True
        self._exit_stack.push_async_callback(components.writer.stop)
        components.applier.start()
        self._exit_stack.push_async_callback(components.snapshots.stop)
        self._exit_stack.push_async_callback(components.applier.stop)
        self._exit_stack.push_async_callback(self.transport.stop)
        await self.transport.start(self._messenger)
        self.watchdog.start()
        self._exit_stack.callback(self.watchdog.stop)
        self._schedule_tick()
        if self._node.membership.voters == (self._settings.node_id,):
            self._feed(Campaign())  # the only voter need not wait for an election timeout
        self._feed()

    async def stop(self) -> None:
        """Complete the current write, fail all pending requests, and stop the Raft node."""
        self._is_running = False
        self._fail_pending_requests(DriverStopped("the node is shutting down"))
        if self._ticker is not None:
            self._ticker.cancel()
        await self._exit_stack.aclose()

    async def _open_components(self) -> _DriverComponents:
        log_thread = ThreadPoolExecutor(1, thread_name_prefix="raft-log")
        self._exit_stack.callback(log_thread.shutdown)
        snapshot_thread = ThreadPoolExecutor(1, thread_name_prefix="raft-snapshot")
        self._exit_stack.callback(snapshot_thread.shutdown)
        open_storage = partial(RaftStorage.open, self._files, self._settings.directory)
        storage = await self._loop.run_in_executor(log_thread, open_storage)
        self._exit_stack.push_async_callback(_run_in_executor, log_thread, storage.close)
        writer = RaftLogWriter(storage, log_thread, self._on_persisted, self._fail)
        snapshots = SnapshotManager(
            self._machine,
            storage,
            snapshot_thread,
            log_thread,
            self.watchdog,
            on_taken=self._on_snapshot_taken,
            on_chunk_read=self._feed,
            on_failure=self._fail,
        )
        applier = Applier(
            self._machine, snapshots, self._waiters, self._applied, self.watchdog, self._on_applied, self._fail
        )
        return _DriverComponents(log_thread, storage, writer, snapshots, applier)

    def _create_raft_node(self, storage: RaftStorage) -> RaftNode:
        """Create the Raft node. Runs in a thread, because it reads the whole log."""
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
        """Stop the Raft node after a failure of the disk or the state machine."""
        if self._failure is not None:
            return
        self._failure = error
        self._is_running = False
        self._events.clear()
        self._fail_pending_requests(StorageError(f"the node has stopped after a failure: {error}"))
        self._on_fatal(error)

    def _fail_pending_requests(self, error: Exception) -> None:
        self._waiters.fail_all(error)
        self._applied.fail_all(error)
        self._status_changes.notify()

    # ------------------------------------------------------------------------------------------------------- requests

    @property
    def node_id(self) -> int:
        return self._settings.node_id

    @property
    def leader(self) -> int:
        """The node id of the current Raft leader, or NO_NODE if this node knows none. Available after `start`."""
        return self._node.status.leader

    @property
    def sync_times(self) -> Histogram:
        """The histogram of the Raft log's sync durations. Available after `start`."""
        return self._components.storage.sync_times

    @property
    def status(self) -> DriverStatus:
        """The current status of the Raft node. Available after `start`."""
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
            match_indexes=dict(node.match_indexes()),
            peer_activity=dict(self._peer_times.by_peer),
            now=self._loop.time(),
            connected=tuple(self.transport.connected_peers),
            pending_requests=len(self._waiters),
        )

    def term_at(self, index: int) -> int | None:
        """Return the Raft term of the log entry at `index`, or None if the log does not contain the entry."""
        return self._node.term_at(index)

    async def propose(
        self, data: bytes, timeout: float = DEFAULT_TIMEOUT_SECONDS, until: CompletionPoint = CompletionPoint.APPLIED
    ) -> CommittedPosition:
        """Propose a command on this node, which must be the Raft leader, and wait until it is committed and applied.

        With another `until`, return as soon as the command is on this node's disk.

        Raises:
            NotLeader, ProposalRejected, ProposalLost: The command is not and never will be committed.
            OutcomeUnknown: The command may or may not be committed.
            DriverStopped, StorageError: The node has stopped.
        """
        waiter = self._open_waiter(
            WaiterKind.APPLIED if until is CompletionPoint.APPLIED else WaiterKind.WRITTEN, timeout
        )
        self._feed(Propose((data,), waiter.context))
        committed: CommittedPosition = await waiter.future
        return committed

    async def change_membership(
        self, change: MembershipChange, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> CommittedPosition:
        """Propose a membership change and wait until it is committed. Raises the same exceptions as `propose`."""
        waiter = self._open_waiter(WaiterKind.APPLIED, timeout)
        self._feed(ChangeMembership(change, waiter.context))
        committed: CommittedPosition = await waiter.future
        return committed

    async def read_index(self, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> int:
        """Return the log index that this node must apply before it can serve a linearizable read (Raft's ReadIndex).

        Raises:
            NotLeader: No leader is known, or the leader has changed.
            ReadTimedOut, ProposalRejected, DriverStopped, StorageError: The read was not confirmed.
        """
        waiter = self._open_waiter(WaiterKind.READ, timeout)
        self._feed(ReadIndex(waiter.context))
        index: int = await waiter.future
        return index

    async def wait_applied(self, index: int, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Wait until the state machine has applied the entry at `index`. Raise OutcomeUnknown after the timeout."""
        self._check_driver_running()
        await self._applied.wait(index, timeout)

    async def transfer_leadership(self, target: int, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Transfer the Raft leadership to another voter, and wait until this node is no longer the leader.

        Raises:
            NotLeader, ProposalRejected: The transfer was not started.
            OutcomeUnknown: The transfer did not complete before the timeout.
        """
        deadline = self._loop.time() + timeout
        waiter = self._open_waiter(WaiterKind.TRANSFER, timeout)
        term = self._node.status.term
        self._feed(TransferLeadership(target, waiter.context))
        await waiter.future
        while self._node.status.role is Role.LEADER and self._node.status.term == term:
            if not await self._status_changes.wait(self._status_changes.generation, deadline - self._loop.time()):
                raise OutcomeUnknown(f"leadership transfer to node {target} did not complete in time")
            self._check_driver_running()

    def _open_waiter(self, kind: WaiterKind, timeout: float) -> Waiter:
        self._check_driver_running()
        return self._waiters.add(kind, self._loop.time() + timeout)

    def _check_driver_running(self) -> None:
        if self._failure is not None:
            raise StorageError(f"the node has stopped after a failure: {self._failure}")
        if not self._is_running:
            raise DriverStopped("the node is not running")

    # -------------------------------------------------------------------------------------------- events for the core

    def _feed(self, *events: RaftEvent) -> None:
        if not self._is_running:
            return
        self._events.extend(events)
        if not self._is_iteration_scheduled:
            self._is_iteration_scheduled = True
            self._loop.call_soon(self._process_events)

    def _schedule_tick(self) -> None:
        self._ticker = self._loop.call_later(self._settings.tick_seconds, self._tick)

    def _tick(self) -> None:
        """Queue a tick of the Raft clock unless one is queued, so that ticks missed during a stall are skipped."""
        if not self._is_tick_queued:
            self._is_tick_queued = True
            self._feed(Tick())
        self._waiters.expire_requests(self._loop.time())
        self._schedule_tick()

    def _process_events(self) -> None:
        self._is_iteration_scheduled = False
        if not self._is_running:
            return
        started = self._loop.time()
        events = [self._events.popleft() for _ in range(min(len(self._events), EVENTS_PER_ITERATION_MAX))]
        try:
            ready = self._node.handle(*events)
            self._is_tick_queued = False
            self._execute_ready_instructions(ready)
        except Exception as error:
            self._fail(error)
            return
        if self._node.status.role is Role.LEADER:
            node = self._node
            self._peer_times.update(node.membership, node.match_indexes(), node.last_index, started)
        else:
            self._peer_times.clear()
        if self._events:
            self._feed()
        self.watchdog.record("Raft event processing", self._loop.time() - started)

    # ------------------------------------------------------------------------------------------ instructions of the
    # core

    def _execute_ready_instructions(self, ready: Ready) -> None:
        if ready.persist is not None:
            self._components.writer.write(ready.persist)
        if ready.messages:
            self._messenger.send(ready.messages)
        for outcome in ready.outcomes:
            self._waiters.complete(outcome)
        self._waiters.complete_written_requests(self._node.durable_index, self._node.term_at)
        if ready.restore is not None:
            self._components.applier.enqueue(ready.restore)
        if ready.committed:
            self._components.applier.enqueue(ready.committed)
        for chunk_request in ready.chunk_requests:
            self._components.snapshots.read_chunk(chunk_request, self._node.snapshot)
        for transition in ready.role_transitions:
            logger.info("node %d: role changed: %s", self._settings.node_id, transition)
        if ready.status is not None:
            self._status_changes.notify()
            self._on_status(ready.status)

    # ------------------------------------------------------------------------------------------------------ completions

    def _on_persisted(self, sequence: int) -> None:
        self._feed(Persisted(sequence))

    def _on_applied(self, index: int) -> None:
        self._events.append(EntriesApplied(index))
        if self._node.commit > index:
            self._feed()  # the core has more entries to apply; otherwise it processes this with the next event
        self._start_snapshot_if_due(index)

    def _start_snapshot_if_due(self, index: int) -> None:
        applier, snapshots = self._components.applier, self._components.snapshots
        if not applier.is_snapshot_due(self._settings) or snapshots.is_running:
            return
        term = self._node.term_at(index)
        if term is None or index <= self._node.snapshot.index:
            return  # a received snapshot that is not written or restored yet is newer
        applier.reset_snapshot_counters()
        snapshots.start(index, term, self._node.membership_at(index))

    def _on_snapshot_taken(self, snapshot: SnapshotMetadata) -> None:
        through = self._components.storage.find_compaction_index(snapshot.index, self._settings.retained_log_bytes)
        self._feed(SnapshotTaken(snapshot, through))


async def _run_in_executor(thread: Executor, work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(thread, work)
