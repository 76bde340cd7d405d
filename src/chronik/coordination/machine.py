"""What can be coordinated: a machine for each key (a group, a transactional id), which takes events and returns
instructions. A kind of machine adds events of its own: what it is asked, and what else it has to know.

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
    """The store keeps nothing of it any more: it was deleted or has expired."""


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


Instruction = Store | Reply | Forget


class Machine(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def epoch(self) -> int:
        """Of the coordinator's term in which it was taken up; another term begins with another machine."""

    @property
    def wake_at_ms(self) -> int | None:
        """Nothing is due before this; None when nothing ever is."""

    @property
    def memory_bytes(self) -> int:
        """What it holds for others, roughly."""

    @property
    def is_idle(self) -> bool:
        """Nobody needs it, and nothing of it is on its way to the store: what is not stored of it may be forgotten."""

    def handle(self, event: Event) -> Sequence[Instruction]:
        """The only way to change it. Raises InvariantBroken when the machine itself is wrong, which is a bug."""


MachineT = TypeVar("MachineT", bound=Machine)
MachineT_co = TypeVar("MachineT_co", bound=Machine, covariant=True)


class Kind(Protocol[MachineT_co]):
    """One kind of machine, and where it is stored."""

    @property
    def name(self) -> str:
        """For people: "group"."""

    @property
    def stored(self) -> Collection[str]:
        """The keys of all that is stored at the moment."""

    def load(self, key: str, epoch: int, now_ms: int) -> MachineT_co | None:
        """Goes on where another term stopped; None when nothing is stored under the key."""

    def acts_by_itself(self, key: str) -> bool:
        """Whether something becomes due in it, so that it has to be taken up before anybody asks for it."""
