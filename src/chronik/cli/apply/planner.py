"""Planning of the steps that change a cluster's current state to the desired state of a file. Free of I/O.

A plan is idempotent: planning again after all steps have been executed gives an empty plan. After an interruption,
planning again gives the remaining steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from chronik.cli.apply.cluster_spec import (
    ClusterSpec,
    ConfigValues,
    PasswordSource,
    QuotaEntityKey,
    TopicSpec,
    UserSpec,
)
from chronik.client.security import AclBinding
from chronik.planning.views import PlanRejectedError
from chronik.wording import pluralize


class ValueChange(NamedTuple):
    """The old and the new value of a config or a quota. None means that the value is not set."""

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
    """Whether the step deletes the user, because it removes the user's last SCRAM credential."""


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


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """The steps that change a cluster to match a spec file, in execution order.

    Deletions are last and optional.
    """

    steps: tuple[PlanStep, ...] = ()
    deletions: tuple[PlanStep, ...] = ()
    """Steps that delete topics, credentials and other objects that the spec file does not list."""
    notes: tuple[str, ...] = ()
    """Differences that `chronik apply` reports without changing them, one sentence each."""
    unchanged: Mapping[str, int] = field(default_factory=dict)
    """Number of objects that already match the spec file, by kind."""

    def list_pending_steps(self, *, prune: bool) -> tuple[PlanStep, ...]:
        return self.steps + self.deletions if prune else self.steps


def plan_changes(wanted: ClusterSpec, current: ClusterSpec, current_user: str = "") -> ApplyPlan:
    """Plan the changes from the current to the desired state. The user `current_user` is never deleted.

    ACLs are changed last, because earlier steps may need permissions that are removed.

    Raises:
        Refused: The desired state cannot be reached; the message has all reasons.
    """
    draft = _PlanDraft()
    if wanted.broker is not None:
        _plan_broker(draft, wanted.broker, current.broker or {})
    if wanted.topics is not None:
        _plan_topics(draft, wanted.topics, current.topics or {})
    if wanted.users is not None:
        _plan_users(draft, wanted.users, current.users or {}, current_user)
    if wanted.quotas is not None:
        _plan_quotas(draft, wanted.quotas, current.quotas or {})
    if wanted.acls is not None:
        _plan_acls(draft, wanted.acls, current.acls or frozenset())
    if draft.errors:
        raise PlanRejectedError("; ".join(draft.errors))
    return ApplyPlan(tuple(draft.steps), tuple(draft.deletions), tuple(draft.notes), draft.left)


class _PlanDraft:
    def __init__(self) -> None:
        self.steps: list[PlanStep] = []
        self.deletions: list[PlanStep] = []
        self.notes: list[str] = []
        self.errors: list[str] = []
        self.left: dict[str, int] = {}

    def add(self, kind: str, steps: list[PlanStep]) -> None:
        """Add the steps for an object of the spec file, or count the object as unchanged if there are none."""
        self.steps += steps
        self.count_unchanged(kind, not steps)

    def count_unchanged(self, kind: str, count: int) -> None:
        if count:
            self.left[kind] = self.left.get(kind, 0) + count


# Topics and configs


def _plan_broker(draft: _PlanDraft, wanted: ConfigValues, present: ConfigValues) -> None:
    if changes := _list_value_changes(wanted, present):
        draft.steps.append(AlterConfigsStep(None, changes))
    draft.count_unchanged("broker config", len(wanted) - len(changes))
    if removed := _plan_removals(wanted, present):
        draft.deletions.append(AlterConfigsStep(None, removed))


def _plan_topics(draft: _PlanDraft, wanted: Mapping[str, TopicSpec], present: Mapping[str, TopicSpec]) -> None:
    draft.deletions += [DeleteTopicStep(name) for name in sorted(present.keys() - wanted.keys())]
    for name, topic in wanted.items():
        current = present.get(name)
        if current is None:
            draft.add("topic", [CreateTopicStep(name, topic)])
            continue
        _compare_partition_layout(draft, name, topic, current)
        draft.add("topic", list(_plan_alterations(name, topic, current)))
        if removed := _plan_removals(topic.configs, current.configs):
            draft.deletions.append(AlterConfigsStep(name, removed))


def _compare_partition_layout(draft: _PlanDraft, name: str, wanted: TopicSpec, current: TopicSpec) -> None:
    if wanted.partitions is not None and wanted.partitions < (current.partitions or 0):
        draft.errors.append(
            f"topic {name} has {pluralize(current.partitions or 0, 'partition')}, but the file has {wanted.partitions}:"
            " the number of partitions cannot be reduced"
        )
    if wanted.replication_factor not in (None, current.replication_factor):
        draft.notes.append(
            f"topic {name} has replication factor {current.replication_factor}, but the file has"
            f" {wanted.replication_factor}: it is not changed; use chronik topics reassign to move replicas"
        )


def _plan_alterations(name: str, wanted: TopicSpec, current: TopicSpec) -> Iterator[PlanStep]:
    before = current.partitions or 0
    if wanted.partitions is not None and wanted.partitions > before:
        yield AddPartitionsStep(name, before, wanted.partitions)
    if changes := _list_value_changes(wanted.configs, current.configs):
        yield AlterConfigsStep(name, changes)


# Users, ACLs and quotas


def _plan_users(
    draft: _PlanDraft, wanted: Mapping[str, UserSpec], present: Mapping[str, UserSpec], asking_user: str
) -> None:
    for name in sorted(present.keys() - wanted.keys()):
        if name == asking_user:
            draft.notes.append(f"user {name} is not in the file, but is kept: it is the user of this command")
        else:
            draft.deletions.append(DeleteCredentialsStep(name, tuple(present[name].mechanisms), deletes_user=True))
    for name, user in wanted.items():
        current = present[name].mechanisms if name in present else {}
        missing = {each: count for each, count in user.mechanisms.items() if _needs_password(each, count, current)}
        if missing and user.password is None:
            draft.errors.append(
                f"user {name} needs a password for {', '.join(missing)}: add a password_file or a password_env"
            )
        source = user.password
        draft.add(
            "user",
            [SetPasswordStep(name, missing, source, is_new=not current)] if missing and source else [],
        )
        removed = tuple(each for each in current if each not in user.mechanisms)
        if removed and name == asking_user:
            draft.notes.append(
                f"user {name} keeps {', '.join(removed)}, which the file does not list: it is the user of this command"
            )
        elif removed:
            draft.deletions.append(DeleteCredentialsStep(name, removed, deletes_user=False))


def _needs_password(mechanism: str, iterations: int | None, current: Mapping[str, int | None]) -> bool:
    return mechanism not in current or iterations not in (None, current[mechanism])


def _plan_acls(draft: _PlanDraft, wanted: frozenset[AclBinding], present: frozenset[AclBinding]) -> None:
    if missing := wanted - present:
        draft.steps.append(AddAclsStep(tuple(sorted(missing))))
    draft.count_unchanged("ACL", len(wanted & present))
    if removed := present - wanted:
        draft.deletions.append(RemoveAclsStep(tuple(sorted(removed))))


def _plan_quotas(
    draft: _PlanDraft,
    wanted: Mapping[QuotaEntityKey, Mapping[str, float]],
    present: Mapping[QuotaEntityKey, Mapping[str, float]],
) -> None:
    for entity, quotas in wanted.items():
        if changes := _list_value_changes(quotas, present.get(entity, {})):
            draft.steps.append(AlterQuotasStep(entity, changes))
        draft.count_unchanged("quota", len(quotas) - len(changes))
    for entity, current in present.items():
        if removed := _plan_removals(wanted.get(entity, {}), current):
            draft.deletions.append(AlterQuotasStep(entity, removed))


def _list_value_changes(
    wanted: Mapping[str, str] | Mapping[str, float], present: Mapping[str, Any]
) -> dict[str, ValueChange]:
    return {
        key: ValueChange(present.get(key), value)
        for key, value in wanted.items()
        if key not in present or present[key] != value
    }


def _plan_removals(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, ValueChange]:
    return {key: ValueChange(value, None) for key, value in present.items() if key not in wanted}
