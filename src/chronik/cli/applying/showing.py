"""Plans as text for people, and as JSON for programs."""

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
    """Yield a description of the step, or one for each of its ACLs."""
    match step:
        case CreateTopic(name, topic):
            yield f"create topic {name}{_format_topic(topic)}"
        case AddPartitions(topic, before, after):
            yield f"alter topic {topic}: partitions {before} -> {after}"
        case AlterConfigs(topic, changes):
            yield f"alter {'all brokers' if topic is None else f'topic {topic}'}: {_format_changes(changes)}"
        case SetPassword(user, mechanisms, _, is_new):
            what = f"create user {user} with" if is_new else f"alter user {user}: set the password for"
            yield f"{what} {enumerated(mechanisms)}"
        case DeletePasswords(user, mechanisms, is_all):
            yield f"delete user {user}" if is_all else f"alter user {user}: delete {enumerated(mechanisms)}"
        case AddAcls(acls):
            yield from (f"create ACL: {_format_acl(acl)}" for acl in acls)
        case RemoveAcls(acls):
            yield from (f"delete ACL: {_format_acl(acl)}" for acl in acls)
        case AlterQuotas(entity, changes):
            yield f"alter quotas of {_format_entity(entity)}: {_format_changes(changes)}"
        case DeleteTopic(name):
            yield f"delete topic {name} and all its records"


def _format_topic(topic: Topic) -> str:
    parts = [] if topic.partitions is None else [counted(topic.partitions, "partition")]
    if topic.replication_factor is not None:
        parts.append(f"replication factor {topic.replication_factor}")
    parts += [f"{key}={value}" for key, value in topic.configs.items()]
    return f" with {enumerated(parts)}" if parts else ""


def _format_changes(changes: Mapping[str, Change]) -> str:
    return ", ".join(
        f"{key} {_format_value(each.before)} -> {_format_value(each.after)}" for key, each in changes.items()
    )


def _format_value(value: str | float | None) -> str:
    if value is None:
        return "(not set)"
    return f"{value:.15g}" if isinstance(value, float) else value or '""'


def _format_acl(acl: AclBinding) -> str:
    verb = "may" if acl.permission == Permission.ALLOW else "may not"
    operation = word(Operation, acl.operation)
    kind = word(ResourceType, acl.resource_type)
    prefix = " names that start with" if acl.pattern_type == PatternType.PREFIXED else ""
    resource = "Cluster" if acl.resource_type == ResourceType.CLUSTER else f"{kind}{prefix} {acl.name}"
    host = "" if acl.host == EVERY_HOST else f" from {acl.host}"
    return f"{acl.principal} {verb} {operation} on {resource}{host}"


def _format_entity(entity: Entity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)


# JSON


def as_json(plan: Plan, *, prune: bool) -> dict[str, Any]:
    return {
        "nothing_to_do": not plan.to_do(prune=prune),
        "steps": [each for step in plan.steps for each in _step_to_json(step)],
        "prune": prune,
        "deletions": [each for step in plan.deletions for each in _step_to_json(step)],
        "notes": plan.notes,
        "left_alone": plan.left,
    }


def _step_to_json(step: Step) -> Iterator[dict[str, Any]]:
    match step:
        case CreateTopic(name, topic):
            layout = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
            yield {"action": "create", "kind": "topic", "name": name, **layout, "configs": topic.configs}
        case AddPartitions(topic, before, after):
            yield {"action": "alter", "kind": "partitions", "topic": topic, "before": before, "after": after}
        case AlterConfigs(topic, changes):
            kind = "broker configs" if topic is None else "topic configs"
            yield {"action": "alter", "kind": kind, "topic": topic, "changes": _changes_to_json(changes)}
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
            yield {"action": "alter", "kind": "quotas", "entity": dict(entity), "changes": _changes_to_json(changes)}
        case DeleteTopic(name):
            yield {"action": "delete", "kind": "topic", "name": name}


def _changes_to_json(changes: Mapping[str, Change]) -> dict[str, Any]:
    return {key: {"before": each.before, "after": each.after} for key, each in changes.items()}
