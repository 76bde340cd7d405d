"""SaslHandshake (API key 17): selects the SASL mechanism.

It fails with ILLEGAL_SASL_STATE on a listener without SASL, or if the client is already authenticated.
"""

from __future__ import annotations

import asyncio

from chronik.api.shared.context import RequestContext, Services
from chronik.escaping import truncate_text
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.request_reply import Reply
from chronik.security.sasl.session import HandshakeResult, SaslSession

MECHANISM_CHARACTERS_SHOWN_MAX = 60


def handle(services: Services, request: SaslHandshakeRequest, context: RequestContext) -> Reply[SaslHandshakeResponse]:
    session = context.peer.session
    if not isinstance(session, SaslSession):
        return Reply.from_response(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    outcome = session.handshake(request.mechanism, context.version, services.clock.monotonic())
    if outcome is HandshakeResult.ACCEPTED:
        return Reply.from_response(SaslHandshakeResponse(mechanisms=session.mechanisms))
    if outcome is HandshakeResult.UNEXPECTED:
        return Reply.from_response(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    return Reply.from_coroutine(_reject_sasl_mechanism(services, session, request.mechanism, context))


async def _reject_sasl_mechanism(
    services: Services, session: SaslSession, mechanism: str, context: RequestContext
) -> SaslHandshakeResponse:
    """Reject an unsupported SASL mechanism, and close the connection after the delay of a failed login."""
    shown = truncate_text(repr(mechanism), MECHANISM_CHARACTERS_SHOWN_MAX)
    await asyncio.sleep(services.configs.broker_int("connection.failed.authentication.delay.ms") / 1000)
    context.peer.close_reason = f"unsupported SASL mechanism {shown}; enabled: {', '.join(session.mechanisms)}"
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=session.mechanisms)
