"""What a file can say of a cluster, and what a cluster says of itself: the same words for both, so that they can be
compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chronik.client.security.acls import AclBinding
from chronik.client.throttle import RATES, REPLICAS

Configs = Mapping[str, str]
Entity = tuple[tuple[str, str | None], ...]
"""Whom quotas are for: pairs of a kind and a name, by kind. None is the default."""

INTERNAL_PREFIX: Final = "__"
"""What topics are called that belong to the cluster, or to a pipeline: no file describes them, and nothing here touches
them."""

PASSING: Final = frozenset((*REPLICAS, *RATES))
"""Configs that moves of partitions set while they last: they are none of a file's business."""


@dataclass(frozen=True, slots=True)
class Topic:
    partitions: int | None = None
    """None, here and below: as brokers have it by default, and whatever there is."""
    replication_factor: int | None = None
    configs: Configs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PasswordSource:
    file: str | None = None
    """Beside the file that names it."""
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class User:
    mechanisms: Mapping[str, int | None]
    """Iterations by mechanism. None: the usual number, or however many there are."""
    password: PasswordSource | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A part that is None is not spoken of: nothing in it is created, altered or deleted."""

    topics: Mapping[str, Topic] | None = None
    broker: Configs | None = None
    """Of all brokers at once."""
    users: Mapping[str, User] | None = None
    acls: frozenset[AclBinding] | None = None
    quotas: Mapping[Entity, Mapping[str, float]] | None = None
