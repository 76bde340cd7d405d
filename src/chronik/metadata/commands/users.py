"""The command that alters SCRAM credentials. Passwords are never stored, only keys derived from them."""

from typing import Annotated

from msgspec import Meta

from chronik.metadata.commands.base import CommandBase, CommandPart
from chronik.metadata.levels import SECURITY_LEVEL, since_level

ScramMechanismNumber = Annotated[int, Meta(ge=1, le=2)]
"""Kafka's mechanism number: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""


class ScramKeys(CommandPart, frozen=True):
    """The salted keys derived from a password for one SCRAM mechanism (RFC 5802)."""

    mechanism: ScramMechanismNumber
    salt: Annotated[bytes, Meta(min_length=1, max_length=1024)]
    stored_key: Annotated[bytes, Meta(min_length=32, max_length=64)]
    server_key: Annotated[bytes, Meta(min_length=32, max_length=64)]
    iterations: Annotated[int, Meta(ge=4096, le=2**31 - 1)]

    def __repr__(self) -> str:
        return f"ScramKeys(mechanism={self.mechanism}, …)"


@since_level(SECURITY_LEVEL)
class AlterScramUser(CommandBase, frozen=True, tag=70):
    """A command that atomically updates a user's SCRAM credentials. Removing the last credential deletes the user."""

    name: str
    put: tuple[ScramKeys, ...] = ()
    remove: tuple[ScramMechanismNumber, ...] = ()
    secret: Annotated[bytes, Meta(max_length=64)] = b""
    """The cluster's salt secret, from which salts for unknown users are derived.

    Ignored if the cluster has a secret.
    """
    is_first: bool = False
    """Whether to reject the command if any user exists. During bootstrap, every node proposes the same first user."""

    def __repr__(self) -> str:
        mechanisms = [keys.mechanism for keys in self.put]
        return f"AlterScramUser(name={self.name!r}, put={mechanisms}, remove={list(self.remove)}, …)"
