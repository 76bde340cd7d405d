"""InitProducerId: gives an idempotent producer an id.

Missing: transactional ids, which are refused as FindCoordinator refuses them.
"""

from __future__ import annotations

import logging

from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger("chronik.api")

NO_EPOCH = -1


async def handle(services: Services, request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return failed(InitProducerIdResponse, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    # As in Kafka, a producer without a transactional id gets a fresh id even when it names the one it had: nothing
    # would stop a second client from naming it too.
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=0)
    except KafkaError as error:
        # Without a quorum. Any node will do, and an id that nobody was told is no loss: producers just ask again.
        logger.info("no producer id for %s: %s", context.client_id, error)
        return failed(InitProducerIdResponse, request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
