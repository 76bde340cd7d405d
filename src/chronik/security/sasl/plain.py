"""PLAIN, RFC 4616: name and password as they are. The node checks them against the keys that it keeps for SCRAM."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from chronik.security.sasl.outcomes import Derive, Failure, Outcome, Success
from chronik.security.sasl.scram import OTHER_USER
from chronik.security.sasl.scram_keys import Keys, Scram, keys_of

WRONG: Final = "Authentication failed: Invalid username or password"

Lookup = Callable[[str], tuple[Scram, Keys, bool]]
"""Returns keys of a user with their mechanism, and whether there is such a user: checking others takes as long."""


class PlainServer:
    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._user = ""
        self._known: tuple[Scram, Keys, bool] | None = None

    @property
    def user(self) -> str:
        """The user whose password is being checked."""
        return self._user

    def step(self, data: bytes) -> Outcome:
        parts = data.split(b"\0")
        if self._known is not None or len(parts) != 3:
            return Failure(f"{len(parts)} parts where PLAIN has three")
        try:
            other, self._user = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            return Failure("its name is not in UTF-8")
        if not self._user:
            return Failure("it names no user", "Authentication failed: username not specified")
        if not parts[2]:
            return Failure("it has no password", "Authentication failed: password not specified", self._user)
        if other not in ("", self._user):
            return Failure("it asks to act for another user", OTHER_USER, self._user)
        self._known = scram, keys, _ = self._lookup(self._user)
        return Derive(parts[2], keys.salt, keys.iterations, scram.digest)

    def derived(self, salted_password: bytes) -> Outcome:
        assert self._known is not None
        scram, keys, exists = self._known
        made = keys_of(scram, salted_password, keys.salt, keys.iterations)
        if not (hmac.compare_digest(made.stored_key, keys.stored_key) and exists):
            return Failure("wrong password, or no such user", WRONG, self._user)
        return Success(self._user)


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return b"\0".join([b"", self._user.encode(), self._password.encode()])

    def step(self, data: bytes) -> Outcome:
        return Failure("the server has something to say, which PLAIN does not have") if data else Success(self._user)
