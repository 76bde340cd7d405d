"""SASL OAUTHBEARER (RFC 7628): server and client state machines. Tokens are validated by a `TokenValidator`."""

from __future__ import annotations

import json
import re
from typing import Final

from chronik.security.sasl.outcomes import (
    InvalidToken,
    SaslChallenge,
    SaslFailure,
    SaslOutcome,
    SaslSuccess,
    ValidateToken,
    ValidToken,
)

_SEPARATOR: Final = b"\x01"
_NAME: Final = rb"(?:[^=,\x00\x01]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rb"n,(?:a=(%b))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01" % _NAME,
    re.DOTALL,
)
_BEARER: Final = re.compile(rb"bearer +([-_.A-Za-z0-9]+)", re.IGNORECASE)

INVALID_TOKEN_RESPONSE: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
"""Response to every invalid token, which does not reveal the reason."""


class OAuthBearerServer:
    """The server-side state machine of OAUTHBEARER."""

    def __init__(self) -> None:
        self._authorization_id = ""
        self._has_token = False
        self._rejection = ""

    def step(self, data: bytes) -> SaslOutcome:
        """Handle a client message, and return a request to validate its token, or a failure."""
        if self._rejection:
            # The client has acknowledged the rejection, as the RFC requires.
            return SaslFailure(self._rejection, INVALID_TOKEN_RESPONSE)
        found = _FIRST.fullmatch(data)
        if found is None or self._has_token:
            return SaslFailure("malformed OAUTHBEARER message")
        try:
            self._authorization_id = (found[1] or b"").replace(b"=2C", b",").replace(b"=3D", b"=").decode()
        except UnicodeDecodeError:
            return SaslFailure("the authorization id is not valid UTF-8")
        pairs = [pair.partition(b"=") for pair in found[2].split(_SEPARATOR) if pair]
        tokens = [value for key, _, value in pairs if key == b"auth"]
        bearer = _BEARER.fullmatch(tokens[0]) if len(tokens) == 1 else None
        if bearer is None:
            return SaslFailure("the message contains no bearer token")
        self._has_token = True
        return ValidateToken(bearer[1].decode())

    def continue_with_token(self, token: ValidToken | InvalidToken) -> SaslOutcome:
        """Return the result of the authentication, given the result of the token validation."""
        if isinstance(token, InvalidToken):
            self._rejection = f"token rejected: {token}"
            return SaslChallenge(INVALID_TOKEN_RESPONSE.encode(), self._rejection)
        if self._authorization_id not in ("", token.user):
            message = (
                f"Authentication failed: Client requested an authorization id ({self._authorization_id}) that is "
                f"different from the token's principal name ({token.user})"
            )
            return SaslFailure("the authorization id differs from the token's user", message, token.user)
        return SaslSuccess(token.user, expires_ms=token.expires_ms)


class OAuthBearerClient:
    """The client-side state machine of OAUTHBEARER."""

    def __init__(self, token: str) -> None:
        self._token = token

    def initial_message(self) -> bytes:
        """Return the client's first message, which contains the token."""
        return b"n,,\x01auth=Bearer %b\x01\x01" % self._token.encode()

    def step(self, data: bytes) -> SaslOutcome:
        """Handle a server message. A non-empty message is a rejection, which the client must acknowledge."""
        return SaslChallenge(_SEPARATOR) if data else SaslSuccess("")
