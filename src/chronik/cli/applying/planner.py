"""Planning of the steps that change a cluster's current state to the desired state of a file. Free of I/O.

A plan is idempotent: planning again after all steps have been executed gives an empty plan. After an interruption,
planning again gives the remaining steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chronik.cli.applying.state import Configs, Entity, State, Topic, User
from chronik.cli.applying.steps import (
    AddAcls,
    AddPartitions,
    AlterConfigs,
    AlterQuotas,
    Change,
    CreateTopic,
    DeletePasswords,
    DeleteTopic,
    RemoveAcls,
    SetPassword,
    Step,
)
from chronik.client.security.acls import AclBinding
from chronik.planning.views import Refused
from chronik.wording import counted


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that change a cluster to match a file, in execution order. Deletions are last and optional."""

    steps: tuple[Step, ...] = ()
    deletions: tuple[Step, ...] = ()
    """Steps that delete what the cluster has and the file does not list."""
    notes: tuple[str, ...] = ()
    """Differences that no step changes."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Number of objects that already match the file, by kind."""

    def to_do(self, *, prune: bool) -> tuple[Step, ...]:
        return self.steps + self.deletions if prune else self.steps


def make_plan(wanted: State, present: State, asking_user: str = "") -> Plan:
    """Plan the changes from the current state to the desired state; the user `current_user` is never deleted.

    ACLs are changed last, because earlier steps may need permissions that are removed.

    Raises:
        Refused: The desired state cannot be reached; the message has all reasons.
    """
    draft = _PlanDraft()
    if wanted.broker is not None:
        _plan_broker(draft, wanted.broker, present.broker or {})
    if wanted.topics is not None:
        _plan_topics(draft, wanted.topics, present.topics or {})
    if wanted.users is not None:
        _plan_users(draft, wanted.users, present.users or {}, asking_user)
    if wanted.quotas is not None:
        _plan_quotas(draft, wanted.quotas, present.quotas or {})
    if wanted.acls is not None:
        _plan_acls(draft, wanted.acls, present.acls or frozenset())
    if draft.errors:
        raise Refused("; ".join(draft.errors))
    return Plan(tuple(draft.steps), tuple(draft.deletions), tuple(draft.notes), draft.left)


class _PlanDraft:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.deletions: list[Step] = []
        self.notes: list[str] = []
        self.errors: list[str] = []
        self.left: dict[str, int] = {}

    def add(self, kind: str, steps: list[Step]) -> None:
        """Add the steps for one object of the file; without steps, count the object as unchanged."""
        self.steps += steps
        self.count_unchanged(kind, not steps)

    def count_unchanged(self, kind: str, count: int) -> None:
        if count:
            self.left[kind] = self.left.get(kind, 0) + count


# Topics and configs


def _plan_broker(draft: _PlanDraft, wanted: Configs, present: Configs) -> None:
    if changes := _diff(wanted, present):
        draft.steps.append(AlterConfigs(None, changes))
    draft.count_unchanged("broker config", len(wanted) - len(changes))
    if removed := _removals(wanted, present):
        draft.deletions.append(AlterConfigs(None, removed))


def _plan_topics(draft: _PlanDraft, wanted: Mapping[str, Topic], present: Mapping[str, Topic]) -> None:
    draft.deletions += [DeleteTopic(name) for name in sorted(present.keys() - wanted.keys())]
    for name, topic in wanted.items():
        current = present.get(name)
        if current is None:
            draft.add("topic", [CreateTopic(name, topic)])
            continue
        _compare_layout(draft, name, topic, current)
        draft.add("topic", list(_alterations(name, topic, current)))
        if removed := _removals(topic.configs, current.configs):
            draft.deletions.append(AlterConfigs(name, removed))


def _compare_layout(draft: _PlanDraft, name: str, wanted: Topic, current: Topic) -> None:
    if wanted.partitions is not None and wanted.partitions < (current.partitions or 0):
        draft.errors.append(
            f"topic {name} has {counted(current.partitions or 0, 'partition')}, but the file has {wanted.partitions}:"
            " the number of partitions cannot be reduced"
        )
    if wanted.replication_factor not in (None, current.replication_factor):
        draft.notes.append(
            f"topic {name} has replication factor {current.replication_factor}, but the file has"
            f" {wanted.replication_factor}: it is not changed; use chronik topics reassign to move replicas"
        )


def _alterations(name: str, wanted: Topic, current: Topic) -> Iterator[Step]:
    before = current.partitions or 0
    if wanted.partitions is not None and wanted.partitions > before:
        yield AddPartitions(name, before, wanted.partitions)
    if changes := _diff(wanted.configs, current.configs):
        yield AlterConfigs(name, changes)


# Users, ACLs and quotas


def _plan_users(draft: _PlanDraft, wanted: Mapping[str, User], present: Mapping[str, User], asking_user: str) -> None:
    for name in sorted(present.keys() - wanted.keys()):
        if name == asking_user:
            draft.notes.append(f"user {name} is not in the file, but is kept: it is the user of this command")
        else:
            draft.deletions.append(DeletePasswords(name, tuple(present[name].mechanisms), is_all=True))
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
            [SetPassword(name, missing, source, is_new=not current)] if missing and source else [],
        )
        removed = tuple(each for each in current if each not in user.mechanisms)
        if removed and name == asking_user:
            draft.notes.append(
                f"user {name} keeps {', '.join(removed)}, which the file does not list: it is the user of this command"
            )
        elif removed:
            draft.deletions.append(DeletePasswords(name, removed, is_all=False))


def _needs_password(mechanism: str, iterations: int | None, current: Mapping[str, int | None]) -> bool:
    return mechanism not in current or iterations not in (None, current[mechanism])


def _plan_acls(draft: _PlanDraft, wanted: frozenset[AclBinding], present: frozenset[AclBinding]) -> None:
    if missing := wanted - present:
        draft.steps.append(AddAcls(tuple(sorted(missing))))
    draft.count_unchanged("ACL", len(wanted & present))
    if removed := present - wanted:
        draft.deletions.append(RemoveAcls(tuple(sorted(removed))))


def _plan_quotas(
    draft: _PlanDraft, wanted: Mapping[Entity, Mapping[str, float]], present: Mapping[Entity, Mapping[str, float]]
) -> None:
    for entity, quotas in wanted.items():
        if changes := _diff(quotas, present.get(entity, {})):
            draft.steps.append(AlterQuotas(entity, changes))
        draft.count_unchanged("quota", len(quotas) - len(changes))
    for entity, current in present.items():
        if removed := _removals(wanted.get(entity, {}), current):
            draft.deletions.append(AlterQuotas(entity, removed))


def _diff(wanted: Mapping[str, str] | Mapping[str, float], present: Mapping[str, Any]) -> dict[str, Change]:
    return {
        key: Change(present.get(key), value)
        for key, value in wanted.items()
        if key not in present or present[key] != value
    }


def _removals(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Change]:
    return {key: Change(value, None) for key, value in present.items() if key not in wanted}
