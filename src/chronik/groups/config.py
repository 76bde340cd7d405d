"""Settings of the group coordinator under Kafka's names, and the limits a stranger could push against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from chronik.errors import ConfigError

MEMBER_BYTES_MAX: Final = 1 << 20
"""All protocols of one member, with their names. In Kafka a whole group has to fit a record of 1 MB."""

GROUP_BYTES_MAX: Final = 8 << 20
"""Protocols and assignments of one group: half of what a command of the metadata log may have."""

MEMBER_ID_PREFIX_CHARACTERS_MAX: Final = 255
"""What a member id shows of the client's name. A string of Kafka's protocol has 32,767 bytes: a whole name of that
length would leave no room for the rest of the id, and the answer could not be sent."""

PENDING_MEMBERS_MAX: Final = 10_000
"""Ids given out by one group that have not joined yet. Each lives for one session timeout, whoever asked for it."""

GROUPS_MAX: Final = 100_000
"""Groups held in memory. A client that invents a group id per request must not take the node's memory."""

GROUPS_BYTES_MAX: Final = 32 << 20
"""Protocols, assignments and names of all members of a node's groups. A usual member brings some hundred bytes."""

SMALL_BYTES_MAX: Final = 64 << 10
"""A member that brings no more than this is let in up to twice that limit: large ones must not lock others out."""

GROUP_OFFSETS_BYTES_MAX: Final = 32 << 20
"""Offsets of one group, in memory: 160,000 without metadata."""

OFFSETS_BYTES_MAX: Final = 512 << 20
"""Offsets of all groups of the cluster, which every node holds: two and a half million."""

OFFSETS_METADATA_BYTES_MAX: Final = 64 << 20
"""The part of it that clients wrote beside their offsets. Most write nothing, and some a few dozen characters."""

STAGED_OFFSETS_MAX: Final = 500_000
"""Offsets that wait for their transactions, of all groups, some 300 bytes each on every node."""

STATIC_ROUND_DELAY_MS_MIN: Final = 1_000
"""The pause between two rounds in which no static member came, whatever rebalance timeout (0 is legal) they chose."""

SYNC_TIMEOUT_MS_MIN: Final = 3_000
"""How long a member that joined has to sync, whatever rebalance timeout it chose: some clients name none, which arrives
as 0, and would be removed before their SyncGroup can arrive."""

NEW_ID_DELAY_MS: Final = 100
"""A round whose time is up while a static member's old id is still in the store looks again after this."""

EMPTINESS_RETRY_DELAY_MS: Final = 10_000
"""A group whose emptiness could not be stored tries again after this: until then its offsets cannot expire."""

COMMIT_BATCH_BYTES_MAX: Final = 1 << 20
"""Offsets in one proposal by their rough size: about 15,000 usual ones, and the log is not held up for long."""


class GroupConfig(msgspec.Struct, frozen=True):
    min_session_timeout_ms: int = 6_000
    """`group.min.session.timeout.ms`"""
    max_session_timeout_ms: int = 1_800_000
    """`group.max.session.timeout.ms`"""
    max_size: int = 10_000
    """`group.max.size`. Kafka has no limit; here a leader's join response, which lists every member, stays sendable."""
    initial_rebalance_delay_ms: int = 0
    """`group.initial.rebalance.delay.ms`: 0 as in the server.properties that Kafka ships; 3000 saves
    rebalances where many members start together."""
    new_member_join_timeout_ms: int = 300_000
    """Kafka's constant: a new member whose client went away while its join was parked is dropped after this."""
    offset_metadata_characters_max: int = 4096
    """`offset.metadata.max.bytes`; Kafka counts characters in spite of the name, and so do we."""
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    """`offsets.retention.minutes`"""
    offsets_retention_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`"""

    @classmethod
    def from_broker_configs(cls, configs: Mapping[str, str]) -> GroupConfig:
        """Reads the keys that concern groups, by Kafka's names, and ignores others. Raises ConfigError."""
        values: dict[str, int] = {}
        for name, (field_name, unit_ms, low) in _KAFKA_NAMES.items():
            if name in configs:
                values[field_name] = _whole_number(name, configs[name], low) * unit_ms
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


def _whole_number(name: str, text: str, low: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = low - 1
    if number < low:
        raise ConfigError(f"{name} = {text!r}: expected a whole number of at least {low}")
    return number
