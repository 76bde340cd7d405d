"""Logging in and out."""

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


async def show(call: AsyncCall, asked: NoQuestion) -> Session:
    try:
        found = await call.application.identity.authenticate(call.request, call.caller)
    except Refusal:
        found = None
    return _session(call, None if found is None else found.principal)


async def login(call: AsyncCall, asked: Login) -> HttpResponse:
    identity = call.application.identity
    who = await identity.log_in(asked.username, asked.password, call.caller)
    identity.sessions.end(token_in(call.request.header(b"cookie")))
    cookie = set_cookie(identity.sessions.begin(who), is_encrypted=call.caller.is_encrypted)
    return _answer(_session(call, who), cookie)


async def logout(call: AsyncCall, asked: NoBody) -> HttpResponse:
    call.application.identity.sessions.end(token_in(call.request.header(b"cookie")))
    return _answer(Done(), set_cookie("", is_encrypted=call.caller.is_encrypted))


async def openapi(call: AsyncCall, asked: NoQuestion) -> HttpResponse:
    if not _documents:
        _documents.append(msgspec.json.encode(document()))
    return HttpResponse(HTTPStatus.OK, JSON, _documents[0])


def _session(call: AsyncCall, who: Principal | None) -> Session:
    side, login_with = call.side, call.application.identity.login_with
    session = Session(
        principal=None if who is None else str(who),
        logged_in=who is not None and login_with is not None,
        login_required=login_with is not None,
        login_with=login_with,
        authorizer=side.services.authorizer is not None,
    )
    if who is not None:
        session.node_id = side.services.node_id
        session.cluster_id = side.services.image.cluster_id or None
        session.version = chronik.__version__
    return session


def _answer(found: msgspec.Struct, cookie: tuple[str, str]) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, JSON, msgspec.json.encode(found) + b"\n", headers=(cookie,))
