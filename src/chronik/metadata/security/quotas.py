"""Client quotas in the image: entities and their values by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.metadata.levels import SECURITY, since_level
from chronik.metadata.records import Record

Entity = tuple[tuple[str, str], ...]
"""Sorted (type, name) pairs, such as (("client-id", "c"), ("user", "alice")). DEFAULT names the default entity."""

Values = Mapping[str, float]
"""Quota values by key."""

DEFAULT: Final = ""
USER: Final = "user"
CLIENT_ID: Final = "client-id"
ADDRESS: Final = "ip"


def entity_of(pairs: Iterable[tuple[str, str]]) -> Entity:
    """Return the entity with these (type, name) pairs."""
    return tuple(sorted(pairs))


@since_level(SECURITY)
class QuotaEntry(Record, frozen=True, tag=31):
    """The quotas of one entity in a snapshot."""

    entity: Entity
    values: dict[str, float]
