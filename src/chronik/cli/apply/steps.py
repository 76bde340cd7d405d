"""The steps of a plan. Each step is independent of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from chronik.cli.apply.cluster_spec import PasswordSource, QuotaEntityKey, TopicSpec
from chronik.client.security import AclBinding


class ValueChange(NamedTuple):
    """A change of a config or a quota; None means that it is not set."""

    before: str | float | None
    after: str | float | None


@dataclass(frozen=True, slots=True)
class CreateTopicStep:
    name: str
    topic: TopicSpec


@dataclass(frozen=True, slots=True)
class AddPartitionsStep:
    topic: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class AlterConfigsStep:
    topic: str | None
    """Name of the topic, or None for the default configs of all brokers."""
    changes: Mapping[str, ValueChange]


@dataclass(frozen=True, slots=True)
class SetPasswordStep:
    user: str
    mechanisms: Mapping[str, int | None]
    source: PasswordSource
    is_new: bool


@dataclass(frozen=True, slots=True)
class AddAclsStep:
    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class AlterQuotasStep:
    entity: QuotaEntityKey
    changes: Mapping[str, ValueChange]


@dataclass(frozen=True, slots=True)
class RemoveAclsStep:
    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True)
class DeleteCredentialsStep:
    user: str
    mechanisms: tuple[str, ...]
    deletes_user: bool
    """Whether these are all mechanisms of the user, so that the user is deleted."""


@dataclass(frozen=True, slots=True)
class DeleteTopicStep:
    name: str


PlanStep: TypeAlias = (
    CreateTopicStep
    | AddPartitionsStep
    | AlterConfigsStep
    | SetPasswordStep
    | AddAclsStep
    | AlterQuotasStep
    | RemoveAclsStep
    | DeleteCredentialsStep
    | DeleteTopicStep
)
