"""Who has logged in over HTTP: a random number in a cookie stands for them, for some time."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from chronik.principals import Principal

COOKIE: Final = "chronik_session"
TOKEN_BYTES: Final = 32
SESSIONS_MAX: Final = 1000
"""Beyond it, the one that was silent longest ends."""
SESSIONS_PER_USER_MAX: Final = 50
IDLE_SECONDS_MAX: Final = 30 * 60.0
SECONDS_MAX: Final = 12 * 3600.0


class LoggedIn(msgspec.Struct):
    principal: Principal
    proof: object
    """What is kept of the user's password: once it is another, the session ends."""
    began: float
    seen: float


class Sessions:
    def __init__(
        self,
        now: Callable[[], float],
        proof_of: Callable[[Principal], object],
        when_ended: Callable[[], None] | None = None,
    ) -> None:
        """`when_ended` is called after sessions have been removed, other than by their expiry."""
        self._when_ended = when_ended or (lambda: None)
        self._now = now
        self._proof_of = proof_of
        self._by_token: dict[str, LoggedIn] = {}
        """In the order in which they were last seen."""

    def begin(self, principal: Principal) -> str:
        """Returns what the cookie has to say."""
        now = self._now()
        of_user = [token for token, each in self._by_token.items() if each.principal == principal]
        for token in of_user[: max(0, len(of_user) + 1 - SESSIONS_PER_USER_MAX)]:
            del self._by_token[token]
        while len(self._by_token) >= SESSIONS_MAX:
            del self._by_token[next(iter(self._by_token))]
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._by_token[token] = LoggedIn(principal, self._proof_of(principal), now, now)
        self._when_ended()
        return token

    def find(self, token: str) -> Principal | None:
        session = self._by_token.pop(token, None)
        now = self._now()
        if session is None or now - session.seen > IDLE_SECONDS_MAX or now - session.began > SECONDS_MAX:
            return None
        if self._proof_of(session.principal) != session.proof:
            return None
        session.seen = now
        self._by_token[token] = session
        return session.principal

    def seconds_left(self, token: str) -> float:
        """Return how long the session may last, if it is used."""
        session = self._by_token.get(token)
        return 0.0 if session is None else session.began + SECONDS_MAX - self._now()

    def end(self, token: str) -> None:
        if self._by_token.pop(token, None) is not None:
            self._when_ended()


def token_in(cookies: str) -> str:
    """Returns what a Cookie header says of ours; empty if nothing."""
    for each in cookies.split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def set_cookie(token: str, *, is_encrypted: bool) -> tuple[str, str]:
    """Returns a header; an empty token takes the cookie away."""
    age = "; Max-Age=0" if not token else ""
    secure = "; Secure" if is_encrypted else ""
    return "Set-Cookie", f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"
