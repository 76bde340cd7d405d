"""A topic as a sequential object: it exists or not, and one of its configs holds a value.

Values are unique within a history, so that a read value identifies its write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.linearizability.checker import SequentialModel
from tests.linearizability.history import Operation


class TopicAnswer(Enum):
    DONE = "done"
    ALREADY_EXISTS = "already exists"
    EXISTS = "exists"
    MISSING = "missing"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Create:
    value: int


@dataclass(frozen=True, slots=True)
class Delete:
    pass


@dataclass(frozen=True, slots=True)
class Set:
    value: int


@dataclass(frozen=True, slots=True)
class Exists:
    """Return whether the topic exists."""


@dataclass(frozen=True, slots=True)
class Get:
    """Return the value of the topic's config."""


Read = Exists | Get
Write = Create | Delete | Set
Action = Read | Write
Output = TopicAnswer | int
State = int | None
"""The value, or None if the topic does not exist."""

TopicOperation = Operation[Action, Output]


def apply(state: State, action: Action) -> tuple[State, Output]:
    if isinstance(action, Create):
        return (action.value, TopicAnswer.DONE) if state is None else (state, TopicAnswer.ALREADY_EXISTS)
    if state is None:
        return None, TopicAnswer.MISSING
    match action:
        case Delete():
            return None, TopicAnswer.DONE
        case Set(value):
            return value, TopicAnswer.DONE
        case Exists():
            return state, TopicAnswer.EXISTS
        case Get():
            return state, state


TOPICS: SequentialModel[State, Action, Output] = SequentialModel(
    None, apply, only_reads=lambda action: isinstance(action, Exists | Get)
)
