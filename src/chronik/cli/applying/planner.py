"""What has to be done so that a cluster is as a file says. Pure: two states go in, a plan comes out, or a refusal.

A plan that was carried out leaves nothing to do: planning again, with the state that it led to, gives an empty plan. So
a command that was stopped is run again, and the plan that it makes then is the rest.
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
    """Steps, in the order in which they are taken; deletions come after all others, and only when they are wanted."""

    steps: tuple[Step, ...] = ()
    deletions: tuple[Step, ...] = ()
    """What the cluster has and the file does not name."""
    notes: tuple[str, ...] = ()
    """What differs and stays as it is."""
    left: Mapping[str, int] = field(default_factory=dict)
    """How many things of the file are as it says, by kind."""

    def to_do(self, *, prune: bool) -> tuple[Step, ...]:
        return self.steps + self.deletions if prune else self.steps


def make_plan(wanted: State, present: State, asking_user: str = "") -> Plan:
    """`asking_user` is never deleted. Raises Refused with all reasons that there are.

    Rights come last: those that are taken away may be what the steps before them need.
    """
    draft = _Draft()
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
    if draft.refusals:
        raise Refused("; ".join(draft.refusals))
    return Plan(tuple(draft.steps), tuple(draft.deletions), tuple(draft.notes), draft.left)


class _Draft:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.deletions: list[Step] = []
        self.notes: list[str] = []
        self.refusals: list[str] = []
        self.left: dict[str, int] = {}

    def add(self, kind: str, steps: list[Step]) -> None:
        """Adds what has to be done for one thing of the file."""
        self.steps += steps
        self.leave(kind, not steps)

    def leave(self, kind: str, count: int) -> None:
        if count:
            self.left[kind] = self.left.get(kind, 0) + count


# Topics and configs


def _plan_broker(draft: _Draft, wanted: Configs, present: Configs) -> None:
    if changes := _changes(wanted, present):
        draft.steps.append(AlterConfigs(None, changes))
    draft.leave("broker config", len(wanted) - len(changes))
    if gone := _removals(wanted, present):
        draft.deletions.append(AlterConfigs(None, gone))


def _plan_topics(draft: _Draft, wanted: Mapping[str, Topic], present: Mapping[str, Topic]) -> None:
    draft.deletions += [DeleteTopic(name) for name in sorted(present.keys() - wanted.keys())]
    for name, topic in wanted.items():
        there = present.get(name)
        if there is None:
            draft.add("topic", [CreateTopic(name, topic)])
            continue
        _compare_layout(draft, name, topic, there)
        draft.add("topic", list(_alterations(name, topic, there)))
        if gone := _removals(topic.configs, there.configs):
            draft.deletions.append(AlterConfigs(name, gone))


def _compare_layout(draft: _Draft, name: str, wanted: Topic, there: Topic) -> None:
    if wanted.partitions is not None and wanted.partitions < (there.partitions or 0):
        draft.refusals.append(
            f"topic {name} has {counted(there.partitions or 0, 'partition')}, and the file says {wanted.partitions}:"
            " partitions cannot be taken away"
        )
    if wanted.replication_factor not in (None, there.replication_factor):
        draft.notes.append(
            f"topic {name} has replication factor {there.replication_factor}, and the file says"
            f" {wanted.replication_factor}: it stays, for replicas are moved by chronik topics reassign"
        )


def _alterations(name: str, wanted: Topic, there: Topic) -> Iterator[Step]:
    before = there.partitions or 0
    if wanted.partitions is not None and wanted.partitions > before:
        yield AddPartitions(name, before, wanted.partitions)
    if changes := _changes(wanted.configs, there.configs):
        yield AlterConfigs(name, changes)


# Users, rights and quotas


def _plan_users(draft: _Draft, wanted: Mapping[str, User], present: Mapping[str, User], asking_user: str) -> None:
    for name in sorted(present.keys() - wanted.keys()):
        if name == asking_user:
            draft.notes.append(f"user {name} is not in the file, and stays: it is who asks")
        else:
            draft.deletions.append(DeletePasswords(name, tuple(present[name].mechanisms), is_all=True))
    for name, user in wanted.items():
        there = present[name].mechanisms if name in present else {}
        lacking = {each: count for each, count in user.mechanisms.items() if _is_lacking(each, count, there)}
        if lacking and user.password is None:
            draft.refusals.append(
                f"user {name} needs a password for {', '.join(lacking)}: name a password_file or a password_env"
            )
        source = user.password
        draft.add("user", [SetPassword(name, lacking, source, is_new=not there)] if lacking and source else [])
        gone = tuple(each for each in there if each not in user.mechanisms)
        if gone and name == asking_user:
            draft.notes.append(f"user {name} keeps {', '.join(gone)}, of which the file says nothing: it is who asks")
        elif gone:
            draft.deletions.append(DeletePasswords(name, gone, is_all=False))


def _is_lacking(mechanism: str, iterations: int | None, there: Mapping[str, int | None]) -> bool:
    return mechanism not in there or iterations not in (None, there[mechanism])


def _plan_acls(draft: _Draft, wanted: frozenset[AclBinding], present: frozenset[AclBinding]) -> None:
    if missing := wanted - present:
        draft.steps.append(AddAcls(tuple(sorted(missing))))
    draft.leave("ACL", len(wanted & present))
    if gone := present - wanted:
        draft.deletions.append(RemoveAcls(tuple(sorted(gone))))


def _plan_quotas(
    draft: _Draft, wanted: Mapping[Entity, Mapping[str, float]], present: Mapping[Entity, Mapping[str, float]]
) -> None:
    for entity, quotas in wanted.items():
        if changes := _changes(quotas, present.get(entity, {})):
            draft.steps.append(AlterQuotas(entity, changes))
        draft.leave("quota", len(quotas) - len(changes))
    for entity, there in present.items():
        if gone := _removals(wanted.get(entity, {}), there):
            draft.deletions.append(AlterQuotas(entity, gone))


def _changes(wanted: Mapping[str, str] | Mapping[str, float], present: Mapping[str, Any]) -> dict[str, Change]:
    return {
        key: Change(present.get(key), value)
        for key, value in wanted.items()
        if key not in present or present[key] != value
    }


def _removals(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Change]:
    return {key: Change(value, None) for key, value in present.items() if key not in wanted}
