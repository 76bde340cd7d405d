"""SaslAuthenticate: carries a mechanism's messages. On a listener that does not ask who a client is, all are let in."""

from __future__ import annotations

from collections.abc import Awaitable

from chronik.api.shared.context import Context, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.security.sasl.session import Session

NOTHING_TO_SAY = "SaslAuthenticate request received after successful authentication"


def handle(
    services: Services, request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    session = context.peer.session
    if isinstance(session, Session) and session.machine is not None and services.authenticator is not None:
        return _answer(services, session, request, context)
    is_early = isinstance(session, Session) and not session.is_let_in
    told = "SaslAuthenticate request received before a SaslHandshake" if is_early else NOTHING_TO_SAY
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=told)


async def _answer(
    services: Services, session: Session, request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse:
    peer = context.peer
    assert services.authenticator is not None
    answer = await services.authenticator.answer(session, peer, bytes(request.auth_bytes))
    if answer.error is not None:
        peer.farewell = answer.why
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=answer.error)
    if session.principal is not None and session.machine is None:
        peer.let_in(session.principal)
    return SaslAuthenticateResponse(auth_bytes=answer.data, session_lifetime_ms=answer.lifetime_ms)
