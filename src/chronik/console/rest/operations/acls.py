"""Operations on ACLs."""

from __future__ import annotations

from typing import Any, Final

from chronik.client.security import MATCH_ANY, AclBinding, AclFilter, add_acls, list_acls, remove_acls
from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.common import Page
from chronik.console.rest.models.security import AclQuestion, Acls, AclShape
from chronik.console.rest.operations.shared import paginate
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import MATCH_PATTERN, AclPermission, PatternType


def _index_values_by_name(numbers: Any) -> dict[str, int]:
    return {each.name.lower().replace("_", "-"): int(each) for each in numbers}


RESOURCES: Final = _index_values_by_name(AclResourceType)
OPERATIONS: Final = _index_values_by_name(AclOperation)
PATTERNS: Final = _index_values_by_name(PatternType)
FILTER_PATTERNS: Final = PATTERNS | {"match": MATCH_PATTERN}
PERMISSIONS: Final = _index_values_by_name(AclPermission)
_RESOURCE_NAMES: Final = {number: word for word, number in RESOURCES.items()}
_OPERATION_NAMES: Final = {number: word for word, number in OPERATIONS.items()}
_PATTERN_NAMES: Final = {number: word for word, number in PATTERNS.items()}
_PERMISSION_NAMES: Final = {number: word for word, number in PERMISSIONS.items()}


def list_all(context: OperationContext, params: AclQuestion) -> Page[AclShape]:
    """List the ACLs that match a filter."""
    wanted = AclFilter(
        RESOURCES[params.resource] if params.resource else MATCH_ANY,
        params.name,
        FILTER_PATTERNS[params.pattern] if params.pattern else MATCH_ANY,
        params.principal,
        params.host,
        OPERATIONS[params.operation] if params.operation else MATCH_ANY,
        PERMISSIONS[params.permission] if params.permission else MATCH_ANY,
    )
    return paginate([_to_model(acl) for acl in sorted(list_acls(context.cluster, wanted))], params.after, params.limit)


def add(context: OperationContext, params: Acls) -> Acls:
    """Create ACLs."""
    add_acls(context.cluster, [_to_binding(acl) for acl in params.acls])
    return params


def delete(context: OperationContext, params: Acls) -> Page[AclShape]:
    """Delete the listed ACLs, and return those that existed."""
    deleted = remove_acls(context.cluster, [AclFilter(*_to_binding(acl)) for acl in params.acls])
    return Page([_to_model(acl) for acl in sorted(deleted)], None, len(deleted))


def _to_binding(acl: AclShape) -> AclBinding:
    return AclBinding(
        RESOURCES[acl.resource],
        acl.name,
        PATTERNS[acl.pattern],
        acl.principal,
        acl.host,
        OPERATIONS[acl.operation],
        PERMISSIONS[acl.permission],
    )


def _to_model(acl: AclBinding) -> AclShape:
    words: dict[str, Any] = {
        "resource": _RESOURCE_NAMES[acl.resource_type],
        "pattern": _PATTERN_NAMES[acl.pattern_type],
        "operation": _OPERATION_NAMES[acl.operation],
        "permission": _PERMISSION_NAMES[acl.permission],
    }
    return AclShape(name=acl.name, principal=acl.principal, host=acl.host, **words)
