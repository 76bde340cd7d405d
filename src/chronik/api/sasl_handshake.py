"""SaslHandshake: there is nothing to agree on, as on every Kafka listener without SASL."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.failures import failed
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(services: Services, request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return failed(SaslHandshakeResponse, request, ErrorCode.ILLEGAL_SASL_STATE)
