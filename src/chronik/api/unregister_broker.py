"""UnregisterBroker (API key 64): removes a broker that is shut down; a running one would register again."""

from __future__ import annotations

from chronik.admin.nodes import unregister_broker
from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.error_responses import build_error_fields
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    services: Services, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    try:
        await unregister_broker(services.store, request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(**build_error_fields(error))
    return UnregisterBrokerResponse()
