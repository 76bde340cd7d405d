"""Operations on ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from chronik.client.acl_presets import ResourceOperation, list_consumer_operations, list_producer_operations
from chronik.client.security import MATCH_ANY, AclBinding, AclFilter, add_acls, list_acls, remove_acls
from chronik.console.http import HttpResponse
from chronik.console.rest.context import OperationContext
from chronik.console.rest.models.common import Page
from chronik.console.rest.models.security import (
    AclAdditions,
    AclFields,
    AclImport,
    AclQuestion,
    Acls,
    AclShape,
    ClientAcls,
    ConsumerAcls,
    ImportedAcls,
    ProducerAcls,
)
from chronik.console.rest.operations.acl_csv import format_acls, parse_acls
from chronik.console.rest.operations.downloads import build_file_response
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
    acls = [_to_model(acl) for acl in _list_matching(context, params)]
    return paginate(acls, params.after, params.limit)


def _list_matching(context: OperationContext, params: AclFields) -> list[AclBinding]:
    wanted = AclFilter(
        RESOURCES[params.resource] if params.resource else MATCH_ANY,
        params.name,
        FILTER_PATTERNS[params.pattern] if params.pattern else MATCH_ANY,
        params.principal,
        params.host,
        OPERATIONS[params.operation] if params.operation else MATCH_ANY,
        PERMISSIONS[params.permission] if params.permission else MATCH_ANY,
    )
    return sorted(list_acls(context.cluster, wanted))


def export_csv(context: OperationContext, params: AclFields) -> HttpResponse:
    """Return a CSV file of the ACLs that match a filter."""
    return build_file_response("text/csv; charset=utf-8", "acls.csv", format_acls(_list_matching(context, params)))


def import_csv(context: OperationContext, params: AclImport) -> ImportedAcls:
    """Create the ACLs of a CSV file that do not exist yet, unless a line is invalid."""
    acls, invalid = parse_acls(params.csv)
    additions = _add_missing(context, acls, dry_run=params.dry_run or bool(invalid))
    return ImportedAcls(added=additions.added, existing=additions.existing, done=additions.done, invalid=invalid)


def add_producer(context: OperationContext, params: ProducerAcls) -> AclAdditions:
    """Create the ACLs of a producer."""
    operations = list_producer_operations(
        params.topics, params.transactional_ids, PatternType(PATTERNS[params.pattern]), idempotent=params.idempotent
    )
    return _add_missing(context, _to_bindings(params, operations), dry_run=params.dry_run)


def add_consumer(context: OperationContext, params: ConsumerAcls) -> AclAdditions:
    """Create the ACLs of a consumer."""
    operations = list_consumer_operations(params.topics, params.groups, PatternType(PATTERNS[params.pattern]))
    return _add_missing(context, _to_bindings(params, operations), dry_run=params.dry_run)


def _to_bindings(params: ClientAcls, operations: Sequence[ResourceOperation]) -> list[AclBinding]:
    bindings = (
        AclBinding(
            each.resource_type,
            each.name,
            each.pattern_type,
            params.principal,
            params.host,
            each.operation,
            AclPermission.ALLOW,
        )
        for each in operations
    )
    return list(dict.fromkeys(bindings))


def _add_missing(context: OperationContext, acls: Sequence[AclBinding], *, dry_run: bool) -> AclAdditions:
    """Create those of the ACLs that do not exist. A dry run only determines them."""
    known = set(list_acls(context.cluster, AclFilter()))
    missing = [acl for acl in acls if acl not in known]
    if missing and not dry_run:
        add_acls(context.cluster, missing)
    return AclAdditions(
        added=[_to_model(acl) for acl in missing],
        existing=[_to_model(acl) for acl in acls if acl in known],
        done=not dry_run,
    )


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
