"""Outcomes of a step of a SASL state machine."""

from __future__ import annotations

from typing import Final

import msgspec

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class SaslChallenge(msgspec.Struct, frozen=True):
    """A message to send to the other side, which must respond."""

    data: bytes
    rejection_reason: str = ""
    """Reason why the credentials were rejected, for the log; empty if they were not. RFC 7628 rejects a token with a
    challenge that the client may never acknowledge."""

    def __repr__(self) -> str:
        return f"Challenge({len(self.data)} bytes)"


class HashPassword(msgspec.Struct, frozen=True):
    """A request to hash the password with PBKDF2 (some milliseconds) and pass the hash to `continue_with_hash`."""

    password: bytes
    salt: bytes
    iterations: int
    digest: str

    def __repr__(self) -> str:
        return "Derive(…)"


class ValidateToken(msgspec.Struct, frozen=True):
    """A request to validate the token and pass the result to `continue_with_token`."""

    token: str

    def __repr__(self) -> str:
        return "Validate(…)"


class SaslSuccess(msgspec.Struct, frozen=True):
    """Successful authentication as `user`; `data` is the last message to send."""

    user: str
    data: bytes = b""
    expires_ms: int | None = None
    """Expiry of the credentials in milliseconds since the epoch; None if they do not expire."""


class SaslFailure(msgspec.Struct, frozen=True):
    """Failed authentication: wrong credentials or a malformed message."""

    reason: str
    """Reason for the failure, for the log. It contains no client input except the user name."""
    client_message: str | None = None
    """Error message for the client; None for a generic message about invalid credentials."""
    user: str = ""


class ValidToken(msgspec.Struct, frozen=True):
    """A validated token."""

    user: str
    expires_ms: int
    scopes: frozenset[str] = frozenset()


class InvalidToken(Exception):
    """The token is invalid; the exception's message is the reason, for the log."""


SaslOutcome = SaslChallenge | HashPassword | ValidateToken | SaslSuccess | SaslFailure
