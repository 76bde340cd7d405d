"""Operations on login sessions, and the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, cast

import msgspec

import chronik
from chronik.console.http import HttpResponse
from chronik.console.rest.application import AsyncOperationContext
from chronik.console.rest.authentication import (
    build_session_cookie_header,
    has_prefixed_session_cookie,
    parse_session_token,
)
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import JSON, RestError
from chronik.console.rest.models.common import NoBody, NoQuestion
from chronik.console.rest.models.security import (
    LoggedOut,
    Login,
    Permissions,
    PermissionsQuestion,
    ResourceName,
    Session,
)
from chronik.console.rest.openapi import build_document
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.principals import Principal
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security.oidc.settings import LOGIN_PATH

_documents: list[bytes] = []

LISTED_RESOURCE_TYPES: Final = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.TRANSACTIONAL_ID,
    AclResourceType.SUBJECT,
)


async def show(context: AsyncOperationContext, params: NoQuestion) -> Session:
    """Return the login status of the client."""
    try:
        found = await context.application.authenticator.authenticate(context.request, context.client)
    except RestError:
        found = None
    return _build_session(context, None if found is None else found.principal)


def permissions(context: OperationContext, params: PermissionsQuestion) -> Permissions:
    """Return the operations that the principal may perform."""
    may_read = context.filter_authorized(AclOperation.READ, AclResourceType.TOPIC, [PIPELINES_TOPIC])
    cluster = context.find_authorized_operations(AclResourceType.CLUSTER, [CLUSTER_NAME])[CLUSTER_NAME]
    subject = None
    if params.subject is not None:
        subject = context.find_authorized_operations(AclResourceType.SUBJECT, [params.subject])[params.subject]
    allowed = context.find_operations_by_type(LISTED_RESOURCE_TYPES)
    return Permissions(
        cluster,
        {_format_resource(kind): each[0] for kind, each in allowed.items()},
        {_format_resource(kind): each[1] for kind, each in allowed.items()},
        bool(may_read),
        subject,
    )


def _format_resource(kind: AclResourceType) -> ResourceName:
    return cast("ResourceName", kind.name.lower().replace("_", "-"))


async def login(context: AsyncOperationContext, params: Login) -> HttpResponse:
    """Log in and set a session cookie."""
    identity = context.application.authenticator
    user = await identity.log_in(params.username, params.password, context.client)
    identity.sessions.remove(_find_session_token(context))
    cookie = build_session_cookie_header(identity.sessions.create(user), is_encrypted=_uses_https(context))
    return _build_response(_build_session(context, user), cookie)


async def logout(context: AsyncOperationContext, params: NoBody) -> HttpResponse:
    """End the session and delete its cookie."""
    application = context.application
    session = application.authenticator.sessions.remove(_find_session_token(context))
    ended = LoggedOut()
    if session is not None and session.id_token is not None and application.single_sign_on is not None:
        ended.provider_url = application.single_sign_on.build_logout_url(session.id_token)
    return _build_response(ended, build_session_cookie_header("", is_encrypted=_uses_https(context)))


def _find_session_token(context: AsyncOperationContext) -> str:
    return parse_session_token(context.request.header(b"cookie"), is_encrypted=context.client.is_encrypted)


def _uses_https(context: AsyncOperationContext) -> bool:
    """Return whether the browser uses HTTPS. Behind a proxy that terminates TLS, it may have the prefixed cookie."""
    return context.client.is_encrypted or has_prefixed_session_cookie(context.request.header(b"cookie"))


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
        single_sign_on=None if context.application.single_sign_on is None else LOGIN_PATH,
    )
    if user is not None:
        session.node_id = side.services.node_id
        session.cluster_id = side.services.image.cluster_id or None
        session.version = chronik.__version__
    return session


def _build_response(found: msgspec.Struct, cookie: tuple[str, str]) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, JSON, msgspec.json.encode(found) + b"\n", headers=(cookie,))
