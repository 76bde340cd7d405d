"""Whether whoever asks may do what it asks for. Without an authorizer everybody may, and nothing is looked up.

A handler asks before it looks whether a thing exists, so that those who may not know of it cannot tell. What needs one
right on the cluster for the whole request, and nothing else, the router asks for, going by the table of APIs.
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
"""Says of a name whether it may be done."""

TOLD_PER_REQUEST_MAX: Final = 10
"""Names that one request is refused, and that the audit log has a line for."""

ALL_OPERATIONS: Final = {
    ResourceType.TOPIC: ALL_ON_TOPIC,
    ResourceType.GROUP: ALL_ON_GROUP,
    ResourceType.CLUSTER: ALL_ON_CLUSTER,
}

_DECIDES_ITSELF: Final = {"DescribeCluster"}
"""Everybody may ask for it, and those without the right get less."""


def may_do(
    services: Services, context: Context, operation: Operation, resource: ResourceType, *, audited: bool = True
) -> Judge:
    """Returns whom to ask about each name. Those that are only left out of a list are not `audited`."""
    authorizer = services.authorizer
    if authorizer is None:
        return _anything
    peer, told = context.peer, 0

    def is_allowed(name: str) -> bool:
        nonlocal told
        if authorizer.allows(peer.principal, peer.host, operation, resource, name):
            return True
        if audited and told < TOLD_PER_REQUEST_MAX:
            told += 1
            audit.refused(peer, context.api, operation, resource, name)
        return False

    return is_allowed


def _anything(name: str) -> bool:
    return True


def may_with_cluster(services: Services, context: Context, operation: Operation, *, audited: bool = True) -> bool:
    return services.authorizer is None or may_do(services, context, operation, ResourceType.CLUSTER, audited=audited)(
        CLUSTER_NAME
    )


def check_cluster(services: Services, context: Context, *operations: Operation) -> None:
    """Raises KafkaError when none of them is allowed."""
    *others, last = operations
    if any(may_with_cluster(services, context, each, audited=False) for each in others):
        return
    if not may_with_cluster(services, context, last):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def refusal_of_offsets(services: Services, context: Context, transactional_id: str, group_id: str) -> ErrorCode | None:
    """Returns why offsets of a group may not be committed with a transaction."""
    if not may_do(services, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)(transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not may_do(services, context, Operation.READ, ResourceType.GROUP)(group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def may_write_something(services: Services, context: Context) -> bool:
    """Whether there is a topic that may be written to: then its producer may be an idempotent one (KIP-679)."""
    authorizer, peer = services.authorizer, context.peer
    return authorizer is None or authorizer.allows_one(peer.principal, peer.host, Operation.WRITE, ResourceType.TOPIC)


def operations_on(services: Services, context: Context, resource: ResourceType, name: str) -> int:
    """Returns what is allowed, as the bits in which answers list it."""
    authorizer, peer = services.authorizer, context.peer
    if authorizer is None:
        return ALL_OPERATIONS[resource]
    return authorizer.operations(peer.principal, peer.host, resource, name)


def operations_on_cluster(services: Services, context: Context) -> int:
    """Returns none of them to those who may not even describe it."""
    if not may_with_cluster(services, context, Operation.DESCRIBE):
        return 0
    return operations_on(services, context, ResourceType.CLUSTER, CLUSTER_NAME)


def rights_on_cluster() -> dict[int, Operation]:
    """Returns the one right on the cluster that an API needs, where it needs no other, by key."""
    found = {}
    for api in APIS.values():
        needs = api.needs
        if api.name not in _DECIDES_ITSELF and len(needs) == 1 and needs[0].resource_type is ResourceType.CLUSTER:
            found[api.key] = needs[0].operation
    return found


_CONFIGS_OF: Final[dict[int, tuple[ResourceType, ErrorCode]]] = {
    2: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    32: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}
"""By the numbers that requests about configs have for topics and groups."""


def check_configs(services: Services, context: Context, operation: Operation, kind: int, name: str) -> None:
    """Raises KafkaError for configs of a topic, a group, or anything else, which belongs to the cluster."""
    if services.authorizer is None:
        return
    found = _CONFIGS_OF.get(kind)
    if found is None:
        check_cluster(services, context, operation)
    elif not may_do(services, context, operation, found[0])(name):
        raise KafkaError(found[1])
