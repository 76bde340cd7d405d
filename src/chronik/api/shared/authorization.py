"""Authorization of client requests. Without an authorizer, every operation is permitted.

A handler checks permissions before it looks up an object, so that unauthorized clients cannot learn whether the object
exists. If an API needs a single permission on the cluster, the router checks it, as declared in the table of APIs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.permissions import (
    CLUSTER_NAME,
    CLUSTER_OPERATION_BITS,
    GROUP_OPERATION_BITS,
    TOPIC_OPERATION_BITS,
    AclOperation,
    AclResourceType,
)
from chronik.security import audit

NamePredicate = Callable[[str], bool]
"""A predicate that takes a resource name and returns whether an operation on it is permitted."""

AUDITED_DENIALS_PER_REQUEST_MAX: Final = 10
"""Maximum number of denials per request that are written to the audit log, one per line."""

ALL_OPERATIONS: Final = {
    AclResourceType.TOPIC: TOPIC_OPERATION_BITS,
    AclResourceType.GROUP: GROUP_OPERATION_BITS,
    AclResourceType.CLUSTER: CLUSTER_OPERATION_BITS,
}

_CHECKED_BY_HANDLER: Final = {"DescribeCluster"}
"""Names of APIs for which the router checks no cluster permission, because their handlers filter results."""


def build_authorization_predicate(
    services: Services,
    context: RequestContext,
    operation: AclOperation,
    resource: AclResourceType,
    *,
    audited: bool = True,
) -> NamePredicate:
    """Return a predicate that tests whether the client may perform the operation on a named resource.

    Denials are written to the audit log unless `audited` is False, for example for filtered lists.
    """
    authorizer = services.authorizer
    if authorizer is None:
        return _permit_all
    peer, denials = context.peer, 0

    def is_authorized(name: str) -> bool:
        nonlocal denials
        if authorizer.is_authorized(peer.principal, peer.host, operation, resource, name):
            return True
        if audited and denials < AUDITED_DENIALS_PER_REQUEST_MAX:
            denials += 1
            audit.log_denied_request(peer, context.api_name, operation, resource, name)
        return False

    return is_authorized


def _permit_all(name: str) -> bool:
    return True


def is_authorized_on_cluster(
    services: Services, context: RequestContext, operation: AclOperation, *, audited: bool = True
) -> bool:
    """Return whether the client may perform the operation on the cluster."""
    return services.authorizer is None or build_authorization_predicate(
        services, context, operation, AclResourceType.CLUSTER, audited=audited
    )(CLUSTER_NAME)


def require_cluster_permission(services: Services, context: RequestContext, *operations: AclOperation) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED unless the client may perform one of the operations on the cluster."""
    *others, last = operations
    if any(is_authorized_on_cluster(services, context, each, audited=False) for each in others):
        return
    if not is_authorized_on_cluster(services, context, last):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def find_txn_offsets_authorization_error(
    services: Services, context: RequestContext, transactional_id: str, group_id: str
) -> ErrorCode | None:
    """Return the error code if the client may not commit the group's offsets in a transaction.

    Return None if the client may do so.
    """
    if not build_authorization_predicate(services, context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)(
        transactional_id
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.GROUP)(group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def can_write_any_topic(services: Services, context: RequestContext) -> bool:
    """Return whether the client may write to any topic, which permits an idempotent producer (KIP-679)."""
    authorizer, peer = services.authorizer, context.peer
    return authorizer is None or authorizer.is_authorized_for_any(
        peer.principal, peer.host, AclOperation.WRITE, AclResourceType.TOPIC
    )


def authorized_operations(services: Services, context: RequestContext, resource: AclResourceType, name: str) -> int:
    """Return the operations that the client may perform on a resource, as Kafka's bit field."""
    authorizer, peer = services.authorizer, context.peer
    if authorizer is None:
        return ALL_OPERATIONS[resource]
    return authorizer.authorized_operations(peer.principal, peer.host, resource, name)


def authorized_cluster_operations(services: Services, context: RequestContext) -> int:
    """Return the operations that the client may perform on the cluster, as Kafka's bit field.

    It is 0 without the DESCRIBE permission.
    """
    if not is_authorized_on_cluster(services, context, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(services, context, AclResourceType.CLUSTER, CLUSTER_NAME)


def build_cluster_permissions_by_api() -> dict[int, AclOperation]:
    """Return the cluster operation that each API requires, by API key, for APIs with no other permission."""
    found = {}
    for api in APIS.values():
        needs = api.required_permissions
        if (
            api.name not in _CHECKED_BY_HANDLER
            and len(needs) == 1
            and needs[0].resource_type is AclResourceType.CLUSTER
        ):
            found[api.key] = needs[0].operation
    return found


_CONFIG_RESOURCES: Final[dict[int, tuple[AclResourceType, ErrorCode]]] = {
    2: (AclResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    32: (AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
"""ACL resource type and authorization error for config requests, by config resource type.

The numbers are 2 for topics and 32 for groups.
"""


def require_config_permission(
    services: Services, context: RequestContext, operation: AclOperation, kind: int, name: str
) -> None:
    """Raise KafkaError unless the client may perform the operation on the configs of a resource.

    Configs of anything but topics and groups need the permission on the cluster.
    """
    if services.authorizer is None:
        return
    found = _CONFIG_RESOURCES.get(kind)
    if found is None:
        require_cluster_permission(services, context, operation)
    elif not build_authorization_predicate(services, context, operation, found[0])(name):
        raise KafkaError(found[1])
