"""SaslAuthenticate (API key 36): exchanges the tokens of a SASL mechanism.

On a listener without SASL, it fails with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from collections.abc import Awaitable

from chronik.api.shared.context import Context, Services
from chronik.exchange import Peer, Reply
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.security.sasl.session import Answer, Session

ALREADY_AUTHENTICATED = "SaslAuthenticate request received after successful authentication"


def handle(services: Services, request: SaslAuthenticateRequest, context: Context) -> Reply[SaslAuthenticateResponse]:
    session = context.peer.session
    if isinstance(session, Session) and session.machine is not None and services.authenticator is not None:
        answer = services.authenticator.answer_at_once_or_later(session, context.peer, bytes(request.auth_bytes))
        if isinstance(answer, Answer):
            return Reply.of(_build_response(answer, session, context.peer))
        return Reply.of_coroutine(_build_response_later(answer, session, context.peer))
    is_early = isinstance(session, Session) and not session.is_let_in
    message = "SaslAuthenticate request received before a SaslHandshake" if is_early else ALREADY_AUTHENTICATED
    return Reply.of(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message))


async def _build_response_later(answer: Awaitable[Answer], session: Session, peer: Peer) -> SaslAuthenticateResponse:
    return _build_response(await answer, session, peer)


def _build_response(answer: Answer, session: Session, peer: Peer) -> SaslAuthenticateResponse:
    if answer.error is not None:
        peer.farewell = answer.why
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=answer.error)
    if session.principal is not None and session.machine is None:
        peer.let_in(session.principal)
    return SaslAuthenticateResponse(auth_bytes=answer.data, session_lifetime_ms=answer.lifetime_ms)
