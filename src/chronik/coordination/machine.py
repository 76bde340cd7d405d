"""What can be coordinated: a machine for each key (a group, a transactional id), which takes events and returns
instructions. Each kind of machine adds its own events: questions, and what else it has to know.

The driver owes a machine three things: it feeds back `Stored` or `StoreFailed` for every ticket, in the order the
tickets were issued; it sends a `TimePassed` no later than a moment after `wake_at_ms`; and it drops the machine on
`Forget`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar

import msgspec

from chronik.metadata.commands.envelope import Command
from chronik.protocol.errors import ErrorCode


class Event(msgspec.Struct, frozen=True):
    """Every event carries the time, so that machines have no clock: milliseconds that never go back."""

    now_ms: int


class Question(Event, frozen=True):
    """Somebody waits for a `Reply` to the `waiter`, a number that the driver chose."""

    waiter: int


class TimePassed(Event, frozen=True):
    """A deadline may be over."""


class Stored(Event, frozen=True):
    """The command of that `Store` is applied."""

    ticket: int


class StoreFailed(Event, frozen=True):
    ticket: int
    error: ErrorCode


class Dropped(Event, frozen=True):
    """The store no longer has it: it was deleted or has expired."""


class TakenOver(Event, frozen=True):
    """This node stops serving the key; what is stored stays. The machine answers all who wait, and says `Forget`."""


class Storable(Protocol):
    """What has to survive this process."""

    def as_command(self, epoch: int, time_ms: int) -> Command:
        """`epoch` is that of the coordinator's term, `time_ms` the time of day."""


class Store(msgspec.Struct, frozen=True):
    ticket: int
    what: Storable


class Reply(msgspec.Struct, frozen=True):
    waiter: int
    answer: object


class Forget(msgspec.Struct, frozen=True):
    """The machine is dead: drop it from memory."""


class Act(msgspec.Struct, frozen=True):
    """Something is to be done that only this kind of machine knows of; its coordinator does it (`Coordinator.act`)."""

    what: object


Instruction = Store | Reply | Forget | Act


class Machine(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def epoch(self) -> int:
        """The epoch of the coordinator's term in which it was taken up; another term begins with another machine."""

    @property
    def wake_at_ms(self) -> int | None:
        """When something is due next; None when nothing is."""

    @property
    def memory_bytes(self) -> int:
        """Roughly the memory that it holds for clients."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody needs it, and nothing of it is on its way to the store: then it may be dropped from memory."""

    def handle(self, event: Event) -> Sequence[Instruction]:
        """Changes the machine; nothing else may. Raises InvariantBroken when the machine itself is wrong: a bug."""


MachineT = TypeVar("MachineT", bound=Machine)
MachineT_co = TypeVar("MachineT_co", bound=Machine, covariant=True)


class Kind(Protocol[MachineT_co]):
    """One kind of machine, and where it is stored."""

    @property
    def name(self) -> str:
        """What people call it, such as "group"."""

    @property
    def stored(self) -> Collection[str]:
        """The keys of all that is stored at the moment."""

    def load(self, key: str, epoch: int, now_ms: int) -> MachineT_co | None:
        """Returns a machine that goes on where another term stopped; None when nothing is stored under the key."""

    def acts_by_itself(self, key: str) -> bool:
        """Whether something can become due in it, so that it has to be taken up before anybody asks for it."""
