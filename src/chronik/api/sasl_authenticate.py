"""SaslAuthenticate (API key 36): exchanges the tokens of a SASL mechanism.

On a listener without SASL, it fails with ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from collections.abc import Awaitable

from chronik.api.shared.context import RequestContext, Services
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from chronik.request_reply import ConnectedClient, Reply
from chronik.security.sasl.session import SaslResponse, SaslSession

ALREADY_AUTHENTICATED = "SaslAuthenticate request received after successful authentication"


def handle(
    services: Services, request: SaslAuthenticateRequest, context: RequestContext
) -> Reply[SaslAuthenticateResponse]:
    session = context.peer.session
    if isinstance(session, SaslSession) and session.machine is not None and services.authenticator is not None:
        answer = services.authenticator.respond_or_await(session, context.peer, bytes(request.auth_bytes))
        if isinstance(answer, SaslResponse):
            return Reply.from_response(_build_response(answer, session, context.peer))
        return Reply.from_coroutine(_await_and_build_response(answer, session, context.peer))
    is_early = isinstance(session, SaslSession) and not session.is_authenticated
    message = "SaslAuthenticate request received before a SaslHandshake" if is_early else ALREADY_AUTHENTICATED
    return Reply.from_response(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message))


async def _await_and_build_response(
    answer: Awaitable[SaslResponse], session: SaslSession, peer: ConnectedClient
) -> SaslAuthenticateResponse:
    return _build_response(await answer, session, peer)


def _build_response(answer: SaslResponse, session: SaslSession, peer: ConnectedClient) -> SaslAuthenticateResponse:
    if answer.error is not None:
        peer.close_reason = answer.rejection_reason
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=answer.error)
    if session.principal is not None and session.machine is None:
        peer.set_authenticated(session.principal)
    return SaslAuthenticateResponse(auth_bytes=answer.data, session_lifetime_ms=answer.lifetime_ms)
