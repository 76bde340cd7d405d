"""A coordinator for one kind of state machine: its lifecycle, and the loading and unloading of machines.

Machines are loaded from the image when a coordinator term starts, and unloaded when it ends. A fenced broker hosts no
machines: it rejects its clients, so it must not expire their sessions. There may be a hundred thousand machines, so
loading and unloading happen in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Final, Generic

from chronik.clock import Clock
from chronik.coordination.host import CoordinatorTerm, StateMachineHost, has_coordinator_term_changes
from chronik.coordination.machine import MachineT, StateMachineKind
from chronik.coordination.proposals import CoordinatorStore, ProposalQueue
from chronik.errors import InvariantError, exc_info_if_unexpected, find_root_cause
from chronik.metadata.delta import Delta
from chronik.protocol.errors import ErrorCode
from chronik.scheduler import run_in_slices

log = logging.getLogger("chronik.groups.coordinator")

FENCING_CHECK_SECONDS: Final = 0.5
"""Interval in seconds at which the coordinator checks whether this node is fenced."""


class StateMachineCoordinator(Generic[MachineT]):
    """A group or transaction coordinator, which runs one state machine for each key that this node coordinates."""

    def __init__(
        self,
        kind: StateMachineKind[MachineT],
        topic: str,
        store: CoordinatorStore,
        clock: Clock,
        owns: Callable[[str], CoordinatorTerm | None],
        is_fenced: Callable[[], bool],
        on_fatal: Callable[[BaseException], None] | None,
    ) -> None:
        """Create a coordinator.

        `owns` returns the term in which this node coordinates a key; the partition leaders of `topic` determine it.
        `is_fenced` returns whether the controller may consider this node dead. `on_fatal` receives failures of
        background tasks, after which the node must stop.
        """
        self._kind = kind
        self._topic = topic
        self._on_fatal = on_fatal
        self._proposals = ProposalQueue(store)
        self._host = StateMachineHost(
            kind, clock, self._proposals, owns, is_fenced, self._fail, self.execute_instruction
        )
        self._terms_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # --- lifecycle ---

    async def start(self) -> None:
        """Start serving requests, and load the state machines that the previous coordinator stored."""
        self._host.is_open = True
        self._terms_changed.set()
        self._tasks = [asyncio.create_task(job, name=f"{self._kind.name} coordinator") for job in self.jobs()]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    def jobs(self) -> list[Coroutine[None, None, None]]:
        """Return the coordinator's background jobs. The first one proposes queued commands; subclasses may add jobs."""
        return [self._proposals.run(), self._process_term_changes(), self._check_fencing_periodically()]

    def execute_instruction(self, machine: MachineT, what: object) -> None:
        """Execute the action of an `ExecuteAction` instruction. Overridden by coordinators whose state machines return
        it.
        """
        raise InvariantError(f"{self._kind.name} coordinator: unknown instruction {what!r}")

    async def close(self) -> None:
        """Unload all state machines, reply to all waiting requests, and complete the pending proposals."""
        if not self._tasks:
            return
        self._host.is_open = False
        proposals_task, *others = self._tasks
        self._tasks = []
        for task in others:
            task.cancel()
        await run_in_slices(self._unload_all_machines())
        self._proposals.close()
        await asyncio.wait([proposals_task, *others])

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop serving after an unexpected error, and reject all waiting requests."""
        log.critical(
            "%s coordinator stopped: %s",
            self._kind.name,
            find_root_cause(error),
            exc_info=exc_info_if_unexpected(error),
        )
        try:
            self._host.is_open = False
            for _ in self._unload_all_machines():
                pass
        finally:
            if self._on_fatal is not None:
                self._on_fatal(error)

    # --- terms ---

    def on_delta(self, delta: Delta) -> None:
        """Schedule the loading and unloading of state machines if a metadata change moves coordinated partitions."""
        if has_coordinator_term_changes(delta, self._topic):
            self._terms_changed.set()

    def schedule_check(self) -> None:
        """Schedule a background check that loads state machines with timers and processes expired deadlines."""
        self._terms_changed.set()

    def check_fencing(self) -> None:
        """Check whether this node is fenced, and schedule the unloading or loading of its state machines."""
        host = self._host
        if not host.is_open:
            return
        if not host.is_serving:
            host.machines_to_unload.update(dict.fromkeys(host))
            host.has_machines_to_load = True
        if host.has_machines_to_load:
            self._terms_changed.set()

    async def _check_fencing_periodically(self) -> None:
        while True:
            await asyncio.sleep(FENCING_CHECK_SECONDS)
            self.check_fencing()

    async def _process_term_changes(self) -> None:
        while True:
            await self._terms_changed.wait()
            self._terms_changed.clear()  # later changes are processed in the next iteration
            await run_in_slices(self._unload_lost_machines())
            await run_in_slices(self._load_owned_machines())

    def _unload_all_machines(self) -> Generator[None, None, None]:
        for machine in self._host:
            self._host.unload(machine)
            yield

    def _unload_lost_machines(self) -> Generator[None, None, None]:
        host = self._host
        while host.machines_to_unload:
            host.unload(next(iter(host.machines_to_unload)))
            yield
        for machine in host:
            if not host.is_term_running(machine):
                host.unload(machine)
            yield

    def _load_owned_machines(self) -> Generator[None, None, None]:
        """Load the state machines that may have timers. The others are loaded on their first request."""
        host = self._host
        host.has_machines_to_load = False
        for key in list(self._kind.stored_keys):
            if not host.is_serving:
                host.has_machines_to_load = True
                return
            if self._kind.may_have_timers(key):
                term = host.check_ownership(key)
                machine = None if isinstance(term, ErrorCode) else host.get(key, term)
                if machine is not None:
                    host.wake(machine)
                elif term is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    host.has_machines_to_load = True
            yield
