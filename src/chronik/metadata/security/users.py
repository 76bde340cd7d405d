"""The users of the cluster in the image, and what one is to be taken for who does not exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from chronik.metadata.records import ScramCredential


class Shape(NamedTuple):
    """What a stranger who asks for a user's salt sees of the credential, but for the salt itself."""

    iterations: int
    salt_bytes: int
    is_lower_alphanumeric: bool
    """Kafka's own tools make such salts, and ours do."""

    @classmethod
    def of(cls, credential: ScramCredential) -> Shape:
        salt = credential.salt
        return cls(credential.iterations, len(salt), salt.isalnum() and salt.islower())


class UserTable:
    def __init__(self) -> None:
        self.by_name: dict[str, dict[int, ScramCredential]] = {}
        self._shapes: dict[int, Counter[Shape]] = {}

    def of(self, name: str) -> Mapping[int, ScramCredential]:
        """Returns the credentials of a user by mechanism; none for one who does not exist."""
        return self.by_name.get(name, {})

    def put(self, credential: ScramCredential) -> ScramCredential | None:
        """Returns what it replaces."""
        old = self.remove(credential.name, credential.mechanism)
        self.by_name.setdefault(credential.name, {})[credential.mechanism] = credential
        self._shapes.setdefault(credential.mechanism, Counter())[Shape.of(credential)] += 1
        return old

    def remove(self, name: str, mechanism: int) -> ScramCredential | None:
        old = self.by_name.get(name, {}).pop(mechanism, None)
        if old is not None:
            shapes = self._shapes[mechanism]
            shapes[Shape.of(old)] -= 1
            if not shapes[Shape.of(old)]:
                del shapes[Shape.of(old)]
            if not self.by_name[name]:
                del self.by_name[name]
        return old

    def all(self) -> Iterator[ScramCredential]:
        for credentials in self.by_name.values():
            yield from credentials.values()

    def shape_at(self, mechanism: int, position: float) -> Shape | None:
        """Return the shape at a position from 0 to 1 of the mechanism's credentials, ordered by shape; None if the
        mechanism has no credentials. A uniform position returns each shape as often as it is in use."""
        shapes = self._shapes.get(mechanism)
        if not shapes:
            return None
        left = int(position * shapes.total())
        for shape in sorted(shapes):
            left -= shapes[shape]
            if left < 0:
                return shape
        return max(shapes)

    def commonest_mechanism(self) -> int | None:
        """Returns the one that most users have; None when there are no users."""
        counts = {mechanism: shapes.total() for mechanism, shapes in self._shapes.items() if shapes}
        return max(counts, key=lambda mechanism: (counts[mechanism], mechanism)) if counts else None
