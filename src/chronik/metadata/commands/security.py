"""Commands that change ACLs, client quotas and SCRAM users.

The proposer validates the entity types, keys and values of quotas. Passwords are never stored, only keys derived from
them.
"""

from typing import Annotated, Final

from msgspec import Meta

from chronik.limits import ACL_NAME_CHARACTERS_MAX, QUOTA_NAME_CHARACTERS_MAX
from chronik.metadata.commands.base import CommandBase, CommandPart
from chronik.metadata.levels import SECURITY_LEVEL, since_level

ACLS_PER_COMMAND_MAX: Final = 1000
"""The maximum number of ACLs in a CreateAcls or DeleteAcls command. Applying one ACL takes about 5 µs."""

AclText = Annotated[str, Meta(min_length=1, max_length=ACL_NAME_CHARACTERS_MAX)]

QuotaEntityName = Annotated[str, Meta(max_length=QUOTA_NAME_CHARACTERS_MAX)]

ScramMechanismNumber = Annotated[int, Meta(ge=1, le=2)]
"""The type of Kafka's SCRAM mechanism numbers: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""


class Acl(CommandPart, frozen=True):
    """An access control entry that allows or denies an operation. Enumerations use the codes of Kafka's protocol.

    The image holds a set of ACLs: an entry exists once or not at all.
    """

    resource_type: Annotated[int, Meta(ge=2, le=127)]
    name: AclText
    """The name of the resource, or `*` for all resources of this resource type."""
    pattern_type: Annotated[int, Meta(ge=3, le=4)]
    """Kafka's pattern type: 3 for a literal name, 4 for a name prefix."""
    principal: AclText
    host: AclText
    operation: Annotated[int, Meta(ge=2, le=127)]
    permission: Annotated[int, Meta(ge=2, le=3)]


AclTuple = Annotated[tuple[Acl, ...], Meta(max_length=ACLS_PER_COMMAND_MAX)]


@since_level(SECURITY_LEVEL)
class CreateAcls(CommandBase, frozen=True, tag=80):
    """A command that atomically adds ACLs, ignoring existing ones. The result's `value` is the number added."""

    acls: AclTuple


@since_level(SECURITY_LEVEL)
class DeleteAcls(CommandBase, frozen=True, tag=81):
    """A command that removes ACLs, ignoring missing ones. The result's `value` is the number removed."""

    acls: AclTuple


class QuotaAlteration(CommandPart, frozen=True):
    """The changes to one entity's quotas. Quotas that are neither set nor removed keep their values."""

    entity: tuple[tuple[str, QuotaEntityName], ...]
    set: dict[str, float]
    remove: tuple[str, ...] = ()


@since_level(SECURITY_LEVEL)
class AlterQuotas(CommandBase, frozen=True, tag=86):
    """A command that alters client quotas; each alteration succeeds or fails separately."""

    alterations: tuple[QuotaAlteration, ...]


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
    """The cluster's secret for deriving the salts of unknown users. Ignored if the cluster already has one.

    Ignored if one exists.
    """
    is_first: bool = False
    """Whether to reject the command if any user exists, because every node proposes the same first user at bootstrap.
    """

    def __repr__(self) -> str:
        mechanisms = [keys.mechanism for keys in self.put]
        return f"AlterScramUser(name={self.name!r}, put={mechanisms}, remove={list(self.remove)}, …)"
