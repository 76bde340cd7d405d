"""A topic as a sequential object: it exists or not, and one of its configs holds a value.

Values are unique within a history, so that a read value identifies its write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.linearizability.checker import Model
from tests.linearizability.history import Operation


class Answer(Enum):
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
class Look:
    """Return whether the topic exists."""


@dataclass(frozen=True, slots=True)
class Get:
    """Return the value of the topic's config."""


Read = Look | Get
Write = Create | Delete | Set
Action = Read | Write
Output = Answer | int
State = int | None
"""The value, or None if the topic does not exist."""

TopicOperation = Operation[Action, Output]


def apply(state: State, action: Action) -> tuple[State, Output]:
    if isinstance(action, Create):
        return (action.value, Answer.DONE) if state is None else (state, Answer.ALREADY_EXISTS)
    if state is None:
        return None, Answer.MISSING
    match action:
        case Delete():
            return None, Answer.DONE
        case Set(value):
            return value, Answer.DONE
        case Look():
            return state, Answer.EXISTS
        case Get():
            return state, state


TOPICS: Model[State, Action, Output] = Model(None, apply, only_reads=lambda action: isinstance(action, Look | Get))
