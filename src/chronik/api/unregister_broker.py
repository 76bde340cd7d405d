"""UnregisterBroker (API key 64): removes a broker that is shut down; a running one would register again."""

from __future__ import annotations

from chronik.admin.nodes import unregister_broker
from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import KafkaError
from chronik.protocol.failures import told
from chronik.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(services: Services, request: UnregisterBrokerRequest, context: Context) -> UnregisterBrokerResponse:
    try:
        await unregister_broker(services.store, request.broker_id)
    except KafkaError as error:
        return UnregisterBrokerResponse(**told(error))
    return UnregisterBrokerResponse()
