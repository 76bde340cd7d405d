"""SaslHandshake, versions 0 and 1: there is nothing to agree on, as on every listener of Kafka's without SASL."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(services: Services, request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    return failure(request, ErrorCode.ILLEGAL_SASL_STATE)


def failure(request: SaslHandshakeRequest, code: ErrorCode) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code)
