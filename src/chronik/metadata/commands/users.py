"""Commands of users: what the node keeps to know them again, which is never a password."""

from typing import Annotated

from msgspec import Meta

from chronik.metadata.commands.base import Base, Part
from chronik.metadata.levels import SECURITY, since_level

ScramMechanismNumber = Annotated[int, Meta(ge=1, le=2)]
"""Kafka's: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""


class ScramKeys(Part, frozen=True):
    """What is kept of a password for one mechanism, RFC 5802."""

    mechanism: ScramMechanismNumber
    salt: Annotated[bytes, Meta(min_length=1, max_length=1024)]
    stored_key: Annotated[bytes, Meta(min_length=32, max_length=64)]
    server_key: Annotated[bytes, Meta(min_length=32, max_length=64)]
    iterations: Annotated[int, Meta(ge=4096, le=2**31 - 1)]

    def __repr__(self) -> str:
        return f"ScramKeys(mechanism={self.mechanism}, …)"


@since_level(SECURITY)
class AlterScramUser(Base, frozen=True, tag=70):
    """Changes all of it or nothing. A user who has no keys left is gone."""

    name: str
    put: tuple[ScramKeys, ...] = ()
    remove: tuple[ScramMechanismNumber, ...] = ()
    secret: Annotated[bytes, Meta(max_length=64)] = b""
    """The cluster's secret from now on, unless it has one: the salts of users that do not exist are made of it."""
    is_first: bool = False
    """Whether it is refused when there is any user: those who found a cluster each propose the same one."""

    def __repr__(self) -> str:
        mechanisms = [keys.mechanism for keys in self.put]
        return f"AlterScramUser(name={self.name!r}, put={mechanisms}, remove={list(self.remove)}, …)"
