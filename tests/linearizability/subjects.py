"""A subject of the schema registry as a sequential object: its versions, soft-deleted or not.

Contents are numbers that stand for different, compatible schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.linearizability.checker import SequentialModel
from tests.linearizability.history import Operation


class SubjectAnswer(Enum):
    NO_SUBJECT = "no such subject"
    NO_VERSION = "no such version"
    NO_SCHEMA = "no version with the schema"
    SOFT_DELETED = "soft-deleted already"
    NOT_SOFT_DELETED = "not soft-deleted"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Register:
    """Register a schema and return its version."""

    content: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Return the version that has a schema."""

    content: int


@dataclass(frozen=True, slots=True)
class GetLatest:
    """Return the latest version and its schema."""


@dataclass(frozen=True, slots=True)
class ListVersions:
    """Return the numbers of all versions."""


@dataclass(frozen=True, slots=True)
class DeleteLatest:
    """Soft-delete the latest version and return it."""


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    """Soft-delete all versions and return them."""


@dataclass(frozen=True, slots=True)
class DestroySubject:
    """Delete all versions permanently and return them."""


class KnownVersion(NamedTuple):
    number: int
    content: int
    is_deleted: bool = False


class SubjectState(NamedTuple):
    next_version: int = 1
    versions: tuple[KnownVersion, ...] = ()

    @property
    def live(self) -> list[KnownVersion]:
        return [version for version in self.versions if not version.is_deleted]


SubjectRead = LookUp | GetLatest | ListVersions
SubjectWrite = Register | DeleteLatest | DeleteSubject | DestroySubject
SubjectAction = SubjectRead | SubjectWrite
SubjectOutput = SubjectAnswer | int | tuple[int, ...]

SubjectOperation = Operation[SubjectAction, SubjectOutput]


def apply(state: SubjectState, action: SubjectAction) -> tuple[SubjectState, SubjectOutput]:
    live = state.live
    match action:
        case Register(content):
            return _register(state, content)
        case LookUp(content):
            found = _find(live, content)
            missing = SubjectAnswer.NO_SCHEMA if live else SubjectAnswer.NO_SUBJECT
            return state, missing if found is None else found
        case GetLatest():
            return state, (live[-1].number, live[-1].content) if live else SubjectAnswer.NO_SUBJECT
        case ListVersions():
            return state, tuple(version.number for version in live) if live else SubjectAnswer.NO_SUBJECT
        case DeleteLatest():
            if not live:
                return state, SubjectAnswer.NO_VERSION if state.versions else SubjectAnswer.NO_SUBJECT
            return _delete(state, live[-1:]), live[-1].number
        case DeleteSubject():
            if not live:
                return state, SubjectAnswer.SOFT_DELETED if state.versions else SubjectAnswer.NO_SUBJECT
            return _delete(state, live), tuple(version.number for version in live)
        case DestroySubject():
            if not state.versions:
                return state, SubjectAnswer.NO_SUBJECT
            if live:
                return state, SubjectAnswer.NOT_SOFT_DELETED
            return SubjectState(), tuple(version.number for version in state.versions)


def _find(versions: list[KnownVersion], content: int) -> int | None:
    return next((version.number for version in reversed(versions) if version.content == content), None)


def _register(state: SubjectState, content: int) -> tuple[SubjectState, SubjectOutput]:
    found = _find(state.live, content)
    if found is not None:
        return state, found
    kept = [version for version in state.versions if version.content != content]
    versions = (*kept, KnownVersion(state.next_version, content))
    return SubjectState(state.next_version + 1, versions), state.next_version


def _delete(state: SubjectState, deleted: list[KnownVersion]) -> SubjectState:
    versions = tuple(each._replace(is_deleted=each.is_deleted or each in deleted) for each in state.versions)
    return state._replace(versions=versions)


SUBJECTS: SequentialModel[SubjectState, SubjectAction, SubjectOutput] = SequentialModel(
    SubjectState(), apply, only_reads=lambda action: isinstance(action, LookUp | GetLatest | ListVersions)
)
