"""The interface of coordinated state machines, one per key (a group or a transactional id).

A machine processes events and returns instructions. Each kind of machine adds its own events, such as requests.

The host has three obligations: it passes `StateStored` or `StateStoreFailed` for every ticket, in the order of the
tickets; it sends a `DeadlineCheckDue` event shortly after `wake_at_ms`; and it unloads the machine after `Unload`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

import msgspec

from chronik.metadata.commands.envelope import Command
from chronik.protocol.errors import ErrorCode


class StateMachineEvent(msgspec.Struct, frozen=True):
    """Base class of state machine events. Each contains the monotonic time, so that state machines need no clock."""

    now_ms: int


class StateMachineRequest(StateMachineEvent, frozen=True):
    """A client request to a state machine. The reply contains the same number `waiter`."""

    waiter: int


class DeadlineCheckDue(StateMachineEvent, frozen=True):
    """An event that tells a state machine to process its expired deadlines."""


class StateStored(StateMachineEvent, frozen=True):
    """An event that reports that a write of the state machine's state was applied. `ticket` identifies the write."""

    ticket: int


class StateStoreFailed(StateMachineEvent, frozen=True):
    """An event that reports that a write of the state machine's state failed. `ticket` identifies the write."""

    ticket: int
    error: ErrorCode


class StateDeleted(StateMachineEvent, frozen=True):
    """An event that reports that the stored state of a state machine was deleted or has expired."""


class CoordinatorChanged(StateMachineEvent, frozen=True):
    """An event that makes a state machine reject its waiting requests and unload: this node stops serving it."""


class StoredStateChange(Protocol):
    """A change of a state machine's stored state, which can be converted to a metadata command."""

    def to_command(self, epoch: int, time_ms: int) -> Command:
        """Return the metadata command that stores this change. `epoch` is the epoch of the coordinator term."""


class StoreState(msgspec.Struct, frozen=True):
    """A state machine's instruction to store a change of its state. An event with the same ticket follows."""

    ticket: int
    change: StoredStateChange


class StateMachineReply(msgspec.Struct, frozen=True):
    """An instruction of a state machine to reply to a waiting request."""

    waiter: int
    reply: object


class Unload(msgspec.Struct, frozen=True):
    """An instruction of a state machine to remove it from memory."""


class ExecuteAction(msgspec.Struct, frozen=True):
    """An instruction for an action specific to the kind of state machine, such as writing transaction markers."""

    action: object


Instruction = StoreState | StateMachineReply | Unload | ExecuteAction


class CoordinatedStateMachine(Protocol):
    """A state machine for one key, such as a group id, which processes events and returns instructions to its host."""

    @property
    def key(self) -> str: ...

    @property
    def epoch(self) -> int:
        """Epoch of the coordinator term in which the state machine was loaded."""

    @property
    def wake_at_ms(self) -> int | None:
        """Monotonic time in milliseconds of the state machine's next deadline, or None if it has none."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory in bytes that the state machine uses on behalf of clients."""

    @property
    def is_idle(self) -> bool:
        """Whether the state machine has no clients and no pending writes, so that it may be unloaded."""

    def handle(self, event: StateMachineEvent) -> Sequence[Instruction]:
        """Process an event and return the resulting instructions. Raise InvariantError if the state is inconsistent."""


MachineT = TypeVar("MachineT", bound=CoordinatedStateMachine)
MachineT_co = TypeVar("MachineT_co", bound=CoordinatedStateMachine, covariant=True)


class StateMachineKind(Protocol[MachineT_co]):
    """A kind of state machine, such as groups, with access to its stored state."""

    @property
    def name(self) -> str:
        """Name of the kind in log and error messages, such as "group"."""

    @property
    def stored_keys(self) -> Collection[str]:
        """Keys of all stored state machines of this kind, such as group ids."""

    def load(self, key: str, epoch: int, now_ms: int) -> MachineT_co | None:
        """Load a state machine from its stored state, or return None if nothing is stored under the key."""

    def may_have_timers(self, key: str) -> bool:
        """Return whether a state machine may have deadlines, so that it must be loaded before the first request."""
