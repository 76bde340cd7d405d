"""Login sessions of the HTTP port, identified by a random token in a cookie."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from chronik.principals import Principal

COOKIE: Final = "chronik_session"
TOKEN_BYTES: Final = 32
SESSIONS_MAX: Final = 1000
"""Maximum number of sessions. Beyond it, the session that was idle for longest is removed."""
SESSIONS_PER_USER_MAX: Final = 50
IDLE_SECONDS_MAX: Final = 30 * 60.0
SECONDS_MAX: Final = 12 * 3600.0


class LoginSession(msgspec.Struct):
    """A login session."""

    principal: Principal
    credentials: object
    """The user's stored credentials at login. The session ends when they change."""
    started: float
    last_used: float


class LoginSessions:
    """All login sessions of the node, kept in memory."""

    def __init__(
        self,
        now: Callable[[], float],
        credentials_of: Callable[[Principal], object],
        on_removed: Callable[[], None] | None = None,
    ) -> None:
        """Create an empty set of sessions. `on_removed` is called after sessions were removed other than by expiry."""
        self._when_ended = on_removed or (lambda: None)
        self._now = now
        self._proof_of = credentials_of
        self._by_token: dict[str, LoginSession] = {}
        """Sessions by token, least recently used first."""

    def create(self, principal: Principal) -> str:
        """Create a session and return its token."""
        now = self._now()
        of_user = [token for token, each in self._by_token.items() if each.principal == principal]
        for token in of_user[: max(0, len(of_user) + 1 - SESSIONS_PER_USER_MAX)]:
            del self._by_token[token]
        while len(self._by_token) >= SESSIONS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_token[token] = LoginSession(principal, self._proof_of(principal), now, now)
        self._when_ended()
        return token

    def authenticate(self, token: str) -> Principal | None:
        """Return the principal of a session and mark it as used; None if the session has ended."""
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
        """Return the remaining lifetime of a session in seconds, assuming that it does not become idle."""
        session = self._by_token.get(token)
        return 0.0 if session is None else session.started + SECONDS_MAX - self._now()

    def remove(self, token: str) -> None:
        """Remove a session; do nothing if it does not exist."""
        if self._by_token.pop(token, None) is not None:
            self._when_ended()


def session_token(cookies: str) -> str:
    """Return the session token in a Cookie header, or an empty string."""
    for each in cookies.split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def session_cookie_header(token: str, *, is_encrypted: bool) -> tuple[str, str]:
    """Return a Set-Cookie header for a session token. An empty token deletes the cookie."""
    age = "; Max-Age=0" if not token else ""
    secure = "; Secure" if is_encrypted else ""
    return "Set-Cookie", f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"
