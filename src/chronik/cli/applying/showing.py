"""Plans as people read them, a sentence for each step, and as programs do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chronik.cli.acls import EVERY_HOST, shown, word
from chronik.cli.applying.planner import Plan
from chronik.cli.applying.state import Entity, Topic
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
from chronik.cli.quotas import DEFAULT
from chronik.client.security.acls import AclBinding
from chronik.planning.views import enumerated
from chronik.protocol.permissions import Operation, ResourceType
from chronik.security.acls import PatternType, Permission
from chronik.wording import counted


def sentences(step: Step) -> Iterator[str]:
    """Yields one, or one for each ACL."""
    match step:
        case CreateTopic(name, topic):
            yield f"create topic {name}{_with(topic)}"
        case AddPartitions(topic, before, after):
            yield f"alter topic {topic}: partitions {before} -> {after}"
        case AlterConfigs(topic, changes):
            yield f"alter {'all brokers' if topic is None else f'topic {topic}'}: {_changed(changes)}"
        case SetPassword(user, mechanisms, _, is_new):
            what = f"create user {user} with" if is_new else f"alter user {user}: set the password for"
            yield f"{what} {enumerated(mechanisms)}"
        case DeletePasswords(user, mechanisms, is_all):
            yield f"delete user {user}" if is_all else f"alter user {user}: delete {enumerated(mechanisms)}"
        case AddAcls(acls):
            yield from (f"create ACL: {_said(acl)}" for acl in acls)
        case RemoveAcls(acls):
            yield from (f"delete ACL: {_said(acl)}" for acl in acls)
        case AlterQuotas(entity, changes):
            yield f"alter quotas of {_named(entity)}: {_changed(changes)}"
        case DeleteTopic(name):
            yield f"delete topic {name}, and all its records"


def _with(topic: Topic) -> str:
    known = [] if topic.partitions is None else [counted(topic.partitions, "partition")]
    if topic.replication_factor is not None:
        known.append(f"replication factor {topic.replication_factor}")
    known += [f"{key}={value}" for key, value in topic.configs.items()]
    return f" with {enumerated(known)}" if known else ""


def _changed(changes: Mapping[str, Change]) -> str:
    return ", ".join(f"{key} {_value(each.before)} -> {_value(each.after)}" for key, each in changes.items())


def _value(value: str | float | None) -> str:
    if value is None:
        return "(not set)"
    return f"{value:.15g}" if isinstance(value, float) else value or '""'


def _said(acl: AclBinding) -> str:
    verb = "may" if acl.permission == Permission.ALLOW else "may not"
    operation = word(Operation, acl.operation)
    kind = word(ResourceType, acl.resource_type)
    prefix = " names that begin with" if acl.pattern_type == PatternType.PREFIXED else ""
    resource = "Cluster" if acl.resource_type == ResourceType.CLUSTER else f"{kind}{prefix} {acl.name}"
    host = "" if acl.host == EVERY_HOST else f" from {acl.host}"
    return f"{acl.principal} {verb} {operation} on {resource}{host}"


def _named(entity: Entity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)


# For programs


def as_json(plan: Plan, *, prune: bool) -> dict[str, Any]:
    return {
        "nothing_to_do": not plan.to_do(prune=prune),
        "steps": [each for step in plan.steps for each in _step_as_json(step)],
        "prune": prune,
        "deletions": [each for step in plan.deletions for each in _step_as_json(step)],
        "notes": plan.notes,
        "left_alone": plan.left,
    }


def _step_as_json(step: Step) -> Iterator[dict[str, Any]]:
    match step:
        case CreateTopic(name, topic):
            layout = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
            yield {"action": "create", "kind": "topic", "name": name, **layout, "configs": topic.configs}
        case AddPartitions(topic, before, after):
            yield {"action": "alter", "kind": "partitions", "topic": topic, "before": before, "after": after}
        case AlterConfigs(topic, changes):
            kind = "broker configs" if topic is None else "topic configs"
            yield {"action": "alter", "kind": kind, "topic": topic, "changes": _changes_as_json(changes)}
        case SetPassword(user, mechanisms, _, is_new):
            action = "create" if is_new else "alter"
            yield {"action": action, "kind": "user", "name": user, "mechanisms": list(mechanisms)}
        case DeletePasswords(user, mechanisms, is_all):
            action = "delete" if is_all else "alter"
            yield {"action": action, "kind": "user", "name": user, "mechanisms": mechanisms}
        case AddAcls(acls) | RemoveAcls(acls):
            action = "create" if isinstance(step, AddAcls) else "delete"
            yield from ({"action": action, "kind": "acl", **shown(acl)} for acl in acls)
        case AlterQuotas(entity, changes):
            yield {"action": "alter", "kind": "quotas", "entity": dict(entity), "changes": _changes_as_json(changes)}
        case DeleteTopic(name):
            yield {"action": "delete", "kind": "topic", "name": name}


def _changes_as_json(changes: Mapping[str, Change]) -> dict[str, Any]:
    return {key: {"before": each.before, "after": each.after} for key, each in changes.items()}
