"""SASL PLAIN (RFC 4616): user name and password in clear text, verified with the stored SCRAM keys."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from chronik.security.sasl.outcomes import HashPassword, SaslFailure, SaslOutcome, SaslSuccess
from chronik.security.sasl.scram import DIFFERENT_AUTHORIZATION_ID
from chronik.security.sasl.scram_keys import ScramKeySet, ScramMechanism, derive_keys

WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"

PlainKeyLookup = Callable[[str], tuple[ScramMechanism, ScramKeySet, bool]]
"""Function that returns a user's SCRAM keys, and whether the user exists. A check takes the same time for nonexistent
users."""


class PlainServer:
    """The server-side state machine of PLAIN."""

    def __init__(self, lookup: PlainKeyLookup) -> None:
        self._lookup = lookup
        self._user = ""
        self._known: tuple[ScramMechanism, ScramKeySet, bool] | None = None

    @property
    def user(self) -> str:
        """The user whose password is being checked."""
        return self._user

    def step(self, data: bytes) -> SaslOutcome:
        """Parse the client's message, and return a request to hash its password, or a failure."""
        parts = data.split(b"\0")
        if self._known is not None or len(parts) != 3:
            return SaslFailure(f"malformed PLAIN message: {len(parts)} fields instead of 3")
        try:
            authorization_id, self._user = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            return SaslFailure("the user name is not valid UTF-8")
        if not self._user:
            return SaslFailure("no user name", "Authentication failed: username not specified")
        if not parts[2]:
            return SaslFailure("no password", "Authentication failed: password not specified", self._user)
        if authorization_id not in ("", self._user):
            return SaslFailure(
                "the authorization id differs from the user name", DIFFERENT_AUTHORIZATION_ID, self._user
            )
        self._known = scram, keys, _ = self._lookup(self._user)
        return HashPassword(parts[2], keys.salt, keys.iterations, scram.digest)

    def continue_with_hash(self, salted_password: bytes) -> SaslOutcome:
        """Verify the hashed password, and return success or failure."""
        assert self._known is not None
        scram, keys, exists = self._known
        derived_keys = derive_keys(scram, salted_password, keys.salt, keys.iterations)
        if not (hmac.compare_digest(derived_keys.stored_key, keys.stored_key) and exists):
            return SaslFailure("wrong password or unknown user", WRONG_PASSWORD, self._user)
        return SaslSuccess(self._user)


class PlainClient:
    """The client-side state machine of PLAIN."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def initial_message(self) -> bytes:
        """Return the client's only message, which contains the user name and the password."""
        return b"\0".join([b"", self._user.encode(), self._password.encode()])

    def step(self, data: bytes) -> SaslOutcome:
        """Handle the server's message, which must be empty."""
        return SaslFailure("unexpected message of the server in PLAIN") if data else SaslSuccess(self._user)
