"""SCRAM keys, signatures and proofs (RFC 5802). Only `salt_password` is computationally expensive."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from collections.abc import Callable
from typing import Final, NamedTuple

from chronik.security.sasl.outcomes import SCRAM_SHA_256, SCRAM_SHA_512

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Maximum iteration count, as in Kafka. A higher count would occupy a CPU of nodes and clients for minutes."""

SALT_CHARACTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
SALT_BYTES: Final = 26
"""Length of a salt in bytes. As in Kafka's tools, a salt of SALT_CHARACTERS has 130 bits of entropy."""


class ScramMechanism(NamedTuple):
    """A SCRAM mechanism with its hash function."""

    name: str
    number: int
    """Kafka's numeric code of the mechanism in AlterUserScramCredentials."""
    digest: str
    size: int

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return the HMAC of the data."""
        return hmac.digest(key, data, self.digest)

    def hash(self, data: bytes) -> bytes:
        """Return the hash of the data."""
        return hashlib.new(self.digest, data).digest()


MECHANISMS_BY_NAME: Final = {
    each.name: each
    for each in (ScramMechanism(SCRAM_SHA_256, 1, "sha256", 32), ScramMechanism(SCRAM_SHA_512, 2, "sha512", 64))
}
MECHANISMS_BY_NUMBER: Final = {each.number: each for each in MECHANISMS_BY_NAME.values()}


class ScramKeySet(NamedTuple):
    """The SCRAM credential of a user, which is stored instead of the password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "Keys(…)"


def salt_password(password: bytes, salt: bytes, iterations: int, digest: str) -> bytes:
    """Return the PBKDF2 hash of a password. It takes about 1 ms per 4096 iterations and releases the GIL."""
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def derive_keys(scram: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int) -> ScramKeySet:
    """Return the stored keys for a hashed password."""
    stored_key = scram.hash(scram.hmac(salted_password, b"Client Key"))
    return ScramKeySet(salt, iterations, stored_key, scram.hmac(salted_password, b"Server Key"))


def compute_client_proof(scram: ScramMechanism, salted_password: bytes, auth_message: bytes) -> bytes:
    """Compute the client's proof (RFC 5802), which shows that the client knows the password."""
    client_key = scram.hmac(salted_password, b"Client Key")
    return xor_bytes(client_key, scram.hmac(scram.hash(client_key), auth_message))


def compute_server_signature(scram: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    """Compute the server's signature (RFC 5802), which proves to the client that the server knows the user's keys."""
    return scram.hmac(server_key, auth_message)


def is_valid_proof(scram: ScramMechanism, stored_key: bytes, auth_message: bytes, proof: bytes) -> bool:
    """Return whether the client's proof is correct."""
    if len(proof) != scram.size:
        return False
    client_key = xor_bytes(proof, scram.hmac(stored_key, auth_message))
    return hmac.compare_digest(scram.hash(client_key), stored_key)


def generate_salt(choose: Callable[[bytes], int]) -> bytes:
    """Return a random salt; `choose` picks one of the characters (`secrets.choice`)."""
    return bytes(choose(SALT_CHARACTERS) for _ in range(SALT_BYTES))


def derive_pseudorandom_position(secret: bytes, mechanism: str, user: str) -> float:
    """Return a pseudorandom number in [0, 1) that is keyed by the user name and uniform over user names."""
    seed = b"\0".join([b"shape", mechanism.encode(), user.encode(errors="surrogatepass")])
    return int.from_bytes(hmac.digest(secret, seed, "sha256")[:6], "big") / 2**48


def derive_fake_salt(secret: bytes, mechanism: str, user: str, size: int, *, is_lower_alphanumeric: bool) -> bytes:
    """Return the salt of a nonexistent user, which is deterministic and indistinguishable from a real salt."""
    stream = hashlib.shake_256(b"\0".join([secret, mechanism.encode(), user.encode(errors="surrogatepass")]))
    if not is_lower_alphanumeric:
        return stream.digest(size)
    number = int.from_bytes(stream.digest(2 * size), "big")  # enough bits that the characters are uniform
    found = bytearray()
    for _ in range(size):
        number, digit = divmod(number, len(SALT_CHARACTERS))
        found.append(SALT_CHARACTERS[digit])
    return bytes(found)


def xor_bytes(one: bytes, other: bytes) -> bytes:
    """Return the XOR of two byte strings of equal length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def decode_base64(text: bytes) -> bytes:
    """Decode base64; raise ValueError if the text is invalid."""
    return b64decode(text, validate=True)
