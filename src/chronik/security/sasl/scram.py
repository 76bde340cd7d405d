"""SCRAM, RFC 5802 and 7677: both sides show that they know what was made of the password, and neither sends it.

As in Kafka, no channel is bound: a client that offers to is refused, and there are no delegation tokens.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Final

from chronik.security.sasl.outcomes import Challenge, Derive, Failure, Outcome, Success
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MIN,
    Keys,
    Scram,
    client_proof,
    from_base64,
    is_proof,
    server_signature,
)

_NAME: Final = rb"((?:[^=,\x00]|=2C|=3D)+)"
_NONCE: Final = rb"([\x21-\x2b\x2d-\x7e]+)"
_MORE: Final = rb"((?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST: Final = re.compile(rb"(n,(?:a=%b)?,)(n=%b,r=%b%b)" % (_NAME, _NAME, _NONCE, _MORE), re.DOTALL)
_CLIENT_FINAL: Final = re.compile(rb"(c=([A-Za-z0-9+/=]*),r=%b%b),p=([A-Za-z0-9+/=]+)" % (_NONCE, _MORE), re.DOTALL)
_SERVER_FIRST: Final = re.compile(rb"r=%b,s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})%b" % (_NONCE, _MORE), re.DOTALL)
_SERVER_FINAL: Final = re.compile(rb"(?:e=([^,\x00]+)|v=([A-Za-z0-9+/=]+))%b" % _MORE, re.DOTALL)
_OF_TOKENS: Final = b",tokenauth="

CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""What a client counts to for a server: that is a second, and somebody who only seems to be the server may ask."""

OTHER_USER: Final = "Authentication failed: Client requested an authorization id that is different from username"

Lookup = Callable[[str], tuple[Keys, bool]]
"""Returns the keys of a user, and whether there is such a user: others have keys too, which nobody can have."""


class ScramServer:
    """The side of the node. Two messages come; the nonce, which is fresh each time, is handed in."""

    def __init__(self, scram: Scram, lookup: Lookup, nonce: str) -> None:
        self._scram = scram
        self._lookup = lookup
        self._nonce = nonce.encode()
        self._user = ""
        self._exists = False
        self._keys: Keys | None = None
        self._header = self._bare = self._first = b""

    def step(self, data: bytes) -> Outcome:
        return self._answer_first(data) if self._keys is None else self._answer_final(data, self._keys)

    def _answer_first(self, data: bytes) -> Outcome:
        found = _CLIENT_FIRST.fullmatch(data)
        if found is None:
            return Failure("its first message is none of SCRAM's without channel binding")
        self._header, authzid, self._bare, name, nonce, more = found.groups()
        try:
            self._user = _unescaped(name)
            other = _unescaped(authzid or b"")
        except UnicodeDecodeError:
            return Failure("its name is not in UTF-8")
        if other not in ("", self._user):
            return Failure("it asks to act for another user", OTHER_USER, self._user)
        if _OF_TOKENS in more:
            return Failure("it has a delegation token, and there are none", user=self._user)
        self._keys, self._exists = self._lookup(self._user)
        salt = b64encode(self._keys.salt)
        self._first = b"r=%b%b,s=%b,i=%d" % (nonce, self._nonce, salt, self._keys.iterations)
        self._nonce = nonce + self._nonce
        return Challenge(self._first)

    def _answer_final(self, data: bytes, keys: Keys) -> Outcome:
        found = _CLIENT_FINAL.fullmatch(data)
        if found is None:
            return Failure("its final message is none of SCRAM's", user=self._user)
        without_proof, channel, nonce, _, proof = found.groups()
        try:
            bound, shown = from_base64(channel), from_base64(proof)
        except ValueError:
            return Failure("its final message is none of SCRAM's", user=self._user)
        if bound != self._header or not hmac.compare_digest(nonce, self._nonce):
            return Failure("its final message does not belong to the first", user=self._user)
        auth_message = b",".join([self._bare, self._first, without_proof])
        is_right = is_proof(self._scram, keys.stored_key, auth_message, shown)
        if not (is_right and self._exists):
            return Failure("wrong password, or no such user", user=self._user)
        signature = server_signature(self._scram, keys.server_key, auth_message)
        return Success(self._user, b"v=" + b64encode(signature))


class ScramClient:
    """The side of a client. `first` is sent to begin."""

    def __init__(self, scram: Scram, user: str, password: str, nonce: str) -> None:
        self._scram = scram
        self._user = user
        self._password = password.encode()
        self._nonce = nonce.encode()
        self._bare = b"n=%b,r=%b" % (_escaped(user), self._nonce)
        self._first = self._without_proof = b""
        self._salted = b""

    def first(self) -> bytes:
        return b"n,," + self._bare

    def step(self, data: bytes) -> Outcome:
        return self._check(data) if self._salted else self._answer(data)

    def _answer(self, data: bytes) -> Outcome:
        found = _SERVER_FIRST.fullmatch(data)
        if found is None:
            return Failure("the server's first message is none of SCRAM's")
        nonce, salt, count, _ = found.groups()
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            return Failure("the server's message does not belong to ours")
        iterations = int(count)
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            return Failure(f"the server asks for {iterations} iterations ({ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX})")
        try:
            known_salt = from_base64(salt)
        except ValueError:
            return Failure("the server's first message is none of SCRAM's")
        self._first = data
        self._without_proof = b"c=biws,r=" + nonce
        return Derive(self._password, known_salt, iterations, self._scram.digest)

    def derived(self, salted_password: bytes) -> Outcome:
        self._salted = salted_password
        proof = client_proof(self._scram, salted_password, self._auth_message())
        return Challenge(self._without_proof + b",p=" + b64encode(proof))

    def _check(self, data: bytes) -> Outcome:
        found = _SERVER_FINAL.fullmatch(data)
        if found is None:
            return Failure("the server's final message is none of SCRAM's")
        if found[1] is not None:
            return Failure(f"the server refuses: {found[1].decode(errors='replace')}")
        expected = server_signature(self._scram, self._scram.hmac(self._salted, b"Server Key"), self._auth_message())
        try:
            is_right = hmac.compare_digest(from_base64(found[2]), expected)
        except ValueError:
            is_right = False
        return Success(self._user) if is_right else Failure("the server does not know the password either")

    def _auth_message(self) -> bytes:
        return b",".join([self._bare, self._first, self._without_proof])


def _escaped(name: str) -> bytes:
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def _unescaped(name: bytes) -> str:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
