"""The SCRAM users in the image, and plausible credential parameters for users that do not exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from chronik.metadata.records import ScramCredential


class CredentialShape(NamedTuple):
    """The parameters of a credential that an unauthenticated client can see, apart from the salt itself."""

    iterations: int
    salt_bytes: int
    is_lower_alphanumeric: bool
    """Whether the salt consists of lower-case letters and digits, as Kafka's tools generate it."""

    @classmethod
    def from_credential(cls, credential: ScramCredential) -> CredentialShape:
        salt = credential.salt
        return cls(credential.iterations, len(salt), salt.isalnum() and salt.islower())


class UserTable:
    """The SCRAM credentials of all users."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[int, ScramCredential]] = {}
        self._shapes: dict[int, Counter[CredentialShape]] = {}

    def credentials(self, name: str) -> Mapping[int, ScramCredential]:
        """Return the credentials of a user by mechanism; empty for an unknown user."""
        return self.by_name.get(name, {})

    def put(self, credential: ScramCredential) -> ScramCredential | None:
        """Store a credential and return the one that it replaces, if any."""
        old = self.remove(credential.name, credential.mechanism)
        self.by_name.setdefault(credential.name, {})[credential.mechanism] = credential
        self._shapes.setdefault(credential.mechanism, Counter())[CredentialShape.from_credential(credential)] += 1
        return old

    def remove(self, name: str, mechanism: int) -> ScramCredential | None:
        """Remove a credential and return it, or None if it does not exist."""
        old = self.by_name.get(name, {}).pop(mechanism, None)
        if old is not None:
            shapes = self._shapes[mechanism]
            shapes[CredentialShape.from_credential(old)] -= 1
            if not shapes[CredentialShape.from_credential(old)]:
                del shapes[CredentialShape.from_credential(old)]
            if not self.by_name[name]:
                del self.by_name[name]
        return old

    def all_credentials(self) -> Iterator[ScramCredential]:
        """Return an iterator over all credentials."""
        for credentials in self.by_name.values():
            yield from credentials.values()

    def shape_at(self, mechanism: int, position: float) -> CredentialShape | None:
        """Return the shape at a position from 0 to 1 among the mechanism's credentials, ordered by shape.

        A uniformly distributed position returns each shape as often as it is in use. Returns None if the mechanism has
        no credentials.
        """
        shapes = self._shapes.get(mechanism)
        if not shapes:
            return None
        left = int(position * shapes.total())
        for shape in sorted(shapes):
            left -= shapes[shape]
            if left < 0:
                return shape
        return max(shapes)

    def most_common_mechanism(self) -> int | None:
        """Return the mechanism that most users have, or None if there are no users."""
        counts = {mechanism: shapes.total() for mechanism, shapes in self._shapes.items() if shapes}
        return max(counts, key=lambda mechanism: (counts[mechanism], mechanism)) if counts else None
