"""Commands of ACLs: who may do what with which resources."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.limits import ACL_NAME_CHARACTERS_MAX
from chronik.metadata.commands.base import Base, Part
from chronik.metadata.levels import SECURITY, since_level

ACLS_PER_COMMAND_MAX: Final = 1000
"""A command is applied in one turn of the loop, at some 5 µs per ACL."""

Text = Annotated[str, Meta(min_length=1, max_length=ACL_NAME_CHARACTERS_MAX)]


class Acl(Part, frozen=True):
    """Allows or denies somebody something, in the numbers of Kafka's protocol. Each is there once or not at all."""

    resource_type: Annotated[int, Meta(ge=2, le=127)]
    name: Text
    """Of a resource, or `*` for all of them."""
    pattern_type: Annotated[int, Meta(ge=3, le=4)]
    """Whether `name` is the whole name, or its beginning."""
    principal: Text
    host: Text
    operation: Annotated[int, Meta(ge=2, le=127)]
    permission: Annotated[int, Meta(ge=2, le=3)]


Acls = Annotated[tuple[Acl, ...], Meta(max_length=ACLS_PER_COMMAND_MAX)]


@since_level(SECURITY)
class CreateAcls(Base, frozen=True, tag=80):
    """Adds those that are not there yet, all or none. The result's `value` says how many they were."""

    acls: Acls


@since_level(SECURITY)
class DeleteAcls(Base, frozen=True, tag=81):
    """Removes those that are there. The result's `value` says how many they were."""

    acls: Acls
