"""A topic as its clients see it: it is there or not, and where it is, one config of it holds a value.

Values are written once in a history, at a topic's creation too, so that a value read tells which write it came from.
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
    """Whether it is there."""


@dataclass(frozen=True, slots=True)
class Get:
    """Its value."""


Read = Look | Get
Write = Create | Delete | Set
Action = Read | Write
Output = Answer | int
State = int | None
"""The value; None where there is no topic."""

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
