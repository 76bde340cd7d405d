"""SASL PLAIN (RFC 4616): user name and password in clear text, verified with the stored SCRAM keys."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from chronik.security.sasl.outcomes import Derive, Failure, Outcome, Success
from chronik.security.sasl.scram import OTHER_USER
from chronik.security.sasl.scram_keys import Keys, Scram, keys_of

WRONG: Final = "Authentication failed: Invalid username or password"

Lookup = Callable[[str], tuple[Scram, Keys, bool]]
"""Function that returns a user's SCRAM keys and whether the user exists. Checking an unknown user takes as long."""


class PlainServer:
    """The server's state machine of PLAIN."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._user = ""
        self._known: tuple[Scram, Keys, bool] | None = None

    @property
    def user(self) -> str:
        """The user whose password is being checked."""
        return self._user

    def step(self, data: bytes) -> Outcome:
        """Handle the client's message."""
        parts = data.split(b"\0")
        if self._known is not None or len(parts) != 3:
            return Failure(f"malformed PLAIN message: {len(parts)} fields instead of 3")
        try:
            authorization_id, self._user = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            return Failure("the user name is not valid UTF-8")
        if not self._user:
            return Failure("no user name", "Authentication failed: username not specified")
        if not parts[2]:
            return Failure("no password", "Authentication failed: password not specified", self._user)
        if authorization_id not in ("", self._user):
            return Failure("the authorization id differs from the user name", OTHER_USER, self._user)
        self._known = scram, keys, _ = self._lookup(self._user)
        return Derive(parts[2], keys.salt, keys.iterations, scram.digest)

    def derived(self, salted_password: bytes) -> Outcome:
        """Verify the hashed password."""
        assert self._known is not None
        scram, keys, exists = self._known
        derived_keys = keys_of(scram, salted_password, keys.salt, keys.iterations)
        if not (hmac.compare_digest(derived_keys.stored_key, keys.stored_key) and exists):
            return Failure("wrong password or unknown user", WRONG, self._user)
        return Success(self._user)


class PlainClient:
    """The client's state machine of PLAIN."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        """Return the initial message."""
        return b"\0".join([b"", self._user.encode(), self._password.encode()])

    def step(self, data: bytes) -> Outcome:
        """Handle the server's message, which must be empty."""
        return Failure("unexpected message of the server in PLAIN") if data else Success(self._user)
