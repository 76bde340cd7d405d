"""SASL SCRAM (RFC 5802 and 7677): both sides prove that they know keys derived from the password, without sending it.

As in Kafka, channel binding is not supported: a client that requires it is rejected. There are no delegation tokens.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Final

from chronik.security.sasl.outcomes import HashPassword, SaslChallenge, SaslFailure, SaslOutcome, SaslSuccess
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MIN,
    ScramKeySet,
    ScramMechanism,
    compute_client_proof,
    compute_server_signature,
    decode_base64,
    is_valid_proof,
)

_NAME: Final = rb"((?:[^=,\x00]|=2C|=3D)+)"
_NONCE: Final = rb"([\x21-\x2b\x2d-\x7e]+)"
_MORE: Final = rb"((?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST: Final = re.compile(rb"(n,(?:a=%b)?,)(n=%b,r=%b%b)" % (_NAME, _NAME, _NONCE, _MORE), re.DOTALL)
_CLIENT_FINAL: Final = re.compile(rb"(c=([A-Za-z0-9+/=]*),r=%b%b),p=([A-Za-z0-9+/=]+)" % (_NONCE, _MORE), re.DOTALL)
_SERVER_FIRST: Final = re.compile(rb"r=%b,s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})%b" % (_NONCE, _MORE), re.DOTALL)
_SERVER_FINAL: Final = re.compile(rb"(?:e=([^,\x00]+)|v=([A-Za-z0-9+/=]+))%b" % _MORE, re.DOTALL)
_TOKEN_EXTENSION: Final = b",tokenauth="

CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""Maximum iteration count that a client accepts: about one second of CPU time, because the server may be an
impostor."""

DIFFERENT_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)

ScramKeyLookup = Callable[[str], tuple[ScramKeySet, bool]]
"""Function that returns a user's keys and whether the user exists. Nonexistent users get keys that match no
password."""


class ScramServer:
    """The server-side state machine of SCRAM, which handles two client messages. The caller passes the random nonce."""

    def __init__(self, scram: ScramMechanism, lookup: ScramKeyLookup, nonce: str) -> None:
        self._scram = scram
        self._lookup = lookup
        self._nonce = nonce.encode()
        self._user = ""
        self._exists = False
        self._keys: ScramKeySet | None = None
        self._header = self._bare = self._first = b""

    def step(self, data: bytes) -> SaslOutcome:
        """Handle the client's first or final message, and return the challenge or the result of the authentication."""
        return (
            self._handle_client_first_message(data)
            if self._keys is None
            else self._handle_client_final_message(data, self._keys)
        )

    def _handle_client_first_message(self, data: bytes) -> SaslOutcome:
        found = _CLIENT_FIRST.fullmatch(data)
        if found is None:
            return SaslFailure("malformed first SCRAM message, or it requires channel binding")
        self._header, authzid, self._bare, name, nonce, more = found.groups()
        try:
            self._user = _unescape_name(name)
            authorization_id = _unescape_name(authzid or b"")
        except UnicodeDecodeError:
            return SaslFailure("the user name is not valid UTF-8")
        if authorization_id not in ("", self._user):
            return SaslFailure(
                "the authorization id differs from the user name", DIFFERENT_AUTHORIZATION_ID, self._user
            )
        if _TOKEN_EXTENSION in more:
            return SaslFailure("delegation tokens are not supported", user=self._user)
        self._keys, self._exists = self._lookup(self._user)
        salt = b64encode(self._keys.salt)
        self._first = b"r=%b%b,s=%b,i=%d" % (nonce, self._nonce, salt, self._keys.iterations)
        self._nonce = nonce + self._nonce
        return SaslChallenge(self._first)

    def _handle_client_final_message(self, data: bytes, keys: ScramKeySet) -> SaslOutcome:
        found = _CLIENT_FINAL.fullmatch(data)
        if found is None:
            return SaslFailure("malformed final SCRAM message", user=self._user)
        without_proof, channel, nonce, _, proof = found.groups()
        try:
            bound, client_proof_bytes = decode_base64(channel), decode_base64(proof)
        except ValueError:
            return SaslFailure("malformed final SCRAM message", user=self._user)
        if bound != self._header or not hmac.compare_digest(nonce, self._nonce):
            return SaslFailure("the final SCRAM message does not match the first one", user=self._user)
        auth_message = b",".join([self._bare, self._first, without_proof])
        is_right = is_valid_proof(self._scram, keys.stored_key, auth_message, client_proof_bytes)
        if not (is_right and self._exists):
            return SaslFailure("wrong password or unknown user", user=self._user)
        signature = compute_server_signature(self._scram, keys.server_key, auth_message)
        return SaslSuccess(self._user, b"v=" + b64encode(signature))


class ScramClient:
    """The client-side state machine of SCRAM."""

    def __init__(self, scram: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self._scram = scram
        self._user = user
        self._password = password.encode()
        self._nonce = nonce.encode()
        self._bare = b"n=%b,r=%b" % (_escape_name(user), self._nonce)
        self._first = self._without_proof = b""
        self._salted_password = b""

    def initial_message(self) -> bytes:
        """Return the client's first message, which contains the user name and a nonce."""
        return b"n,," + self._bare

    def step(self, data: bytes) -> SaslOutcome:
        """Handle the server's first or final message, and return the next action or the result."""
        return (
            self._verify_server_final_message(data)
            if self._salted_password
            else self._handle_server_first_message(data)
        )

    def _handle_server_first_message(self, data: bytes) -> SaslOutcome:
        found = _SERVER_FIRST.fullmatch(data)
        if found is None:
            return SaslFailure("malformed first SCRAM message of the server")
        nonce, salt, count, _ = found.groups()
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            return SaslFailure("the server's nonce does not extend the client's nonce")
        iterations = int(count)
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            return SaslFailure(
                f"the server requires {iterations} iterations ({ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX})"
            )
        try:
            known_salt = decode_base64(salt)
        except ValueError:
            return SaslFailure("malformed first SCRAM message of the server")
        self._first = data
        self._without_proof = b"c=biws,r=" + nonce
        return HashPassword(self._password, known_salt, iterations, self._scram.digest)

    def continue_with_hash(self, salted_password: bytes) -> SaslOutcome:
        """Return the client's final message, which proves that the client knows the hashed password."""
        self._salted_password = salted_password
        proof = compute_client_proof(self._scram, salted_password, self._build_auth_message())
        return SaslChallenge(self._without_proof + b",p=" + b64encode(proof))

    def _verify_server_final_message(self, data: bytes) -> SaslOutcome:
        found = _SERVER_FINAL.fullmatch(data)
        if found is None:
            return SaslFailure("malformed final SCRAM message of the server")
        if found[1] is not None:
            return SaslFailure(f"the server rejected the authentication: {found[1].decode(errors='replace')}")
        expected = compute_server_signature(
            self._scram, self._scram.hmac(self._salted_password, b"Server Key"), self._build_auth_message()
        )
        try:
            is_right = hmac.compare_digest(decode_base64(found[2]), expected)
        except ValueError:
            is_right = False
        return (
            SaslSuccess(self._user)
            if is_right
            else SaslFailure("the server's signature is wrong: it lacks the user's keys")
        )

    def _build_auth_message(self) -> bytes:
        return b",".join([self._bare, self._first, self._without_proof])


def _escape_name(name: str) -> bytes:
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def _unescape_name(name: bytes) -> str:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
