"""The part of a cluster's state that a file can describe. Desired and current state have the same type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chronik.client.partitions import THROTTLED_RATE_KEYS, THROTTLED_REPLICAS_KEYS
from chronik.client.security import AclBinding

ConfigValues = Mapping[str, str]
QuotaEntityKey = tuple[tuple[str, str | None], ...]
"""A quota entity: pairs of entity type and name, sorted by type. The name None denotes the default entity."""

INTERNAL_PREFIX: Final = "__"
"""Name prefix of internal topics, which `chronik apply` and `export` ignore."""

TRANSIENT_CONFIGS: Final = frozenset((*THROTTLED_REPLICAS_KEYS, *THROTTLED_RATE_KEYS))
"""Topic and broker configs that exist only during partition reassignments.

Spec files must not set them.
"""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    partitions: int | None = None
    """Number of partitions. None keeps the number of an existing topic, and uses the broker's default for a new one."""
    replication_factor: int | None = None
    configs: ConfigValues = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PasswordSource:
    file: str | None = None
    """Path of the file with the user's password, relative to the spec file."""
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class UserSpec:
    mechanisms: Mapping[str, int | None]
    """Number of SCRAM iterations by mechanism. None keeps the number of an existing credential, and uses the default
    for a new one."""
    password: PasswordSource | None = None


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Topics, configs, users, ACLs and quotas of a cluster, as in a spec file. Parts that are None stay unchanged."""

    topics: Mapping[str, TopicSpec] | None = None
    broker: ConfigValues | None = None
    """Dynamic broker configs that apply to all brokers of the cluster."""
    users: Mapping[str, UserSpec] | None = None
    acls: frozenset[AclBinding] | None = None
    quotas: Mapping[QuotaEntityKey, Mapping[str, float]] | None = None
