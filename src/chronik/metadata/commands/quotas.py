"""The command that alters client quotas. The proposer validates entity types, keys and values."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from chronik.limits import QUOTA_NAME_CHARACTERS_MAX
from chronik.metadata.commands.base import CommandBase, CommandPart
from chronik.metadata.levels import SECURITY_LEVEL, since_level

QuotaEntityName = Annotated[str, Meta(max_length=QUOTA_NAME_CHARACTERS_MAX)]


class QuotaAlteration(CommandPart, frozen=True):
    """The changes to one entity's quotas. Quotas that are neither set nor removed keep their values."""

    entity: tuple[tuple[str, QuotaEntityName], ...]
    set: dict[str, float]
    remove: tuple[str, ...] = ()


@since_level(SECURITY_LEVEL)
class AlterQuotas(CommandBase, frozen=True, tag=86):
    """A command that alters client quotas; each alteration succeeds or fails separately."""

    alterations: tuple[QuotaAlteration, ...]
