"""What a mechanism's machine says to whoever feeds it with what the other side sent."""

from __future__ import annotations

from typing import Final

import msgspec

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class Challenge(msgspec.Struct, frozen=True):
    """A message to send; the other side answers it."""

    data: bytes
    refusal: str = ""
    """Why the message rejects the client's credentials, for the log; empty if it does not. RFC 7628 has the server
    reject a token with a challenge, which the client may never acknowledge."""

    def __repr__(self) -> str:
        return f"Challenge({len(self.data)} bytes)"


class Derive(msgspec.Struct, frozen=True):
    """Salt this password, which takes milliseconds, and call the machine's `derived` with it."""

    password: bytes
    salt: bytes
    iterations: int
    digest: str

    def __repr__(self) -> str:
        return "Derive(…)"


class Validate(msgspec.Struct, frozen=True):
    """Find out whose token this is, and call the machine's `validated`."""

    token: str

    def __repr__(self) -> str:
        return "Validate(…)"


class Success(msgspec.Struct, frozen=True):
    """It is this user. `data` is the last to send, if only nothing."""

    user: str
    data: bytes = b""
    expires_ms: int | None = None
    """When what it has shown ends, by the clock on the wall; None if it does not."""


class Failure(msgspec.Struct, frozen=True):
    """It is not who it says, or does not speak as it should."""

    why: str
    """For the log. It holds nothing of what the other side has sent but the name of a user."""
    told: str | None = None
    """What the client is told; None: that its credentials are wrong, whatever it was."""
    user: str = ""


class ValidToken(msgspec.Struct, frozen=True):
    user: str
    expires_ms: int
    scopes: frozenset[str] = frozenset()


class TokenRefused(Exception):
    """With the reason, for the log."""


Outcome = Challenge | Derive | Validate | Success | Failure
