"""SaslAuthenticate: whoever has connected is let in already, as on a Kafka listener without SASL."""

from __future__ import annotations

from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

NOTHING_TO_SAY = "SaslAuthenticate request received after successful authentication"


def handle(services: Services, request: SaslAuthenticateRequest, context: Context) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=NOTHING_TO_SAY)
