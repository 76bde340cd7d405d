"""Client quotas in the image: entities and their values by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.metadata.levels import SECURITY_LEVEL, since_level
from chronik.metadata.records import ImageRecord

Entity = tuple[tuple[str, str], ...]
"""Sorted (type, name) pairs, such as (("client-id", "c"), ("user", "alice")). DEFAULT names the default entity."""

QuotaValues = Mapping[str, float]
"""Quota values by key."""

DEFAULT_ENTITY: Final = ""
USER: Final = "user"
CLIENT_ID: Final = "client-id"
ADDRESS: Final = "ip"


def normalize_entity(pairs: Iterable[tuple[str, str]]) -> Entity:
    """Return the entity with these (type, name) pairs."""
    return tuple(sorted(pairs))


@since_level(SECURITY_LEVEL)
class QuotaEntry(ImageRecord, frozen=True, tag=31):
    """The quotas of one entity in a snapshot."""

    entity: Entity
    values: dict[str, float]
