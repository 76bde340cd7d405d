"""The command that changes quotas. Its proposer checks kinds, keys and values, as with configs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from chronik.limits import QUOTA_NAME_CHARACTERS_MAX
from chronik.metadata.commands.base import Base, Part
from chronik.metadata.levels import SECURITY, since_level

Name = Annotated[str, Meta(max_length=QUOTA_NAME_CHARACTERS_MAX)]


class QuotaAlteration(Part, frozen=True):
    """What becomes of the quotas of one entity: those which are neither set nor removed stay."""

    entity: tuple[tuple[str, Name], ...]
    set: dict[str, float]
    remove: tuple[str, ...] = ()


@since_level(SECURITY)
class AlterQuotas(Base, frozen=True, tag=86):
    """Changes quotas; each alteration succeeds or fails alone."""

    alterations: tuple[QuotaAlteration, ...]
