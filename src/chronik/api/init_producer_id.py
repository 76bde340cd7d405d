"""InitProducerId: gives an idempotent producer an id; a transactional one the id of its name, with an epoch that fences
all producers that had the name before."""

from __future__ import annotations

import logging

from chronik.api.shared.context import Context, Services
from chronik.api.shared.rights import may_do, may_with_cluster, may_write_something
from chronik.api.shared.transactions import FirstVersions, refusal
from chronik.broker.requests.client_allowances import client_of
from chronik.limits import PRODUCER_IDS_PER_SECOND
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.permissions import Operation, ResourceType

logger = logging.getLogger("chronik.api")

NONE = -1
REFUSED_FOR_NOW = "producer id refused: principal=%s host=%s asks for more than %d a second; the client retries"
FIRST_VERSIONS = FirstVersions(fenced=4, abortable=5)


async def handle(services: Services, request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    code = _refusal(services, request, context)
    if code is not None:
        return failed(InitProducerIdResponse, request, code)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return failed(InitProducerIdResponse, request, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _of_transactional_id(services, request, request.transactional_id, context)
    # As in Kafka, a producer without a transactional id gets a fresh id even when it names the one it had: nothing
    # would stop a second client from naming it too.
    client = client_of(context.peer)
    if not services.producer_id_allowances.take(client, services.clock.monotonic()):
        logger.warning(REFUSED_FOR_NOW, *client, PRODUCER_IDS_PER_SECOND)
        return failed(InitProducerIdResponse, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        if services.is_fenced():
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the node is fenced")
        return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        # Without a quorum. Any node will do, and an id that nobody was told is no loss: producers just ask again, where
        # any other error makes some give up.
        logger.info("no producer id for %s: %s", context.client_id, error)
        return failed(InitProducerIdResponse, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _refusal(services: Services, request: InitProducerIdRequest, context: Context) -> ErrorCode | None:
    """Whoever may write to some topic may do it as an idempotent producer, too (KIP-679)."""
    if request.transactional_id is not None:
        may_write = may_do(services, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
        is_allowed = may_write(request.transactional_id)
        return None if is_allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if may_write_something(services, context) or may_with_cluster(services, context, Operation.IDEMPOTENT_WRITE):
        return None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def _of_transactional_id(
    services: Services, request: InitProducerIdRequest, transactional_id: str, context: Context
) -> InitProducerIdResponse:
    refused = refusal(services.image, transactional_id)
    if refused is None and services.is_fenced():
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if refused is not None:
        return failed(InitProducerIdResponse, request, refused)
    given = await services.transactions.init(
        transactional_id,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
        client_of(context.peer),
    )
    return InitProducerIdResponse(
        error_code=FIRST_VERSIONS.told(given.error, context.version),
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
    )
