"""Who may do what."""

from __future__ import annotations

from typing import Any, Final

from chronik.client.security.acls import ANY, AclBinding, AclFilter, add_acls, list_acls, remove_acls
from chronik.console.rest.call import Call
from chronik.console.rest.doing.shared import page_of
from chronik.console.rest.shapes.common import Page
from chronik.console.rest.shapes.security import AclQuestion, Acls, AclShape
from chronik.protocol.permissions import Operation, ResourceType
from chronik.security.acls import PatternType, Permission


def _words(numbers: Any) -> dict[str, int]:
    return {each.name.lower().replace("_", "-"): int(each) for each in numbers}


RESOURCES: Final = _words(ResourceType)
OPERATIONS: Final = _words(Operation)
PATTERNS: Final = _words(PatternType)
PERMISSIONS: Final = _words(Permission)
_RESOURCE_NAMES: Final = {number: word for word, number in RESOURCES.items()}
_OPERATION_NAMES: Final = {number: word for word, number in OPERATIONS.items()}
_PATTERN_NAMES: Final = {number: word for word, number in PATTERNS.items()}
_PERMISSION_NAMES: Final = {number: word for word, number in PERMISSIONS.items()}


def list_all(call: Call, asked: AclQuestion) -> Page[AclShape]:
    wanted = AclFilter(
        RESOURCES[asked.resource] if asked.resource else ANY,
        asked.name,
        PATTERNS[asked.pattern] if asked.pattern else ANY,
        asked.principal,
        asked.host,
        OPERATIONS[asked.operation] if asked.operation else ANY,
        PERMISSIONS[asked.permission] if asked.permission else ANY,
    )
    return page_of([_shape(acl) for acl in sorted(list_acls(call.cluster, wanted))], asked.after, asked.limit)


def add(call: Call, asked: Acls) -> Acls:
    add_acls(call.cluster, [_binding(acl) for acl in asked.acls])
    return asked


def delete(call: Call, asked: Acls) -> Page[AclShape]:
    gone = remove_acls(call.cluster, [AclFilter(*_binding(acl)) for acl in asked.acls])
    return Page([_shape(acl) for acl in sorted(gone)], None, len(gone))


def _binding(acl: AclShape) -> AclBinding:
    return AclBinding(
        RESOURCES[acl.resource],
        acl.name,
        PATTERNS[acl.pattern],
        acl.principal,
        acl.host,
        OPERATIONS[acl.operation],
        PERMISSIONS[acl.permission],
    )


def _shape(acl: AclBinding) -> AclShape:
    words: dict[str, Any] = {
        "resource": _RESOURCE_NAMES[acl.resource_type],
        "pattern": _PATTERN_NAMES[acl.pattern_type],
        "operation": _OPERATION_NAMES[acl.operation],
        "permission": _PERMISSION_NAMES[acl.permission],
    }
    return AclShape(name=acl.name, principal=acl.principal, host=acl.host, **words)
