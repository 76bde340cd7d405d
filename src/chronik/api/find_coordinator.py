"""FindCoordinator (API key 10): returns the coordinator of a consumer group or a transactional id.

Difference from Kafka: share groups are not supported.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import IntEnum
from typing import Final

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do
from chronik.api.shared.transactions import REFUSED, why_refused
from chronik.exchange import Reply
from chronik.limits import GROUP_ID_CHARACTERS_MAX, TRANSACTIONAL_ID_CHARACTERS_MAX
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.permissions import Operation, ResourceType

FIRST_VERSION_WITH_MANY_KEYS = 4
NO_NODE = -1


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_PERMISSIONS: Final[dict[int, tuple[ResourceType, ErrorCode]]] = {
    CoordinatorType.GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    CoordinatorType.TRANSACTION: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
"""The resource that a client must be allowed to describe, and the error if it is not, by key type."""


def handle(services: Services, request: FindCoordinatorRequest, context: Context) -> Reply[FindCoordinatorResponse]:
    return Reply.of_steps(_find_all(services, request, context))


def _find_all(
    services: Services, request: FindCoordinatorRequest, context: Context
) -> Generator[None, None, FindCoordinatorResponse]:
    has_many_keys = context.version >= FIRST_VERSION_WITH_MANY_KEYS
    found = []
    kind, refusal = _PERMISSIONS.get(request.key_type, (None, ErrorCode.NONE))
    may_see = None if kind is None else may_do(services, context, Operation.DESCRIBE, kind)
    for key in dict.fromkeys(request.coordinator_keys if has_many_keys else [request.key]):
        if may_see is None or may_see(key):
            found.append(_find(services, key, request.key_type, context.listener))
        else:
            found.append(_failure(key, refusal, refusal.message))
        yield
    return _response(found, has_many_keys)


def _find(services: Services, key: str, key_type: int, listener: str) -> Coordinator:
    if key_type not in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
        return _failure(key, ErrorCode.INVALID_REQUEST, "Only consumer groups and transactions have a coordinator")
    coordinators = services.coordinators
    if key_type == CoordinatorType.TRANSACTION:
        why = why_refused(services.image)
        if why is not None:
            return _failure(key, REFUSED, why)
        coordinators = services.transaction_coordinators
    length_error = _length_error(services, key, key_type)
    if length_error is not None:
        return length_error
    broker = services.image.brokers.get(coordinators.node_of(key))
    place = broker.place(listener) if broker is not None else None
    if broker is None or place is None or broker.fenced or services.is_gone(broker.id):
        return _failure(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message)
    return Coordinator(key=key, node_id=broker.id, host=place.host, port=place.port, error_message=None)


def _length_error(services: Services, key: str, key_type: int) -> Coordinator | None:
    """Return the error of a key that is too long, unless it exists: earlier versions of Chronik had no limit."""
    if key_type == CoordinatorType.TRANSACTION:
        longest, code = TRANSACTIONAL_ID_CHARACTERS_MAX, ErrorCode.INVALID_REQUEST
        exists = key in services.image.transactions
    else:
        longest, code = GROUP_ID_CHARACTERS_MAX, ErrorCode.INVALID_GROUP_ID
        exists = key in services.image.groups
    if len(key) <= longest or exists:
        return None
    return _failure(key, code, f"The id has {len(key)} characters; the maximum is {longest}")


def _failure(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message)


def _response(found: list[Coordinator], has_many_keys: bool) -> FindCoordinatorResponse:
    if has_many_keys:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        node_id=only.node_id,
        host=only.host,
        port=only.port,
        error_code=only.error_code,
        error_message=only.error_message,
    )
