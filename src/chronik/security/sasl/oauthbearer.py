"""OAUTHBEARER, RFC 7628: a token says who a client is. Whether it is to be believed, another says."""

from __future__ import annotations

import json
import re
from typing import Final

from chronik.security.sasl.outcomes import Challenge, Failure, Outcome, Success, TokenRefused, Validate, ValidToken

_SEPARATOR: Final = b"\x01"
_NAME: Final = rb"(?:[^=,\x00\x01]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rb"n,(?:a=(%b))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01" % _NAME,
    re.DOTALL,
)
_BEARER: Final = re.compile(rb"bearer +([-_.A-Za-z0-9]+)", re.IGNORECASE)

REFUSED: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
"""What a client is told of a token, whatever is wrong with it."""


class OAuthBearerServer:
    def __init__(self) -> None:
        self._other = ""
        self._has_asked = False
        self._refused = ""

    def step(self, data: bytes) -> Outcome:
        if self._refused:
            # The client has acknowledged the refusal, as it must.
            return Failure(self._refused, REFUSED)
        found = _FIRST.fullmatch(data)
        if found is None or self._has_asked:
            return Failure("its message is none of OAUTHBEARER's")
        try:
            self._other = (found[1] or b"").replace(b"=2C", b",").replace(b"=3D", b"=").decode()
        except UnicodeDecodeError:
            return Failure("its name is not in UTF-8")
        pairs = [pair.partition(b"=") for pair in found[2].split(_SEPARATOR) if pair]
        given = [value for key, _, value in pairs if key == b"auth"]
        bearer = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
        if bearer is None:
            return Failure("its message has no bearer token")
        self._has_asked = True
        return Validate(bearer[1].decode())

    def validated(self, token: ValidToken | TokenRefused) -> Outcome:
        if isinstance(token, TokenRefused):
            self._refused = f"its token is refused: {token}"
            return Challenge(REFUSED.encode(), self._refused)
        if self._other not in ("", token.user):
            told = (
                f"Authentication failed: Client requested an authorization id ({self._other}) that is different from "
                f"the token's principal name ({token.user})"
            )
            return Failure("it asks to act for another user", told, token.user)
        return Success(token.user, expires_ms=token.expires_ms)


class OAuthBearerClient:
    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return b"n,,\x01auth=Bearer %b\x01\x01" % self._token.encode()

    def step(self, data: bytes) -> Outcome:
        """An answer that is not empty is a refusal, which is to be acknowledged; another follows, or the end."""
        return Challenge(_SEPARATOR) if data else Success("")
