"""The steps of a plan. Each step is independent of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from chronik.cli.applying.state import Entity, PasswordSource, Topic
from chronik.client.security.acls import AclBinding


class Change(NamedTuple):
    """A change of a config or a quota; None means that it is not set."""

    before: str | float | None
    after: str | float | None


@dataclass(frozen=True, slots=True)
class CreateTopic:
    name: str
    topic: Topic


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topic: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    topic: str | None
    """Name of the topic, or None for the default configs of all brokers."""
    changes: Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class SetPassword:
    user: str
    mechanisms: Mapping[str, int | None]
    source: PasswordSource
    is_new: bool


@dataclass(frozen=True, slots=True)
class AddAcls:
    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class AlterQuotas:
    entity: Entity
    changes: Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class RemoveAcls:
    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class DeletePasswords:
    user: str
    mechanisms: tuple[str, ...]
    is_all: bool
    """Whether these are all mechanisms of the user, so that the user is deleted."""


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    name: str


Step: TypeAlias = (
    CreateTopic
    | AddPartitions
    | AlterConfigs
    | SetPassword
    | AddAcls
    | AlterQuotas
    | RemoveAcls
    | DeletePasswords
    | DeleteTopic
)
