"""Operations on login sessions, and the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

import chronik
from chronik.console.http import HttpResponse
from chronik.console.rest.application import AsyncOperationContext
from chronik.console.rest.authentication import build_session_cookie_header, parse_session_token
from chronik.console.rest.errors import JSON, RestError
from chronik.console.rest.models.common import Done, NoBody, NoQuestion
from chronik.console.rest.models.security import Login, Session
from chronik.console.rest.openapi import build_document
from chronik.principals import Principal

_documents: list[bytes] = []


async def show(context: AsyncOperationContext, params: NoQuestion) -> Session:
    """Return the login status of the client."""
    try:
        found = await context.application.authenticator.authenticate(context.request, context.client)
    except RestError:
        found = None
    return _build_session(context, None if found is None else found.principal)


async def login(context: AsyncOperationContext, params: Login) -> HttpResponse:
    """Log in and set a session cookie."""
    identity = context.application.authenticator
    user = await identity.log_in(params.username, params.password, context.client)
    identity.sessions.remove(parse_session_token(context.request.header(b"cookie")))
    cookie = build_session_cookie_header(identity.sessions.create(user), is_encrypted=context.client.is_encrypted)
    return _build_response(_build_session(context, user), cookie)


async def logout(context: AsyncOperationContext, params: NoBody) -> HttpResponse:
    """End the session and delete its cookie."""
    context.application.authenticator.sessions.remove(parse_session_token(context.request.header(b"cookie")))
    return _build_response(Done(), build_session_cookie_header("", is_encrypted=context.client.is_encrypted))


async def openapi(context: AsyncOperationContext, params: NoQuestion) -> HttpResponse:
    """Return the OpenAPI document."""
    if not _documents:
        _documents.append(msgspec.json.encode(build_document()))
    return HttpResponse(HTTPStatus.OK, JSON, _documents[0])


def _build_session(context: AsyncOperationContext, user: Principal | None) -> Session:
    side, login_with = context.node, context.application.authenticator.login_method
    session = Session(
        principal=None if user is None else str(user),
        logged_in=user is not None and login_with is not None,
        login_required=login_with is not None,
        login_with=login_with,
        authorizer=side.services.authorizer is not None,
    )
    if user is not None:
        session.node_id = side.services.node_id
        session.cluster_id = side.services.image.cluster_id or None
        session.version = chronik.__version__
    return session


def _build_response(found: msgspec.Struct, cookie: tuple[str, str]) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, JSON, msgspec.json.encode(found) + b"\n", headers=(cookie,))
