"""Authentication of HTTP requests: by session cookie, user name and password, http_token or client certificate.

Listeners that do not require authentication accept requests without any. Login sessions are identified by a random
token in the cookie.
"""

from __future__ import annotations

import binascii
import secrets
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

import msgspec

from chronik.console.connection import ClientInfo
from chronik.console.http import HttpError, HttpRequest
from chronik.console.rest.access import (
    SESSION_ENDED,
    AccessMonitor,
    Authentication,
    MonitoredPermission,
    ResponseAccess,
    build_permission_revoked_error,
)
from chronik.console.rest.errors import RestError
from chronik.console.rest.login_throttle import LoginThrottle, TooManyLoginAttempts
from chronik.console.rest.node_interface import NodeInterface
from chronik.console.status_pages import PageAuthorizer
from chronik.principals import ANONYMOUS, USER, Principal
from chronik.request_reply import ConnectedClient, Disconnect
from chronik.security import audit
from chronik.security.sasl.authenticator import Authenticator, ScramUsers
from chronik.security.sasl.outcomes import PLAIN

COOKIE: Final = "chronik_session"
HOST_PREFIX: Final = "__Host-"
"""The name prefix with which browsers accept a cookie only over HTTPS, from this host and for all paths. Neither a
subdomain nor an unencrypted response can replace the cookie."""
TOKEN_BYTES: Final = 32
SESSIONS_MAX: Final = 1000
"""Maximum number of sessions. If it is exceeded, the least recently used session is removed."""
SESSIONS_PER_USER_MAX: Final = 50
IDLE_SECONDS_MAX: Final = 30 * 60.0
SECONDS_MAX: Final = 12 * 3600.0

BASIC_PREFIX: Final = "basic "
AUTHENTICATE_HEADER: Final = ("WWW-Authenticate", "Chronik-Session")
"""The WWW-Authenticate challenge of a 401 response. It is not Basic, because browsers would then show their own
password dialog."""

EXPIRY_CHECK_DELAY_SECONDS: Final = 0.1
"""Delay in seconds between a session's expiry and the check that ends its responses, since timers may fire slightly
early."""

TOKEN_USER: Final = ""
"""The user name under which failed logins with the `http_token`, the node's shared secret, are counted."""
TOO_MANY_ATTEMPTS: Final = "too many login attempts are waiting: try again later"


class LoginSession(msgspec.Struct):
    """A login session in the web console, identified by a session cookie."""

    principal: Principal
    credentials: object
    """The user's stored SCRAM credentials at login. The session ends when they change."""
    started: float
    last_used: float
    id_token: str | None = None
    """The ID token of a single sign-on, empty if it is too large to keep; None for other logins."""

    def __repr__(self) -> str:
        return f"LoginSession({self.principal})"


class LoginSessions:
    """The login sessions of this node's web console, kept in memory."""

    def __init__(
        self,
        now: Callable[[], float],
        credentials_of: Callable[[Principal], object],
        on_removed: Callable[[], None] | None = None,
    ) -> None:
        """Create an empty set of sessions. `on_removed` is called when a session is removed before it expires."""
        self._when_ended = on_removed or (lambda: None)
        self._now = now
        self._proof_of = credentials_of
        self._by_token: dict[str, LoginSession] = {}
        """Sessions by token, least recently used first."""

    def create(self, principal: Principal, id_token: str | None = None) -> str:
        """Create a session and return its token."""
        now = self._now()
        of_user = [token for token, each in self._by_token.items() if each.principal == principal]
        for token in of_user[: max(0, len(of_user) + 1 - SESSIONS_PER_USER_MAX)]:
            del self._by_token[token]
        while len(self._by_token) >= SESSIONS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_token[token] = LoginSession(principal, self._proof_of(principal), now, now, id_token)
        self._when_ended()
        return token

    def authenticate(self, token: str) -> Principal | None:
        """Return the principal of a session and mark the session as used; return None if it is no longer valid."""
        session = self._by_token.pop(token, None)
        now = self._now()
        if session is None or now - session.last_used > IDLE_SECONDS_MAX or now - session.started > SECONDS_MAX:
            return None
        if self._proof_of(session.principal) != session.credentials:
            return None
        session.last_used = now
        self._by_token[token] = session
        return session.principal

    def seconds_left(self, token: str) -> float:
        """Return the remaining lifetime of a session in seconds, not counting the idle timeout."""
        session = self._by_token.get(token)
        return 0.0 if session is None else session.started + SECONDS_MAX - self._now()

    def remove(self, token: str) -> LoginSession | None:
        """Remove a session and return it; do nothing if it does not exist."""
        session = self._by_token.pop(token, None)
        if session is not None:
            self._when_ended()
        return session


def parse_session_token(cookies: str, *, is_encrypted: bool) -> str:
    """Return the session token in a Cookie header, or an empty string.

    Over HTTPS, the prefixed cookie is required. Unencrypted requests may have it too: a proxy may terminate TLS.
    """
    return parse_cookie(cookies, HOST_PREFIX + COOKIE) or ("" if is_encrypted else parse_cookie(cookies, COOKIE))


def has_prefixed_session_cookie(cookies: str) -> bool:
    """Return whether a Cookie header has a session cookie that browsers accept only over HTTPS."""
    return any(name == HOST_PREFIX + COOKIE for name, _ in iter_cookies(cookies))


def parse_cookie(cookies: str, wanted: str) -> str:
    """Return the value of a cookie in a Cookie header, or an empty string."""
    return next((value for name, value in iter_cookies(cookies) if name == wanted), "")


def iter_cookies(cookies: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the cookies in a Cookie header."""
    for each in cookies.split(";"):
        name, _, value = each.strip().partition("=")
        yield name, value


def build_session_cookie_header(token: str, *, is_encrypted: bool) -> tuple[str, str]:
    """Return a Set-Cookie header for a session token. An empty token deletes the cookie."""
    age = "; Max-Age=0" if not token else ""
    prefix, secure = (HOST_PREFIX, "; Secure") if is_encrypted else ("", "")
    return "Set-Cookie", f"{prefix}{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"


class HttpAuthenticator:
    """Authenticates HTTP requests and monitors their authorization."""

    def __init__(self, side: NodeInterface, page_authorizer: PageAuthorizer) -> None:
        self._side = side
        self._page_authorizer = page_authorizer
        clock, configs = side.services.clock, side.services.configs
        self._now = clock.monotonic
        self._authenticator = Authenticator(
            ScramUsers(lambda: side.services.image),
            clock,
            lambda: configs.broker_int("connection.failed.authentication.delay.ms"),
        )
        self._attempts = LoginThrottle(self._now)
        self._watches = AccessMonitor()
        self.sessions: Final = LoginSessions(self._now, self._get_stored_credentials, self._watches.recheck)
        self.acl_listeners: Final = self._watches.acl_listeners
        side.services.store.subscribe(self._watches.on_delta)

    def close(self) -> None:
        """Stop the threads that verify passwords."""
        self._authenticator.close()

    @property
    def login_method(self) -> str | None:
        """The login method that clients must use: "password" or "token", or None if no login is required."""
        if self._side.requires_login:
            return "password"
        return None if self._page_authorizer.allows_anonymous else "token"

    def _get_stored_credentials(self, principal: Principal) -> object:
        """Return the stored SCRAM credentials of a user. A session ends when they change."""
        return None if principal == ANONYMOUS else dict(self._side.services.image.users.credentials(principal.name))

    @contextmanager
    def monitor(
        self, authentication: Authentication, host: str, right: MonitoredPermission | None
    ) -> Iterator[ResponseAccess]:
        """Monitor whether a client stays authenticated and keeps a required permission until the context exits."""
        session = authentication.session
        seconds_max = self.sessions.seconds_left(session) + EXPIRY_CHECK_DELAY_SECONDS if session else None
        with self._watches.monitor(
            lambda: self.find_revocation_error(authentication, host, right), seconds_max
        ) as access:
            yield access

    def find_revocation_error(
        self, authentication: Authentication, host: str, right: MonitoredPermission | None
    ) -> RestError | None:
        """Return an error if the client's session has expired or its permission was revoked, otherwise None."""
        principal = authentication.principal
        if authentication.session:
            is_valid = self.sessions.authenticate(authentication.session) == principal
        else:
            is_valid = authentication.credentials == self._get_stored_credentials(principal)
        if not is_valid:
            return RestError(HTTPStatus.UNAUTHORIZED, SESSION_ENDED)
        authorizer = self._side.services.authorizer
        if right is not None and authorizer is not None and not authorizer.is_authorized(principal, host, *right):
            return build_permission_revoked_error(principal, right)
        return None

    def find_session_principal(self, request: HttpRequest, caller: ClientInfo) -> Principal | None:
        """Return the principal of the request's session cookie, or None if the cookie is missing or invalid."""
        return self.sessions.authenticate(_find_session_token(request, caller))

    async def authenticate(
        self, request: HttpRequest, caller: ClientInfo, page_authorizer: PageAuthorizer | None = None
    ) -> Authentication | None:
        """Authenticate a request. Return None if its credentials are missing or invalid.

        Clients without a login are subject to `page_authorizer`, by default that of the HTTP port.

        Raises:
            RestError: The password is wrong, or too many attempts are waiting.
        """
        token = _find_session_token(request, caller)
        known = self.sessions.authenticate(token)
        if known is not None:
            return Authentication(known, session=token)
        if self._side.requires_login:
            if request.authorization.lower().startswith(BASIC_PREFIX):
                name, password = _decode_basic_credentials(request.authorization[len(BASIC_PREFIX) :])
                credentials = self._get_stored_credentials(Principal(USER, name))  # before the slow password check
                principal = await self._authenticate_password(name, password, caller)
                return Authentication(principal, credentials=credentials)
            return None
        rules = page_authorizer or self._page_authorizer
        try:
            rules.check_access("", request.authorization, has_certificate=caller.has_certificate)
        except HttpError:
            if request.authorization:
                await self._attempts.record_failure(caller.host, TOKEN_USER)
                self.log_failed_login(caller, TOKEN_USER)
            return None
        return Authentication(ANONYMOUS, credentials=self._get_stored_credentials(ANONYMOUS))

    async def log_in(self, name: str, password: str, caller: ClientInfo) -> Principal:
        """Verify a user's password, or the node's http_token, and return the principal.

        Raises:
            RestError: The credentials are wrong, or too many attempts are waiting.
        """
        if self._side.requires_login:
            return await self._authenticate_password(name, password, caller)
        if self._page_authorizer.allows_anonymous or caller.has_certificate:
            return ANONYMOUS

        async def verify() -> bool:
            try:
                self._page_authorizer.check_access("", f"Bearer {password}")
            except HttpError:
                return False
            return True

        if not await self._attempt_login(caller, TOKEN_USER, verify):
            self.log_failed_login(caller, name)
            raise RestError(HTTPStatus.UNAUTHORIZED, "the token is wrong")
        return ANONYMOUS

    async def _attempt_login(self, caller: ClientInfo, name: str, verify: Callable[[], Awaitable[bool]]) -> bool:
        """Verify a login, with a delay after failed attempts. Raise RestError if too many attempts are queued."""
        try:
            return await self._attempts.run(caller.host, name, verify)
        except (Disconnect, TooManyLoginAttempts):
            raise RestError(HTTPStatus.TOO_MANY_REQUESTS, TOO_MANY_ATTEMPTS) from None

    async def _authenticate_password(self, name: str, password: str, caller: ClientInfo) -> Principal:
        """Verify a password and return the principal.

        Raises:
            RestError: The password is wrong or the user does not exist. Both take the same time.
        """
        session = self._authenticator.create_session(lambda: (PLAIN,), lambda mechanism: 0)
        session.handshake(PLAIN, 1, self._now())
        message = b"\0".join((b"", name.encode("utf-8", "replace"), password.encode("utf-8", "replace")))

        async def verify() -> bool:
            outcome = await self._authenticator.respond(session, ConnectedClient(caller.host, 0, 0), message)
            return outcome.error is None and session.principal is not None

        if not await self._attempt_login(caller, name, verify) or session.principal is None:
            self.log_failed_login(caller, name)
            raise RestError(HTTPStatus.UNAUTHORIZED, "the user name or the password is wrong")
        return session.principal

    def log_failed_login(self, caller: ClientInfo, name: str) -> None:
        """Write a failed login to the audit log."""
        audit.log_failed_login(ConnectedClient(caller.host, 0, 0, principal=Principal(USER, name)), "HTTP")


def _find_session_token(request: HttpRequest, caller: ClientInfo) -> str:
    return parse_session_token(request.header(b"cookie"), is_encrypted=caller.is_encrypted)


def _decode_basic_credentials(encoded: str) -> tuple[str, str]:
    """Decode the credentials of Basic authentication. Raise RestError if they are malformed."""
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise RestError(HTTPStatus.UNAUTHORIZED, "expected Authorization: Basic, and NAME:PASSWORD in base64")
    return name, password
