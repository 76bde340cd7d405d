"""Quotas in the image: whom they are for, and their values by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.metadata.levels import SECURITY, since_level
from chronik.metadata.records import Record

Entity = tuple[tuple[str, str], ...]
"""Pairs of a kind and a name, sorted: (("client-id", "c"), ("user", "alice")). DEFAULT is whoever has no quota."""

Values = Mapping[str, float]

DEFAULT: Final = ""
USER: Final = "user"
CLIENT_ID: Final = "client-id"
ADDRESS: Final = "ip"


def entity_of(pairs: Iterable[tuple[str, str]]) -> Entity:
    return tuple(sorted(pairs))


@since_level(SECURITY)
class QuotaEntry(Record, frozen=True, tag=31):
    """As snapshots have it."""

    entity: Entity
    values: dict[str, float]
