"""The machines that this node holds: callers get one if the term is ours, events go in, and the machines' instructions
are carried out in order.

Nothing but what is stored passes from one term to the next, even on the same node. Machines are taken up and let go of
in slices (`coordinator`), a little after the image changes. Callers do not notice: a key that is not ours is refused,
and one that is ours and not taken up yet is taken up at once.

There is one event loop and no lock: a machine changes only between two awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Concatenate, Generic, ParamSpec, TypeVar

from chronik.clock import Clock
from chronik.coordination.alarms import Alarms
from chronik.coordination.machine import (
    Act,
    Dropped,
    Event,
    Forget,
    Instruction,
    Kind,
    MachineT,
    Question,
    Reply,
    Store,
    Stored,
    StoreFailed,
    TakenOver,
    TimePassed,
)
from chronik.coordination.proposals import Proposals
from chronik.coordination.tenure import Tenure
from chronik.errors import invariant
from chronik.protocol.errors import ErrorCode

log = logging.getLogger("chronik.groups.hosting")

AnswerT = TypeVar("AnswerT")
P = ParamSpec("P")


class Custody(Generic[MachineT]):
    def __init__(
        self,
        kind: Kind[MachineT],
        clock: Clock,
        proposals: Proposals,
        owns: Callable[[str], Tenure | None],
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
        """While False, nobody is served; those who wait are sent away when their machines are let go of."""
        self._machines: dict[str, MachineT] = {}
        self.given_up: dict[MachineT, None] = {}
        """Machines to let go of though their term may be running: the node was fenced since they were taken up."""
        self.has_left_some = False
        """Whether machines that are ours have yet to be taken up, as soon as possible."""
        self._unsettled: Counter[tuple[str, int]] = Counter()
        """How much is on its way to the store, by key and term; also from machines that were let go of since."""
        self._weights: dict[MachineT, int] = {}
        self.memory_bytes = 0
        """What all machines in hand hold, as they count it themselves."""
        self._alarms = Alarms[MachineT](self.now_ms, self._ring)
        self._waiters: dict[int, asyncio.Future[object]] = {}
        self._last_waiter = 0

    @property
    def is_serving(self) -> bool:
        return self.is_open and not self._is_fenced()

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[MachineT]:
        """Walks over a copy: machines come and go meanwhile."""
        return iter(list(self._machines.values()))

    # --- whose a key is ---

    def claim(self, key: str) -> Tenure | ErrorCode:
        """Returns the term in which the key is ours, or why it cannot be served now. A machine left from a term that is
        over is let go of first: it may have something on its way to the store."""
        if not self.is_serving:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        tenure = self._owns(key)
        if tenure is None:
            return ErrorCode.NOT_COORDINATOR
        machine = self._machines.get(key)
        if machine is not None:
            if self._is_of(machine, tenure):
                return tenure
            self.let_go(machine)
        # The image is out of date until everything that was sent in this very term is decided. What was sent in earlier
        # terms is refused anyway.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if (key, tenure.epoch) in self._unsettled else tenure

    def holds(self, machine: MachineT) -> bool:
        """Whether the term in which it was taken up is still running; if not, it must not do anything more."""
        if self._is_fenced():
            self.has_left_some = True
            return False
        tenure = self._owns(machine.key)
        return self.is_open and tenure is not None and self._is_of(machine, tenure)

    def _is_of(self, machine: MachineT, tenure: Tenure) -> bool:
        return machine.epoch == tenure.epoch and machine not in self.given_up

    def let_go(self, machine: MachineT) -> None:
        self.given_up.pop(machine, None)
        self.feed(machine, TakenOver(self.now_ms()))

    # --- machines by key ---

    def get(self, key: str, tenure: Tenure) -> MachineT | None:
        """Returns the machine of a key that is ours in this term; None when there is none. One that nobody has asked
        for yet may be in the image alone, and is taken up."""
        if self.forget_if_gone(key):
            return None
        machine = self.peek(key, tenure)
        if machine is not None and key not in self._machines:
            self.add(machine)
        return machine

    def peek(self, key: str, tenure: Tenure) -> MachineT | None:
        """Does as `get`, for a caller that only looks: the machine is not taken up."""
        return self._machines.get(key) or self._kind.load(key, tenure.epoch, self.now_ms())

    def in_hand(self, key: str) -> MachineT | None:
        return self._machines.get(key)

    def wake(self, machine: MachineT) -> None:
        """Lets a machine that nobody needs look whether something is due: what is stored may have changed without it,
        by a command whose outcome was not known in time."""
        if machine.is_idle:
            self.feed(machine, TimePassed(self.now_ms()))

    def add(self, machine: MachineT) -> None:
        invariant(machine.key not in self._machines, f"{self._kind.name} {machine.key!r} is in hand already")
        self._machines[machine.key] = machine
        self._weigh(machine)
        self._alarms.set(machine)

    def forget_if_gone(self, key: str) -> bool:
        """Forgets a machine that was deleted or expired after all, by a command whose outcome was not known in time,
        and returns whether it was: a machine that nobody needs must not be in memory alone."""
        machine = self._machines.get(key)
        if machine is None or not machine.is_idle or key in self._kind.stored:
            return False
        self.feed(machine, Dropped(self.now_ms()))
        return True

    def forget_what_is_gone(self) -> Generator[None, None, None]:
        for machine in self:
            self.forget_if_gone(machine.key)
            yield

    def all_ours(self) -> Iterator[MachineT | str | None]:
        """Yields the machines in memory, and the keys of those that are in the image alone; None for one that is not
        ours, so that the caller may pause there."""
        if not self.is_serving:
            return
        seen = set()
        for machine in self:
            is_ours = self.holds(machine) and not self.forget_if_gone(machine.key)
            if is_ours:
                seen.add(machine.key)
            yield machine if is_ours else None
        for key in list(self._kind.stored):
            yield key if key not in seen and self._owns(key) is not None else None

    # --- machines at work ---

    def now_ms(self) -> int:
        """Returns the time for events: it never goes back, and says nothing about the time of day."""
        return int(self._clock.monotonic() * 1000)

    async def ask(
        self,
        machine: MachineT,
        kind: type[AnswerT],
        question: Callable[Concatenate[int, int, P], Question],
        *about: P.args,
        **named: P.kwargs,
    ) -> AnswerT:
        """Returns the machine's answer. A caller that is cancelled just stops waiting: the machine is not told."""
        self._last_waiter += 1
        waiter = self._last_waiter
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = future
        try:
            self.feed(machine, question(self.now_ms(), waiter, *about, **named))
            answer = await future
        finally:
            del self._waiters[waiter]
        if not isinstance(answer, kind):
            raise TypeError(f"{question} was answered with {answer!r}")
        return answer

    def feed(self, machine: MachineT, event: Event) -> None:
        for instruction in machine.handle(event):
            self._carry_out(machine, instruction)
        self._weigh(machine)
        self._alarms.set(machine)

    def _carry_out(self, machine: MachineT, instruction: Instruction) -> None:
        match instruction:
            case Reply():
                waiter = self._waiters.get(instruction.waiter)
                if waiter is not None and not waiter.done():
                    waiter.set_result(instruction.answer)
            case Store():
                self._unsettled[machine.key, machine.epoch] += 1
                command = instruction.what.as_command(machine.epoch, self._clock.now_ms())
                self._proposals.submit(machine.key, command, partial(self._stored, machine, instruction.ticket))
            case Act():
                self._act(machine, instruction.what)
            case Forget():
                if self._machines.get(machine.key) is machine:
                    del self._machines[machine.key]

    def _stored(self, machine: MachineT, ticket: int, error: ErrorCode | None) -> None:
        sent = (machine.key, machine.epoch)
        self._unsettled[sent] -= 1
        if not self._unsettled[sent]:
            del self._unsettled[sent]
        if error is None:
            self.feed(machine, Stored(self.now_ms(), ticket))
        elif not self.holds(machine):
            self.feed(machine, TakenOver(self.now_ms()))
        else:
            log.warning("%s %r could not be stored: %s", self._kind.name, machine.key, error.name)
            self.feed(machine, StoreFailed(self.now_ms(), ticket, error))

    def _weigh(self, machine: MachineT) -> None:
        """Counts what the machine holds, unless it was let go of: then its next coordinator counts it."""
        weight = machine.memory_bytes if self._machines.get(machine.key) is machine else 0
        self.memory_bytes += weight - self._weights.get(machine, 0)
        if weight:
            self._weights[machine] = weight
        else:
            self._weights.pop(machine, None)

    def _ring(self, machine: MachineT) -> None:
        try:
            self.feed(machine, (TimePassed if self.holds(machine) else TakenOver)(self.now_ms()))
        except Exception as bug:  # nobody waits for a timer: unless it were passed on, it would only be logged
            self._on_fatal(bug)
