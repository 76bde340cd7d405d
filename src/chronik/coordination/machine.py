"""The interface of coordinated state machines, one per key (a group or a transactional id).

A machine processes events and returns instructions. Each kind of machine adds its own events, such as requests.

The host has three obligations: it passes `StateStored` or `StoreFailed` for every ticket, in the order of the tickets;
it sends a `TimePassed` event shortly after `wake_at_ms`; and it unloads the machine after `Unload`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

import msgspec

from chronik.metadata.commands.envelope import Command
from chronik.protocol.errors import ErrorCode


class Event(msgspec.Struct, frozen=True):
    """An event with its monotonic time in milliseconds, so that machines need no clock."""

    now_ms: int


class Question(Event, frozen=True):
    """A request to a machine, which replies to the `waiter`, a number chosen by the host."""

    waiter: int


class TimePassed(Event, frozen=True):
    """An event: a deadline may have expired."""


class Stored(Event, frozen=True):
    """An event: the command of the `Store` instruction with this ticket was applied."""

    ticket: int


class StoreFailed(Event, frozen=True):
    """An event: the command of the `Store` instruction with this ticket failed."""

    ticket: int
    error: ErrorCode


class Dropped(Event, frozen=True):
    """An event: the stored state was deleted or has expired."""


class TakenOver(Event, frozen=True):
    """An event: this node stops serving the key. The machine replies to all waiters and returns `Unload`."""


class Storable(Protocol):
    """A change of a machine's stored state."""

    def as_command(self, epoch: int, time_ms: int) -> Command:
        """Return the command for the coordinator term `epoch` and the wall-clock time `time_ms`."""


class Store(msgspec.Struct, frozen=True):
    """An instruction to store a change of the machine's state."""

    ticket: int
    what: Storable


class Reply(msgspec.Struct, frozen=True):
    """An instruction to reply to a waiting request."""

    waiter: int
    answer: object


class Forget(msgspec.Struct, frozen=True):
    """An instruction to remove the machine from memory."""


class Act(msgspec.Struct, frozen=True):
    """An instruction that is specific to the kind of machine, executed by `Coordinator.act`."""

    what: object


Instruction = Store | Reply | Forget | Act


class Machine(Protocol):
    """A state machine for one key."""

    @property
    def key(self) -> str: ...

    @property
    def epoch(self) -> int:
        """Epoch of the coordinator term in which the machine was loaded."""

    @property
    def wake_at_ms(self) -> int | None:
        """Time of the next deadline, or None."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory used on behalf of clients."""

    @property
    def is_idle(self) -> bool:
        """Whether the machine has no clients and no pending store commands, so that it may be unloaded."""

    def handle(self, event: Event) -> Sequence[Instruction]:
        """Process an event, the only way to change the machine. Raise InvariantBroken if its state is inconsistent."""


MachineT = TypeVar("MachineT", bound=Machine)
MachineT_co = TypeVar("MachineT_co", bound=Machine, covariant=True)


class Kind(Protocol[MachineT_co]):
    """A kind of state machine and its storage."""

    @property
    def name(self) -> str:
        """Name for messages, such as "group"."""

    @property
    def stored(self) -> Collection[str]:
        """Keys of all stored machines."""

    def load(self, key: str, epoch: int, now_ms: int) -> MachineT_co | None:
        """Load a machine from its stored state, or return None if nothing is stored under the key."""

    def acts_by_itself(self, key: str) -> bool:
        """Return whether the machine may have deadlines, so that it must be loaded before the first request."""
