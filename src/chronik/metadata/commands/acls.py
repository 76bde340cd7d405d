"""Commands that create and delete ACLs."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.limits import ACL_NAME_CHARACTERS_MAX
from chronik.metadata.commands.base import CommandBase, CommandPart
from chronik.metadata.levels import SECURITY_LEVEL, since_level

ACLS_PER_COMMAND_MAX: Final = 1000
"""The maximum number of ACLs in one command. Applying an ACL blocks the event loop for about 5 µs."""

AclText = Annotated[str, Meta(min_length=1, max_length=ACL_NAME_CHARACTERS_MAX)]


class Acl(CommandPart, frozen=True):
    """An access control entry that allows or denies an operation, with the numeric codes of Kafka's protocol.

    The image holds a set of ACLs: an entry exists once or not at all.
    """

    resource_type: Annotated[int, Meta(ge=2, le=127)]
    name: AclText
    """The name of the resource, or `*` for all resources of the type."""
    pattern_type: Annotated[int, Meta(ge=3, le=4)]
    """Kafka's pattern type: 3 for a literal name, 4 for a name prefix."""
    principal: AclText
    host: AclText
    operation: Annotated[int, Meta(ge=2, le=127)]
    permission: Annotated[int, Meta(ge=2, le=3)]


AclTuple = Annotated[tuple[Acl, ...], Meta(max_length=ACLS_PER_COMMAND_MAX)]


@since_level(SECURITY_LEVEL)
class CreateAcls(CommandBase, frozen=True, tag=80):
    """A command that adds the ACLs that do not exist yet, all or none. The result's `value` is the number added."""

    acls: AclTuple


@since_level(SECURITY_LEVEL)
class DeleteAcls(CommandBase, frozen=True, tag=81):
    """A command that removes the ACLs that exist. The result's `value` is the number removed."""

    acls: AclTuple
