"""InitProducerId (API key 22): assigns a producer id and epoch.

An idempotent producer gets a new id. A transactional producer gets the id of its transactional id, with a new epoch
that fences earlier producers.
"""

from __future__ import annotations

import logging

from chronik.api.shared.authorization import (
    build_authorization_predicate,
    can_write_any_topic,
    is_authorized_on_cluster,
)
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.transactions import ErrorVersions, find_transaction_request_error
from chronik.limits import PRODUCER_IDS_PER_SECOND
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.quotas.token_buckets import client_key

logger = logging.getLogger("chronik.api")

NONE = -1
_RATE_LIMITED = "producer id request rejected: principal=%s host=%s exceeds %d requests per second; the client retries"
ERROR_VERSIONS = ErrorVersions(producer_fenced=4, transaction_abortable=5)


async def handle(services: Services, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    code = _find_producer_authorization_error(services, request, context)
    if code is not None:
        return build_error_response(InitProducerIdResponse, request, code)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return build_error_response(InitProducerIdResponse, request, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _init_transactional_id(services, request, request.transactional_id, context)
    # As in Kafka, a producer without a transactional id gets a new id even if it sends its current one: a second client
    # could send the same.
    client = client_key(context.peer)
    if not services.producer_id_allowances.try_acquire(client, services.clock.monotonic()):
        logger.warning(_RATE_LIMITED, *client, PRODUCER_IDS_PER_SECOND)
        return build_error_response(InitProducerIdResponse, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        if services.is_fenced():
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the node is fenced")
        return InitProducerIdResponse(producer_id=await services.producer_ids.allocate(), producer_epoch=0)
    except KafkaError as error:
        # Without a quorum, COORDINATOR_LOAD_IN_PROGRESS makes every producer retry; other errors are fatal for some. An
        # id that was allocated but not returned is simply skipped.
        logger.info("producer id allocation failed: client_id=%s: %s; the client retries", context.client_id, error)
        return build_error_response(InitProducerIdResponse, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _find_producer_authorization_error(
    services: Services, request: InitProducerIdRequest, context: RequestContext
) -> ErrorCode | None:
    """Return the error code if the client may not obtain a producer id, otherwise None.

    An idempotent producer needs WRITE on any topic (KIP-679).
    """
    if request.transactional_id is not None:
        may_write = build_authorization_predicate(
            services, context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID
        )
        is_authorized = may_write(request.transactional_id)
        return None if is_authorized else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if can_write_any_topic(services, context) or is_authorized_on_cluster(
        services, context, AclOperation.IDEMPOTENT_WRITE
    ):
        return None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def _init_transactional_id(
    services: Services, request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> InitProducerIdResponse:
    error = find_transaction_request_error(services.image, transactional_id)
    if error is None and services.is_fenced():
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is not None:
        return build_error_response(InitProducerIdResponse, request, error)
    result = await services.transactions.init_producer(
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        client_key(context.peer),
    )
    return InitProducerIdResponse(
        error_code=ERROR_VERSIONS.translate(result.error, context.version),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )
