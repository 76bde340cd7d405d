"""The part of a cluster's state that a file can describe. Desired and current state have the same type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chronik.client.partitions import THROTTLED_RATE_KEYS, THROTTLED_REPLICAS_KEYS
from chronik.client.security import AclBinding

ConfigValues = Mapping[str, str]
QuotaEntityKey = tuple[tuple[str, str | None], ...]
"""A quota entity: pairs of entity type and name, sorted by type. The name None is the default entity."""

INTERNAL_PREFIX: Final = "__"
"""Prefix of topics that belong to the cluster or to a pipeline. `apply` and `export` ignore them."""

TRANSIENT_CONFIGS: Final = frozenset((*THROTTLED_REPLICAS_KEYS, *THROTTLED_RATE_KEYS))
"""Configs that exist only while partitions are reassigned; files must not set them."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    partitions: int | None = None
    """Number of partitions. None in a file means the broker's default, or the topic's current value."""
    replication_factor: int | None = None
    configs: ConfigValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PasswordSource:
    file: str | None = None
    """Path of the password file, relative to the file that names it."""
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class UserSpec:
    mechanisms: Mapping[str, int | None]
    """SCRAM iterations by mechanism. None means the default, or the current number."""
    password: PasswordSource | None = None


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Topics, configs, users, ACLs and quotas. A part that is None is not compared and not changed."""

    topics: Mapping[str, TopicSpec] | None = None
    broker: ConfigValues | None = None
    """Dynamic default configs of all brokers."""
    users: Mapping[str, UserSpec] | None = None
    acls: frozenset[AclBinding] | None = None
    quotas: Mapping[QuotaEntityKey, Mapping[str, float]] | None = None
