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


class MachineEvent(msgspec.Struct, frozen=True):
    """An event with its monotonic time in milliseconds, so that machines need no clock."""

    now_ms: int


class MachineRequest(MachineEvent, frozen=True):
    """A client's request to a state machine. The host chooses the number `waiter` to match the reply."""

    waiter: int


class TimePassed(MachineEvent, frozen=True):
    """An event: a deadline may have expired."""


class StateStored(MachineEvent, frozen=True):
    """An event: the command of the `StoreState` instruction with this ticket was applied."""

    ticket: int


class StoreFailed(MachineEvent, frozen=True):
    """An event: the command of the `StoreState` instruction with this ticket failed."""

    ticket: int
    error: ErrorCode


class StateDeleted(MachineEvent, frozen=True):
    """An event: the stored state was deleted or has expired."""


class CoordinatorChanged(MachineEvent, frozen=True):
    """An event: this node stops serving the key. The machine replies to all waiters and returns `Unload`."""


class StoredChange(Protocol):
    """A change of a machine's stored state."""

    def to_command(self, epoch: int, time_ms: int) -> Command:
        """Return the metadata command that stores the change in the coordinator term `epoch` at time `time_ms`."""


class StoreState(msgspec.Struct, frozen=True):
    """An instruction to store a change of the machine's state."""

    ticket: int
    change: StoredChange


class MachineReply(msgspec.Struct, frozen=True):
    """An instruction to reply to a waiting request."""

    waiter: int
    reply: object


class Unload(msgspec.Struct, frozen=True):
    """An instruction to remove the machine from memory."""


class ExecuteAction(msgspec.Struct, frozen=True):
    """An instruction specific to the kind of machine, executed by `MachineCoordinator.execute_instruction`."""

    action: object


Instruction = StoreState | MachineReply | Unload | ExecuteAction


class CoordinatedStateMachine(Protocol):
    """A state machine for one key, such as a group id, which processes events and returns instructions to its host."""

    @property
    def key(self) -> str: ...

    @property
    def epoch(self) -> int:
        """Epoch of the coordinator term in which the machine was loaded."""

    @property
    def wake_at_ms(self) -> int | None:
        """Monotonic time of the machine's next deadline in milliseconds, or None if it has none."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory used on behalf of clients, in bytes."""

    @property
    def is_idle(self) -> bool:
        """Whether the machine has no clients and no pending store commands, so that it may be unloaded."""

    def handle(self, event: MachineEvent) -> Sequence[Instruction]:
        """Process an event and return the resulting instructions. Raise InvariantError if the state is inconsistent."""


MachineT = TypeVar("MachineT", bound=CoordinatedStateMachine)
MachineT_co = TypeVar("MachineT_co", bound=CoordinatedStateMachine, covariant=True)


class MachineKind(Protocol[MachineT_co]):
    """A kind of state machine, such as groups, and the access to its stored state."""

    @property
    def name(self) -> str:
        """Name of the kind in log and error messages, such as "group"."""

    @property
    def stored_keys(self) -> Collection[str]:
        """Keys of all stored machines."""

    def load(self, key: str, epoch: int, now_ms: int) -> MachineT_co | None:
        """Load a machine from its stored state, or return None if nothing is stored under the key."""

    def may_have_timers(self, key: str) -> bool:
        """Return whether the machine may have deadlines, so that it must be loaded before the first request."""
