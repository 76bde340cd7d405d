"""SCRAM keys of users from the metadata image, and plausible fake keys of users that do not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chronik.metadata.image import Image
from chronik.metadata.records import ScramCredential
from chronik.metadata.security.users import CredentialShape
from chronik.security.sasl.scram_keys import (
    ITERATIONS_MIN,
    MECHANISMS_BY_NUMBER,
    SALT_BYTES,
    ScramKeySet,
    ScramMechanism,
    fake_position,
    fake_salt,
)

_DEFAULT_SHAPE: Final = CredentialShape(ITERATIONS_MIN, SALT_BYTES, True)
"""Credential format that Kafka's tools and Chronik's use by default."""


class ScramUsers:
    """The SCRAM credentials of all users."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    def keys(self, scram: ScramMechanism, user: str) -> tuple[ScramKeySet, bool]:
        """Return the user's keys, and whether the user exists.

        The iteration count and salt format of an unknown user follow the distribution among existing users, keyed by
        name, so an iteration count in use says nothing about whether a user exists. All nodes return the same keys, and
        they stay the same unless the distribution changes.
        """
        image = self._image()
        credential = image.users.credentials(user).get(scram.number)
        if credential is not None:
            return _keys_from_credential(credential), True
        # Without a salt secret no user was ever created, and there is nothing to hide.
        secret = image.salt_secret or image.cluster_id.encode()
        shape = image.users.shape_at(scram.number, fake_position(secret, scram.name, user)) or _DEFAULT_SHAPE
        salt = fake_salt(secret, scram.name, user, shape.salt_bytes, is_lower_alphanumeric=shape.is_lower_alphanumeric)
        fake_key = scram.hmac(secret, salt)
        return ScramKeySet(salt, shape.iterations, fake_key, fake_key), False

    def keys_of_any_mechanism(self, user: str) -> tuple[ScramMechanism, ScramKeySet, bool]:
        """Return the keys of any mechanism that the user has: with the password at hand, each can verify it."""
        users = self._image().users
        number = max(users.credentials(user), default=users.most_common_mechanism() or min(MECHANISMS_BY_NUMBER))
        scram = MECHANISMS_BY_NUMBER[number]
        return (scram, *self.keys(scram, user))


def _keys_from_credential(credential: ScramCredential) -> ScramKeySet:
    return ScramKeySet(credential.salt, credential.iterations, credential.stored_key, credential.server_key)
