"""Plans as text for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from chronik.cli.acls import ANY_HOST, acl_to_json, format_enum
from chronik.cli.apply.cluster_spec import QuotaEntityKey, TopicSpec
from chronik.cli.apply.planner import (
    AddAclsStep,
    AddPartitionsStep,
    AlterConfigsStep,
    AlterQuotasStep,
    ApplyPlan,
    CreateTopicStep,
    DeleteCredentialsStep,
    DeleteTopicStep,
    PlanStep,
    RemoveAclsStep,
    SetPasswordStep,
    ValueChange,
)
from chronik.cli.quotas import DEFAULT_ENTITY_NAME
from chronik.client.security import AclBinding
from chronik.planning.views import join_words
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType
from chronik.wording import pluralize


def describe_step(step: PlanStep) -> Iterator[str]:
    """Yield a line of text that describes a plan's step, or one line per ACL."""
    match step:
        case CreateTopicStep(name, topic):
            yield f"create topic {name}{_format_topic(topic)}"
        case AddPartitionsStep(topic, before, after):
            yield f"alter topic {topic}: partitions {before} -> {after}"
        case AlterConfigsStep(topic, changes):
            yield f"alter {'all brokers' if topic is None else f'topic {topic}'}: {_format_value_changes(changes)}"
        case SetPasswordStep(user, mechanisms, _, is_new):
            what = f"create user {user} with" if is_new else f"alter user {user}: set the password for"
            yield f"{what} {join_words(mechanisms)}"
        case DeleteCredentialsStep(user, mechanisms, is_all):
            yield f"delete user {user}" if is_all else f"alter user {user}: delete {join_words(mechanisms)}"
        case AddAclsStep(acls):
            yield from (f"create ACL: {_format_acl(acl)}" for acl in acls)
        case RemoveAclsStep(acls):
            yield from (f"delete ACL: {_format_acl(acl)}" for acl in acls)
        case AlterQuotasStep(entity, changes):
            yield f"alter quotas of {_format_entity(entity)}: {_format_value_changes(changes)}"
        case DeleteTopicStep(name):
            yield f"delete topic {name} and all its records"


def _format_topic(topic: TopicSpec) -> str:
    parts = [] if topic.partitions is None else [pluralize(topic.partitions, "partition")]
    if topic.replication_factor is not None:
        parts.append(f"replication factor {topic.replication_factor}")
    parts += [f"{key}={value}" for key, value in topic.configs.items()]
    return f" with {join_words(parts)}" if parts else ""


def _format_value_changes(changes: Mapping[str, ValueChange]) -> str:
    return ", ".join(
        f"{key} {_format_value(each.before)} -> {_format_value(each.after)}" for key, each in changes.items()
    )


def _format_value(value: str | float | None) -> str:
    if value is None:
        return "(not set)"
    return f"{value:.15g}" if isinstance(value, float) else value or '""'


def _format_acl(acl: AclBinding) -> str:
    verb = "may" if acl.permission == AclPermission.ALLOW else "may not"
    operation = format_enum(AclOperation, acl.operation)
    kind = format_enum(AclResourceType, acl.resource_type)
    prefix = " names that start with" if acl.pattern_type == PatternType.PREFIXED else ""
    resource = "Cluster" if acl.resource_type == AclResourceType.CLUSTER else f"{kind}{prefix} {acl.name}"
    host = "" if acl.host == ANY_HOST else f" from {acl.host}"
    return f"{acl.principal} {verb} {operation} on {resource}{host}"


def _format_entity(entity: QuotaEntityKey) -> str:
    return ", ".join(f"{kind} {DEFAULT_ENTITY_NAME if name is None else name}" for kind, name in entity)


# JSON


def plan_to_json(plan: ApplyPlan, *, prune: bool) -> dict[str, Any]:
    return {
        "nothing_to_do": not plan.list_pending_steps(prune=prune),
        "steps": [each for step in plan.steps for each in _step_to_json(step)],
        "prune": prune,
        "deletions": [each for step in plan.deletions for each in _step_to_json(step)],
        "notes": plan.notes,
        "left_alone": plan.unchanged,
    }


def _step_to_json(step: PlanStep) -> Iterator[dict[str, Any]]:
    match step:
        case CreateTopicStep(name, topic):
            layout = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
            yield {"action": "create", "kind": "topic", "name": name, **layout, "configs": topic.configs}
        case AddPartitionsStep(topic, before, after):
            yield {"action": "alter", "kind": "partitions", "topic": topic, "before": before, "after": after}
        case AlterConfigsStep(topic, changes):
            kind = "broker configs" if topic is None else "topic configs"
            yield {"action": "alter", "kind": kind, "topic": topic, "changes": _value_changes_to_json(changes)}
        case SetPasswordStep(user, mechanisms, _, is_new):
            action = "create" if is_new else "alter"
            yield {"action": action, "kind": "user", "name": user, "mechanisms": list(mechanisms)}
        case DeleteCredentialsStep(user, mechanisms, is_all):
            action = "delete" if is_all else "alter"
            yield {"action": action, "kind": "user", "name": user, "mechanisms": mechanisms}
        case AddAclsStep(acls) | RemoveAclsStep(acls):
            action = "create" if isinstance(step, AddAclsStep) else "delete"
            yield from ({"action": action, "kind": "acl", **acl_to_json(acl)} for acl in acls)
        case AlterQuotasStep(entity, changes):
            yield {
                "action": "alter",
                "kind": "quotas",
                "entity": dict(entity),
                "changes": _value_changes_to_json(changes),
            }
        case DeleteTopicStep(name):
            yield {"action": "delete", "kind": "topic", "name": name}


def _value_changes_to_json(changes: Mapping[str, ValueChange]) -> dict[str, Any]:
    return {key: {"before": each.before, "after": each.after} for key, each in changes.items()}
