"""A naive implementation of Kafka's authorization rules, for comparison with the real one."""

from __future__ import annotations

from collections.abc import Iterable

from chronik.metadata.records import Acl
from chronik.principals import Principal
from chronik.protocol.permissions import KAFKA_RESOURCE_TYPES, AclOperation, AclResourceType
from chronik.security.acls import AclFilterPattern

DENY, ALLOW = 2, 3
MATCH, LITERAL, PREFIXED = 2, 3, 4


def is_about(acl: Acl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.name)
    return acl.name in ("*", name)


def permission_of(acl: Acl, principal: Principal, host: str, operation: AclOperation) -> int | None:
    if acl.principal not in (f"{principal.type}:{principal.name}", "User:*") or acl.host not in ("*", host):
        return None
    implied = {operation}
    if acl.permission == ALLOW and operation is AclOperation.DESCRIBE:
        implied |= {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if acl.permission == ALLOW and operation is AclOperation.DESCRIBE_CONFIGS:
        implied |= {AclOperation.ALTER_CONFIGS}
    return acl.permission if acl.operation == AclOperation.ALL or acl.operation in implied else None


def is_allowed(
    acls: Iterable[Acl],
    principal: Principal,
    host: str,
    operation: AclOperation,
    resource_type: AclResourceType,
    name: str,
    *,
    everyone_if_no_acl: bool,
) -> bool:
    applicable = [acl for acl in acls if is_about(acl, resource_type, name)]
    if not applicable:
        return everyone_if_no_acl
    said = {permission_of(acl, principal, host, operation) for acl in applicable}
    return DENY not in said and ALLOW in said


def is_allowed_on_any(
    acls: Iterable[Acl], principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType
) -> bool:
    """Kafka's rule for "at least one resource of a type", which considers patterns, not existing resources."""
    if is_allowed(acls, principal, host, operation, resource_type, "hardcode", everyone_if_no_acl=False):
        return True
    relevant = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and acl.operation in (AclOperation.ALL, operation)
        and permission_of(acl, principal, host, operation) is not None
    ]
    denied = [acl for acl in relevant if acl.permission == DENY]
    if any(acl.pattern_type == LITERAL and acl.name == "*" for acl in denied):
        return False
    return any(acl.permission == ALLOW and not any(_dominates(each, acl) for each in denied) for acl in relevant)


def _dominates(denied: Acl, allowed: Acl) -> bool:
    if allowed.pattern_type == LITERAL and allowed.name == "*":
        return False
    if denied.pattern_type == PREFIXED:
        return allowed.name.startswith(denied.name)
    return allowed.pattern_type == LITERAL and allowed.name == denied.name


def filter_matches(wanted: AclFilterPattern, acl: Acl) -> bool:
    """Kafka's AccessControlEntryFilter and ResourcePatternFilter: 1 matches anything, pattern type 2 what applies."""
    any_number = 1
    if wanted.resource_type == any_number and acl.resource_type not in KAFKA_RESOURCE_TYPES:
        return False
    for wanted_value, value in (
        (wanted.resource_type, acl.resource_type),
        (wanted.operation, acl.operation),
        (wanted.permission, acl.permission),
    ):
        if wanted_value not in (any_number, value):
            return False
    for wanted_text, text in ((wanted.principal, acl.principal), (wanted.host, acl.host)):
        if wanted_text is not None and wanted_text != text:
            return False
    if wanted.pattern_type == MATCH and wanted.name is not None:
        return is_about(acl, acl.resource_type, wanted.name)
    return wanted.pattern_type in (any_number, MATCH, acl.pattern_type) and wanted.name in (None, acl.name)
