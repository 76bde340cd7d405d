"""FindCoordinator (API key 10): returns the coordinator of a consumer group or a transactional id.

Difference from Kafka: share groups are not supported.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from enum import IntEnum
from typing import Final

from chronik.api.shared.authorization import build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.transactions import TRANSACTIONS_UNSUPPORTED_ERROR, find_transactions_unsupported_reason
from chronik.limits import GROUP_ID_CHARACTERS_MAX, TRANSACTIONAL_ID_CHARACTERS_MAX
from chronik.metadata.records import Broker
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse, FoundCoordinator
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Reply

FIRST_VERSION_WITH_MANY_KEYS = 4
NO_NODE = -1


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_PERMISSIONS: Final[dict[int, tuple[AclResourceType, ErrorCode]]] = {
    CoordinatorType.GROUP: (AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    CoordinatorType.TRANSACTION: (AclResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
"""Resource type and authorization error of the DESCRIBE permission check, by coordinator type."""


def handle(
    services: Services, request: FindCoordinatorRequest, context: RequestContext
) -> Reply[FindCoordinatorResponse]:
    return Reply.from_steps(_find_coordinators(services, request, context))


def _find_coordinators(
    services: Services, request: FindCoordinatorRequest, context: RequestContext
) -> Generator[None, None, FindCoordinatorResponse]:
    has_many_keys = context.version >= FIRST_VERSION_WITH_MANY_KEYS
    found = []
    kind, refusal = _PERMISSIONS.get(request.key_type, (None, ErrorCode.NONE))
    may_see = None if kind is None else build_authorization_predicate(services, context, AclOperation.DESCRIBE, kind)
    for key in dict.fromkeys(request.coordinator_keys if has_many_keys else [request.key]):
        if may_see is None or may_see(key):
            found.append(_find(services, key, request.key_type, context.listener))
        else:
            found.append(_build_coordinator_error(key, refusal, refusal.message))
        yield
    return _build_response(found, has_many_keys)


def _find(services: Services, key: str, key_type: int, listener: str) -> FoundCoordinator:
    if key_type not in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
        return _build_coordinator_error(
            key, ErrorCode.INVALID_REQUEST, "Only consumer groups and transactions have a coordinator"
        )
    coordinators = services.coordinators
    if key_type == CoordinatorType.TRANSACTION:
        why = find_transactions_unsupported_reason(services.image)
        if why is not None:
            return _build_coordinator_error(key, TRANSACTIONS_UNSUPPORTED_ERROR, why)
        coordinators = services.transaction_coordinators
    length_error = _find_key_length_error(services, key, key_type)
    if length_error is not None:
        return length_error
    coordinator_id = coordinators.coordinator_of(key)
    broker = (
        _select_redirect_broker(services, coordinator_id)
        if services.is_fenced()
        else _find_online_broker(services, coordinator_id)
    )
    place = broker.listener_address(listener) if broker is not None else None
    if broker is None or place is None:
        return _build_coordinator_error(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE.message
        )
    return FoundCoordinator(key=key, node_id=broker.id, host=place.host, port=place.port, error_message=None)


def _find_online_broker(services: Services, broker_id: int) -> Broker | None:
    broker = services.image.brokers.get(broker_id)
    return None if broker is None or broker.is_fenced or services.is_unreachable(broker_id) else broker


def _select_redirect_broker(services: Services, coordinator_id: int) -> Broker | None:
    """Return the broker to which a fenced node redirects a client: the coordinator, or else any other broker.

    The image of a fenced node may be stale, but a client that was given the wrong coordinator gets NOT_COORDINATOR and
    retries. Without a redirect, librdkafka would stay with this node, because it has a connection to it.
    """
    others = {
        key: broker
        for key, broker in services.image.brokers.items()
        if key != services.node_id and not broker.is_fenced
    }
    if coordinator_id in others:
        return others[coordinator_id]
    return random.choice(list(others.values())) if others else None


def _find_key_length_error(services: Services, key: str, key_type: int) -> FoundCoordinator | None:
    """Return an error if the requested group id or transactional id is too long, otherwise None.

    Existing keys are accepted, because earlier versions had no limit.
    """
    if key_type == CoordinatorType.TRANSACTION:
        longest, code = TRANSACTIONAL_ID_CHARACTERS_MAX, ErrorCode.INVALID_REQUEST
        exists = key in services.image.transactions
    else:
        longest, code = GROUP_ID_CHARACTERS_MAX, ErrorCode.INVALID_GROUP_ID
        exists = key in services.image.groups
    if len(key) <= longest or exists:
        return None
    return _build_coordinator_error(key, code, f"The id has {len(key)} characters; the maximum is {longest}")


def _build_coordinator_error(key: str, code: ErrorCode, message: str) -> FoundCoordinator:
    return FoundCoordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=message)


def _build_response(found: list[FoundCoordinator], has_many_keys: bool) -> FindCoordinatorResponse:
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
