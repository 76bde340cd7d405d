"""Authorization of client requests. Without an authorizer, every operation is permitted.

A handler checks permissions before it looks up an object, so that unauthorized clients cannot learn whether the object
exists. If an API needs a single permission on the cluster, the router checks it, as declared in the table of APIs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chronik.api.shared.context import Context, Services
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.permissions import (
    ALL_ON_CLUSTER,
    ALL_ON_GROUP,
    ALL_ON_TOPIC,
    CLUSTER_NAME,
    Operation,
    ResourceType,
)
from chronik.security import audit

Judge = Callable[[str], bool]
"""A predicate that says whether an operation is permitted on the resource of that name."""

AUDITED_DENIALS_PER_REQUEST_MAX: Final = 10
"""Denials per request that are written to the audit log, each on a line of its own."""

ALL_OPERATIONS: Final = {
    ResourceType.TOPIC: ALL_ON_TOPIC,
    ResourceType.GROUP: ALL_ON_GROUP,
    ResourceType.CLUSTER: ALL_ON_CLUSTER,
}

_CHECKED_BY_HANDLER: Final = {"DescribeCluster"}
"""APIs that every client may use, and whose handlers leave out what the client may not see."""


def may_do(
    services: Services, context: Context, operation: Operation, resource: ResourceType, *, audited: bool = True
) -> Judge:
    """Return a predicate that says whether the client may perform the operation on the resource of a given name.

    Denials are written to the audit log unless `audited` is False, as for names that are only left out of a list.
    """
    authorizer = services.authorizer
    if authorizer is None:
        return _permit_all
    peer, denials = context.peer, 0

    def is_authorized(name: str) -> bool:
        nonlocal denials
        if authorizer.allows(peer.principal, peer.host, operation, resource, name):
            return True
        if audited and denials < AUDITED_DENIALS_PER_REQUEST_MAX:
            denials += 1
            audit.refused(peer, context.api, operation, resource, name)
        return False

    return is_authorized


def _permit_all(name: str) -> bool:
    return True


def may_with_cluster(services: Services, context: Context, operation: Operation, *, audited: bool = True) -> bool:
    """Return whether the client may perform the operation on the cluster."""
    return services.authorizer is None or may_do(services, context, operation, ResourceType.CLUSTER, audited=audited)(
        CLUSTER_NAME
    )


def check_cluster(services: Services, context: Context, *operations: Operation) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED unless the client may perform one of the operations on the cluster."""
    *others, last = operations
    if any(may_with_cluster(services, context, each, audited=False) for each in others):
        return
    if not may_with_cluster(services, context, last):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def refusal_of_offsets(services: Services, context: Context, transactional_id: str, group_id: str) -> ErrorCode | None:
    """Return the authorization error for committing offsets of a group in a transaction, or None if permitted."""
    if not may_do(services, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)(transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not may_do(services, context, Operation.READ, ResourceType.GROUP)(group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def may_write_something(services: Services, context: Context) -> bool:
    """Return whether the client may write to any topic, which permits an idempotent producer (KIP-679)."""
    authorizer, peer = services.authorizer, context.peer
    return authorizer is None or authorizer.allows_one(peer.principal, peer.host, Operation.WRITE, ResourceType.TOPIC)


def operations_on(services: Services, context: Context, resource: ResourceType, name: str) -> int:
    """Return the client's permitted operations on a resource as the bit field of Kafka's responses."""
    authorizer, peer = services.authorizer, context.peer
    if authorizer is None:
        return ALL_OPERATIONS[resource]
    return authorizer.operations(peer.principal, peer.host, resource, name)


def operations_on_cluster(services: Services, context: Context) -> int:
    """Return the client's permitted operations on the cluster as a bit field; 0 without the DESCRIBE permission."""
    if not may_with_cluster(services, context, Operation.DESCRIBE):
        return 0
    return operations_on(services, context, ResourceType.CLUSTER, CLUSTER_NAME)


def rights_on_cluster() -> dict[int, Operation]:
    """Return the required cluster operation by API key, for APIs that need no other permission."""
    found = {}
    for api in APIS.values():
        needs = api.needs
        if api.name not in _CHECKED_BY_HANDLER and len(needs) == 1 and needs[0].resource_type is ResourceType.CLUSTER:
            found[api.key] = needs[0].operation
    return found


_CONFIG_RESOURCES: Final[dict[int, tuple[ResourceType, ErrorCode]]] = {
    2: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    32: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
"""Resource type and authorization error by the resource type number of config requests (2: topic, 32: group)."""


def check_configs(services: Services, context: Context, operation: Operation, kind: int, name: str) -> None:
    """Raise KafkaError unless the client may perform the operation on the configs of a resource.

    Configs of anything but topics and groups need the permission on the cluster.
    """
    if services.authorizer is None:
        return
    found = _CONFIG_RESOURCES.get(kind)
    if found is None:
        check_cluster(services, context, operation)
    elif not may_do(services, context, operation, found[0])(name):
        raise KafkaError(found[1])
