"""Alteration of SCRAM users: derives the stored keys from the salted passwords that clients send."""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from chronik.metadata.commands.security import AlterScramUser, ScramKeys
from chronik.metadata.handlers.security import USER_NAME_CHARACTERS_MAX
from chronik.metadata.image import Image
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS_BY_NUMBER,
    derive_keys,
    generate_salt,
    salt_password,
)

SECRET_BYTES: Final = 32
SALT_BYTES_MAX: Final = 1024
"""Maximum size in bytes of the salt of a SCRAM credential.

The salt is stored unchanged.
"""


class UserChange(msgspec.Struct):
    """A requested change of a user's SCRAM credentials.

    Credentials are identified by Kafka's mechanism numbers.
    """

    put: list[tuple[int, int, bytes, bytes]] = msgspec.field(default_factory=list)
    """SCRAM credentials to set, as tuples of mechanism, iterations, salt and salted password."""
    remove: list[int] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        return "UserChange(…)"


async def alter_user(store: MetadataStore, name: str, change: UserChange) -> None:
    """Set and remove the SCRAM credentials of a user.

    Raises:
        KafkaError: A credential is invalid. Nothing was changed.
    """
    check_user_name(name)
    put = tuple(_keys(*each) for each in change.put)
    for mechanism in change.remove:
        _check_scram_mechanism(mechanism)
    secret = b"" if store.image.salt_secret else secrets.token_bytes(SECRET_BYTES)
    await store.propose(AlterScramUser(name, put, tuple(change.remove), secret))


def check_user_name(name: str) -> None:
    """Raise UNACCEPTABLE_CREDENTIAL if the user name is empty or too long."""
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(name) > USER_NAME_CHARACTERS_MAX:
        message = f"A user name has at most {USER_NAME_CHARACTERS_MAX} characters, not {len(name)}"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def _keys(mechanism: int, iterations: int, salt: bytes, salted_password: bytes) -> ScramKeys:
    _check_scram_mechanism(mechanism)
    if iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A salt has 1 to {SALT_BYTES_MAX} bytes")
    if not 0 < len(salted_password) <= SALT_BYTES_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password is empty or too long")
    derived = derive_keys(MECHANISMS_BY_NUMBER[mechanism], salted_password, salt, iterations)
    return ScramKeys(mechanism, salt, derived.stored_key, derived.server_key, iterations)


def _check_scram_mechanism(mechanism: int) -> None:
    if mechanism not in MECHANISMS_BY_NUMBER:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def create_first_user_command(name: str, password: str) -> AlterScramUser:
    """Return the command that creates the cluster's first user, with SCRAM keys for all mechanisms.

    Deriving the keys takes milliseconds.
    """
    put = []
    for scram in MECHANISMS_BY_NUMBER.values():
        salt = generate_salt(secrets.choice)
        derived_keys = derive_keys(
            scram, salt_password(password.encode(), salt, ITERATIONS_MIN, scram.digest), salt, ITERATIONS_MIN
        )
        put.append(ScramKeys(scram.number, salt, derived_keys.stored_key, derived_keys.server_key, ITERATIONS_MIN))
    return AlterScramUser(name, tuple(put), secret=secrets.token_bytes(SECRET_BYTES), is_first=True)


def describe_user(image: Image, name: str) -> list[tuple[int, int]]:
    """Return the SCRAM mechanism and the number of iterations of each of a user's credentials.

    Raises:
        KafkaError: RESOURCE_NOT_FOUND if the user does not exist.
    """
    found = image.users.credentials(name)
    if not found:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
    return [(number, found[number].iterations) for number in sorted(found)]
