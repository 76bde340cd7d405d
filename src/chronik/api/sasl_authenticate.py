"""SaslAuthenticate: carries a mechanism's messages. On a listener that does not ask who a client is, all are let in."""

from __future__ import annotations

from collections.abc import Awaitable

from chronik.api.shared.context import Context, Services
from chronik.exchange import Peer, Reply
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.security.sasl.session import Answer, Session

NOTHING_TO_SAY = "SaslAuthenticate request received after successful authentication"


def handle(services: Services, request: SaslAuthenticateRequest, context: Context) -> Reply[SaslAuthenticateResponse]:
    session = context.peer.session
    if isinstance(session, Session) and session.machine is not None and services.authenticator is not None:
        answer = services.authenticator.answer_at_once_or_later(session, context.peer, bytes(request.auth_bytes))
        if isinstance(answer, Answer):
            return Reply.of(_told(answer, session, context.peer))
        return Reply.of_coroutine(_told_later(answer, session, context.peer))
    is_early = isinstance(session, Session) and not session.is_let_in
    told = "SaslAuthenticate request received before a SaslHandshake" if is_early else NOTHING_TO_SAY
    return Reply.of(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=told))


async def _told_later(answer: Awaitable[Answer], session: Session, peer: Peer) -> SaslAuthenticateResponse:
    return _told(await answer, session, peer)


def _told(answer: Answer, session: Session, peer: Peer) -> SaslAuthenticateResponse:
    if answer.error is not None:
        peer.farewell = answer.why
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=answer.error)
    if session.principal is not None and session.machine is None:
        peer.let_in(session.principal)
    return SaslAuthenticateResponse(auth_bytes=answer.data, session_lifetime_ms=answer.lifetime_ms)
