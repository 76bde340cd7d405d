"""SaslHandshake: agrees on the mechanism. Where nobody asks who a client is, or it is known, there is nothing to agree
on."""

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
    return Reply.of_coroutine(_refused(services, session, request.mechanism, context))


async def _refused(services: Services, session: Session, mechanism: str, context: Context) -> SaslHandshakeResponse:
    """Clients that try mechanisms wait as long as those that try passwords."""
    shown = shortened(repr(mechanism), MECHANISM_CHARACTERS_SHOWN_MAX)
    await asyncio.sleep(services.configs.broker_int("connection.failed.authentication.delay.ms") / 1000)
    context.peer.farewell = f"it asked for {shown}, and {', '.join(session.mechanisms)} are enabled"
    return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=session.mechanisms)
