"""SaslHandshake (API key 17): selects the SASL mechanism.

It fails with ILLEGAL_SASL_STATE on a listener without SASL, or if the client is already authenticated.
"""

from __future__ import annotations

import asyncio

from chronik.api.shared.context import Context, Services
from chronik.exchange import Reply
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from chronik.security.sasl.session import Handshake, Session
from chronik.shown import shortened

MECHANISM_CHARACTERS_SHOWN_MAX = 60


def handle(services: Services, request: SaslHandshakeRequest, context: Context) -> Reply[SaslHandshakeResponse]:
    session = context.peer.session
    if not isinstance(session, Session):
        return Reply.of(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    outcome = session.handshake(request.mechanism, context.version, services.clock.monotonic())
    if outcome is Handshake.TAKEN:
        return Reply.of(SaslHandshakeResponse(mechanisms=session.mechanisms))
    if outcome is Handshake.OUT_OF_PLACE:
        return Reply.of(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    return Reply.of_coroutine(_reject_mechanism(services, session, request.mechanism, context))


async def _reject_mechanism(
    services: Services, session: Session, mechanism: str, context: Context
) -> SaslHandshakeResponse:
    """Reject an unsupported mechanism, after the same delay as a wrong password, and close the connection."""
    shown = shortened(repr(mechanism), MECHANISM_CHARACTERS_SHOWN_MAX)
    await asyncio.sleep(services.configs.broker_int("connection.failed.authentication.delay.ms") / 1000)
    context.peer.farewell = f"unsupported SASL mechanism {shown}; enabled: {', '.join(session.mechanisms)}"
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=session.mechanisms)
