"""Operations on login sessions, and the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

import chronik
from chronik.console.http import HttpResponse
from chronik.console.rest.application import AsyncCall
from chronik.console.rest.openapi import document
from chronik.console.rest.refusals import JSON, Refusal
from chronik.console.rest.sessions import set_cookie, token_in
from chronik.console.rest.shapes.common import Done, NoBody, NoQuestion
from chronik.console.rest.shapes.session import Login, Session
from chronik.principals import Principal

_documents: list[bytes] = []


async def show(context: AsyncCall, params: NoQuestion) -> Session:
    """Return the login status of the client."""
    try:
        found = await context.application.identity.authenticate(context.request, context.caller)
    except Refusal:
        found = None
    return _build_session(context, None if found is None else found.principal)


async def login(context: AsyncCall, params: Login) -> HttpResponse:
    """Log in and set a session cookie."""
    identity = context.application.identity
    user = await identity.log_in(params.username, params.password, context.caller)
    identity.sessions.end(token_in(context.request.header(b"cookie")))
    cookie = set_cookie(identity.sessions.begin(user), is_encrypted=context.caller.is_encrypted)
    return _response(_build_session(context, user), cookie)


async def logout(context: AsyncCall, params: NoBody) -> HttpResponse:
    """End the session and delete its cookie."""
    context.application.identity.sessions.end(token_in(context.request.header(b"cookie")))
    return _response(Done(), set_cookie("", is_encrypted=context.caller.is_encrypted))


async def openapi(context: AsyncCall, params: NoQuestion) -> HttpResponse:
    """Return the OpenAPI document."""
    if not _documents:
        _documents.append(msgspec.json.encode(document()))
    return HttpResponse(HTTPStatus.OK, JSON, _documents[0])


def _build_session(context: AsyncCall, user: Principal | None) -> Session:
    side, login_with = context.side, context.application.identity.login_with
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


def _response(found: msgspec.Struct, cookie: tuple[str, str]) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, JSON, msgspec.json.encode(found) + b"\n", headers=(cookie,))
