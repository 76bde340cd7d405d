"""The state machines that this node hosts: passes events to them and executes their instructions in order.

The leader of a partition of a system topic coordinates the keys of that partition, for a coordinator term. A standalone
node coordinates every key permanently.

Only stored state passes from one coordinator term to the next, even on the same node. The coordinator loads and unloads
machines in slices, shortly after the image changes. Callers are not affected: a request for a key of another node is
rejected, and a machine that is not loaded yet is loaded on demand.

All code runs on one event loop without locks: a machine changes only between two awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from chronik.clock import Clock
from chronik.coordination.machine import (
    CoordinatorChanged,
    DeadlineCheckDue,
    ExecuteAction,
    Instruction,
    MachineT,
    StateDeleted,
    StateMachineEvent,
    StateMachineKind,
    StateMachineReply,
    StateMachineRequest,
    StateStored,
    StateStoreFailed,
    StoreState,
    Unload,
)
from chronik.coordination.proposals import ProposalQueue
from chronik.errors import check_invariant
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.delta import Delta
from chronik.metadata.records import Topic
from chronik.metadata.stores.local_store import LocalStore
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode

log = logging.getLogger("chronik.groups.hosting")

ReplyT = TypeVar("ReplyT")
P = ParamSpec("P")


class CoordinatorTerm(NamedTuple):
    """A period in which a node coordinates a key. A node that is elected again starts a new term.

    State in the node's memory is then invalid: it may never have been stored, or another node may have changed it.
    """

    epoch: int
    """Leader epoch of the partition that determines the coordinator. Commands with an earlier epoch are rejected."""


STANDALONE_TERM: Final = CoordinatorTerm(NO_EPOCH)
"""The term of a standalone node, which always coordinates all keys."""


class CoordinatorTerms:
    """A lookup of the node that coordinates a group id or transactional id, according to the metadata image."""

    def __init__(self, store: MetadataStore, node_id: int, topic: str) -> None:
        self._store = store
        self._node_id = node_id
        self._topic = topic
        # The image cannot tell: before its nodes are recorded, a cluster's image is empty, too.
        self.is_standalone: Final = isinstance(store, LocalStore)

    def coordinator_of(self, key: str) -> int:
        """Return the id of the node that coordinates a group or transactional id, or -1 if there is none."""
        if self.is_standalone:
            return self._node_id
        partition = self._store.image.find_coordinator_partition(self._topic, key)
        return -1 if partition is None else partition.leader

    def find_owned_term(self, key: str) -> CoordinatorTerm | None:
        """Return the term in which this node coordinates a group or transactional id, or None if another node does."""
        if self.is_standalone:
            return STANDALONE_TERM
        partition = self._store.image.find_coordinator_partition(self._topic, key)
        if partition is None or partition.leader != self._node_id:
            return None
        return CoordinatorTerm(partition.leader_epoch)


def has_coordinator_term_changes(delta: Delta, topic: str) -> bool:
    """Return whether a metadata change gives a partition of the coordinator topic another leader or leader epoch."""
    return any(
        _list_leader_epochs(change.old) != _list_leader_epochs(change.new)
        for change in delta.topics
        if topic in (change.old.name if change.old else "", change.new.name if change.new else "")
    )


def _list_leader_epochs(topic: Topic | None) -> list[tuple[int, int]]:
    return [(partition.leader, partition.leader_epoch) for partition in topic.partitions] if topic is not None else []


class StateMachineTimers(Generic[MachineT]):
    """The timers of all state machines that this node hosts; each fires at the machine's next deadline."""

    def __init__(self, now_ms: Callable[[], int], on_timeout: Callable[[MachineT], None]) -> None:
        self._now_ms = now_ms
        self._on_timeout = on_timeout
        self._timers: dict[MachineT, tuple[int, asyncio.TimerHandle]] = {}

    def schedule(self, machine: MachineT) -> None:
        """Schedule a state machine's timer. An earlier timer is kept, because deadlines are often postponed."""
        wake_at_ms = machine.wake_at_ms
        scheduled = self._timers.get(machine)
        if scheduled is not None:
            at_ms, timer = scheduled
            if wake_at_ms is not None and at_ms <= wake_at_ms:
                return
            timer.cancel()
            del self._timers[machine]
        if wake_at_ms is not None:
            delay_seconds = max(wake_at_ms - self._now_ms(), 0) / 1000
            timer = asyncio.get_running_loop().call_later(delay_seconds, self._fire, machine)
            self._timers[machine] = (wake_at_ms, timer)

    def _fire(self, machine: MachineT) -> None:
        del self._timers[machine]
        self._on_timeout(machine)


class StateMachineHost(Generic[MachineT]):
    """The host of all state machines of one kind on this node: passes them events and executes their instructions."""

    def __init__(
        self,
        kind: StateMachineKind[MachineT],
        clock: Clock,
        proposals: ProposalQueue,
        owns: Callable[[str], CoordinatorTerm | None],
        is_fenced: Callable[[], bool],
        on_fatal: Callable[[BaseException], None],
        act: Callable[[MachineT, object], None],
    ) -> None:
        self._kind = kind
        self._act = act
        self._clock = clock
        self._proposals = proposals
        self._owns = owns
        self._is_fenced = is_fenced
        self._on_fatal = on_fatal
        self.is_open = False
        """Whether the host serves requests. If not, waiting requests are rejected when their machines are unloaded."""
        self._machines: dict[str, MachineT] = {}
        self.machines_to_unload: dict[MachineT, None] = {}
        """State machines to unload even if their term is still running, because the node was fenced after loading them.
        """
        self.has_machines_to_load = False
        """Whether some state machines with timers have not been loaded yet."""
        self._pending_stores: Counter[tuple[str, int]] = Counter()
        """Number of pending store commands by key and coordinator term, including those of unloaded state machines."""
        self._memory_by_machine: dict[MachineT, int] = {}
        self.memory_bytes = 0
        """Memory in bytes that all hosted state machines use, as they report it."""
        self._timers = StateMachineTimers[MachineT](self.now_ms, self._on_timeout)
        self._waiters: dict[int, asyncio.Future[object]] = {}
        self._last_waiter = 0

    @property
    def is_serving(self) -> bool:
        return self.is_open and not self._is_fenced()

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[MachineT]:
        """Iterate over a copy of the hosted state machines, because machines are added and removed concurrently."""
        return iter(list(self._machines.values()))

    # --- ownership of keys ---

    def check_ownership(self, key: str) -> CoordinatorTerm | ErrorCode:
        """Return the term in which this node coordinates the key, or the error to return to the client.

        A machine left from an earlier term is unloaded first, because it may have pending store commands.
        """
        if not self.is_serving:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        term = self._owns(key)
        if term is None:
            return ErrorCode.NOT_COORDINATOR
        machine = self._machines.get(key)
        if machine is not None:
            if self._is_in_term(machine, term):
                return term
            self.unload(machine)
        # The image is outdated until all store commands of this term are decided. Those of earlier terms are rejected
        # by their epoch.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if (key, term.epoch) in self._pending_stores else term

    def is_term_running(self, machine: MachineT) -> bool:
        """Return whether the coordinator term of a state machine is still running. If not, it must not execute
        instructions.
        """
        if self._is_fenced():
            self.has_machines_to_load = True
            return False
        term = self._owns(machine.key)
        return self.is_open and term is not None and self._is_in_term(machine, term)

    def _is_in_term(self, machine: MachineT, term: CoordinatorTerm) -> bool:
        return machine.epoch == term.epoch and machine not in self.machines_to_unload

    def unload(self, machine: MachineT) -> None:
        self.machines_to_unload.pop(machine, None)
        self.handle_event(machine, CoordinatorChanged(self.now_ms()))

    # --- machines by key ---

    def get(self, key: str, term: CoordinatorTerm) -> MachineT | None:
        """Return the state machine of a key, loaded from the metadata image if necessary, or None if there is none."""
        if self.unload_if_deleted(key):
            return None
        machine = self.peek(key, term)
        if machine is not None and key not in self._machines:
            self.add(machine)
        return machine

    def peek(self, key: str, term: CoordinatorTerm) -> MachineT | None:
        """Return the state machine of a key like `get`, but without keeping a newly loaded one in memory."""
        return self._machines.get(key) or self._kind.load(key, term.epoch, self.now_ms())

    def get_hosted_machine(self, key: str) -> MachineT | None:
        return self._machines.get(key)

    def wake(self, machine: MachineT) -> None:
        """Let an idle state machine process expired deadlines, because a late command may have changed its stored
        state.
        """
        if machine.is_idle:
            self.handle_event(machine, DeadlineCheckDue(self.now_ms()))

    def add(self, machine: MachineT) -> None:
        check_invariant(machine.key not in self._machines, f"{self._kind.name} {machine.key!r} is already hosted")
        self._machines[machine.key] = machine
        self._update_memory(machine)
        self._timers.schedule(machine)

    def unload_if_deleted(self, key: str) -> bool:
        """Unload a state machine whose stored state was deleted or has expired. Return whether it was unloaded.

        Such a deletion can be the result of a command whose outcome was unknown.
        """
        machine = self._machines.get(key)
        if machine is None or not machine.is_idle or key in self._kind.stored_keys:
            return False
        self.handle_event(machine, StateDeleted(self.now_ms()))
        return True

    def unload_deleted(self) -> Generator[None, None, None]:
        for machine in self:
            self.unload_if_deleted(machine.key)
            yield

    def iterate_owned_machines(self) -> Iterator[MachineT | str | None]:
        """Yield the state machines that this node hosts, then the keys of those that it coordinates but has not loaded.

        Yield None for machines of other nodes, so that the caller can pause there.
        """
        if not self.is_serving:
            return
        seen = set()
        for machine in self:
            is_owned = self.is_term_running(machine) and not self.unload_if_deleted(machine.key)
            if is_owned:
                seen.add(machine.key)
            yield machine if is_owned else None
        for key in list(self._kind.stored_keys):
            yield key if key not in seen and self._owns(key) is not None else None

    # --- events ---

    def now_ms(self) -> int:
        """Return the monotonic time in milliseconds, which state machine events carry."""
        return int(self._clock.monotonic() * 1000)

    async def request(
        self,
        machine: MachineT,
        kind: type[ReplyT],
        question: Callable[Concatenate[int, int, P], StateMachineRequest],
        *about: P.args,
        **named: P.kwargs,
    ) -> ReplyT:
        """Send a request to a state machine and return its reply. Cancelling the caller does not cancel the request."""
        self._last_waiter += 1
        waiter = self._last_waiter
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = future
        try:
            self.handle_event(machine, question(self.now_ms(), waiter, *about, **named))
            answer = await future
        finally:
            del self._waiters[waiter]
        if not isinstance(answer, kind):
            raise TypeError(f"{question}: unexpected reply {answer!r}")
        return answer

    def handle_event(self, machine: MachineT, event: StateMachineEvent) -> None:
        for instruction in machine.handle(event):
            self._execute_instruction(machine, instruction)
        self._update_memory(machine)
        self._timers.schedule(machine)

    def _execute_instruction(self, machine: MachineT, instruction: Instruction) -> None:
        match instruction:
            case StateMachineReply():
                waiter = self._waiters.get(instruction.waiter)
                if waiter is not None and not waiter.done():
                    waiter.set_result(instruction.reply)
            case StoreState():
                self._pending_stores[machine.key, machine.epoch] += 1
                command = instruction.change.to_command(machine.epoch, self._clock.now_ms())
                self._proposals.submit(machine.key, command, partial(self._on_stored, machine, instruction.ticket))
            case ExecuteAction():
                self._act(machine, instruction.action)
            case Unload():
                if self._machines.get(machine.key) is machine:
                    del self._machines[machine.key]

    def _on_stored(self, machine: MachineT, ticket: int, error: ErrorCode | None) -> None:
        key_and_epoch = (machine.key, machine.epoch)
        self._pending_stores[key_and_epoch] -= 1
        if not self._pending_stores[key_and_epoch]:
            del self._pending_stores[key_and_epoch]
        if error is None:
            self.handle_event(machine, StateStored(self.now_ms(), ticket))
        elif not self.is_term_running(machine):
            self.handle_event(machine, CoordinatorChanged(self.now_ms()))
        else:
            log.warning(
                "%s %r: metadata write failed: error=%s; the write is retried or the request is rejected",
                self._kind.name,
                machine.key,
                error.name,
            )
            self.handle_event(machine, StateStoreFailed(self.now_ms(), ticket, error))

    def _update_memory(self, machine: MachineT) -> None:
        """Update the total memory usage after a change of a state machine. Unloaded machines do not count."""
        memory_bytes_now = machine.memory_bytes if self._machines.get(machine.key) is machine else 0
        self.memory_bytes += memory_bytes_now - self._memory_by_machine.get(machine, 0)
        if memory_bytes_now:
            self._memory_by_machine[machine] = memory_bytes_now
        else:
            self._memory_by_machine.pop(machine, None)

    def _on_timeout(self, machine: MachineT) -> None:
        try:
            self.handle_event(
                machine, (DeadlineCheckDue if self.is_term_running(machine) else CoordinatorChanged)(self.now_ms())
            )
        except Exception as bug:  # an exception in a timer callback would only be logged
            self._on_fatal(bug)
