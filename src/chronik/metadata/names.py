"""Topic name rules, system topics, and the mapping of groups and transactional ids to coordinator partitions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from chronik.limits import TOPIC_NAME_CHARACTERS_MAX

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The system topic whose partition leaders are the group coordinators."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""The system topic whose partition leaders are the transaction coordinators."""
META_TOPIC: Final = "__meta"
"""The system topic whose leader is the leader of the metadata log."""

PIPELINES_TOPIC: Final = "__chronik_pipelines"
"""The topic in which pipeline drivers report their progress. Unlike the system topics, it has ordinary records."""

SYSTEM_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, META_TOPIC)
"""The system topics.

Their state is in the metadata log, so they have no records and every online replica is in sync.
"""

JAVA_HASHES_CACHED: Final = 10_000
CACHED_KEY_CHARACTERS_MAX: Final = 256
"""The maximum length of a group id or transactional id whose hash is cached, in characters.

Each offset commit looks up the partition of its group four times.
"""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def find_topic_name_error(name: str) -> str | None:
    """Return the reason why a topic name is invalid, or None if it is valid.

    The message becomes part of command results and thus of the state hash: its wording must not change.
    """
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return "the topic name cannot be '.' or '..'"
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        return f"the topic name is longer than {TOPIC_NAME_CHARACTERS_MAX} characters"
    if not _LEGAL_NAME.fullmatch(name):
        return f"the topic name {name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None


def format_topic_metric_name(name: str) -> str:
    """Return the topic's name in metrics, with '_' instead of '.'.

    Topics that differ only in '.' and '_' share it, so Kafka rejects the second one.
    """
    return name.replace(".", "_")


def compute_coordinator_partition(key: str, partition_count: int) -> int:
    """Return the system topic's partition that coordinates a group or transactional id, computed as in Kafka."""
    java_hash = _cached_java_hash(key) if len(key) <= CACHED_KEY_CHARACTERS_MAX else _compute_java_hash(key)
    return java_hash % partition_count


def _compute_java_hash(text: str) -> int:
    """Return the absolute value of Java's `String.hashCode`."""
    units = text.encode("utf-16-le", "surrogatepass")
    java_hash = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        java_hash = (java_hash * 31 + (high << 8 | low)) & 0xFFFFFFFF
    signed = java_hash - 2**32 if java_hash >= 2**31 else java_hash
    return 0 if signed == -(2**31) else abs(signed)


_cached_java_hash = lru_cache(JAVA_HASHES_CACHED)(_compute_java_hash)
