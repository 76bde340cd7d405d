"""Configuration of the group coordinator under Kafka's names, and limits that protect the node from clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from chronik.errors import ConfigError

MEMBER_BYTES_MAX: Final = 1 << 20
"""Maximum size of all protocols of one member in bytes. In Kafka, a whole group must fit into a record of 1 MB."""

GROUP_BYTES_MAX: Final = 8 << 20
"""Maximum size of a group's protocols and assignments in bytes: half the maximum size of a metadata command."""

MEMBER_ID_PREFIX_CHARACTERS_MAX: Final = 255
"""Maximum number of characters of the client id that a member id contains."""

PENDING_MEMBERS_MAX: Final = 10_000
"""Maximum number of pending member ids per group. A pending id expires after the session timeout of its request."""

GROUPS_MAX: Final = 100_000
"""Maximum number of groups in memory, so that a client that uses many group ids cannot exhaust the node's memory."""

GROUPS_BYTES_MAX: Final = 32 << 20
"""Maximum size of the protocols, assignments and names of all group members on a node, in bytes."""

SMALL_MEMBER_BYTES_MAX: Final = 64 << 10
"""Maximum size of a small member in bytes. Small members may join until twice `GROUPS_BYTES_MAX` is in use."""

GROUP_OFFSETS_BYTES_MAX: Final = 32 << 20
"""Maximum memory of one group's committed offsets in bytes: about 160,000 offsets without metadata."""

OFFSETS_BYTES_MAX: Final = 512 << 20
"""Maximum memory of all committed offsets of the cluster in bytes, on every node: about 2.5 million offsets."""

OFFSETS_METADATA_BYTES_MAX: Final = 64 << 20
"""Maximum memory of the metadata strings of all committed offsets in bytes. Most clients send none or short ones."""

STAGED_OFFSETS_MAX: Final = 500_000
"""Maximum number of offsets staged in open transactions. Each uses about 300 bytes on every node."""

STATIC_REBALANCE_DELAY_MS_MIN: Final = 1_000
"""Minimum delay before a rebalance that no member joined is retried. A rebalance timeout of 0 is legal."""

SYNC_TIMEOUT_MS_MIN: Final = 3_000
"""Minimum time for a joined member to send SyncGroup. Some clients send a rebalance timeout of 0 and would be removed
before their SyncGroup request can arrive."""

MEMBER_ID_CHECK_DELAY_MS: Final = 100
"""Interval in milliseconds at which a rebalance checks whether the new member ids of static members are stored."""

EMPTY_GROUP_RETRY_DELAY_MS: Final = 10_000
"""Delay in milliseconds before the failed write of an empty group is retried."""

COMMIT_BATCH_BYTES_MAX: Final = 1 << 20
"""Approximate maximum size in bytes of the offsets in one metadata command: about 15,000 typical offsets."""


class GroupConfig(msgspec.Struct, frozen=True):
    """Configuration of the group coordinator."""

    min_session_timeout_ms: int = 6_000
    """Kafka's `group.min.session.timeout.ms`: the minimum session timeout that a member may request."""
    max_session_timeout_ms: int = 1_800_000
    """Kafka's `group.max.session.timeout.ms`: the maximum session timeout that a member may request."""
    max_size: int = 10_000
    """`group.max.size`. Unlimited in Kafka; limited here because the leader's JoinGroup response lists all members."""
    initial_rebalance_delay_ms: int = 0
    """`group.initial.rebalance.delay.ms`: 0, as in Kafka's default server.properties. A delay of 3 s avoids repeated
    rebalances when many members start at the same time."""
    new_member_join_timeout_ms: int = 300_000
    """Time after which a new member is removed if its join is still waiting; Kafka uses the same constant."""
    offset_metadata_characters_max: int = 4096
    """`offset.metadata.max.bytes`. Like Kafka, this limit counts characters despite its name."""
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    """Kafka's `offsets.retention.minutes`, in milliseconds: how long the offsets of an empty group are kept."""
    offsets_retention_check_interval_ms: int = 600_000
    """Kafka's `offsets.retention.check.interval.ms`: the interval of the checks for expired offsets."""

    @classmethod
    def from_broker_configs(cls, configs: Mapping[str, str]) -> GroupConfig:
        """Build the configuration from broker configs, ignoring those that do not concern groups.

        Raises:
            ConfigError: A value is not a valid number, or the session timeouts contradict each other.
        """
        values: dict[str, int] = {}
        for name, (field_name, unit_ms, minimum) in _KAFKA_NAMES.items():
            if name in configs:
                values[field_name] = _parse_int(name, configs[name], minimum) * unit_ms
        config = cls(**values)
        if config.min_session_timeout_ms > config.max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms: expected at most group.max.session.timeout.ms")
        return config


_KAFKA_NAMES: Final = {
    "group.min.session.timeout.ms": ("min_session_timeout_ms", 1, 1),
    "group.max.session.timeout.ms": ("max_session_timeout_ms", 1, 1),
    "group.max.size": ("max_size", 1, 1),
    "group.initial.rebalance.delay.ms": ("initial_rebalance_delay_ms", 1, 0),
    "offset.metadata.max.bytes": ("offset_metadata_characters_max", 1, 0),
    "offsets.retention.minutes": ("offsets_retention_ms", 60_000, 1),
    "offsets.retention.check.interval.ms": ("offsets_retention_check_interval_ms", 1, 1),
}


def _parse_int(name: str, text: str, minimum: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise ConfigError(f"{name} = {text!r}: expected an integer of at least {minimum}")
    return number
