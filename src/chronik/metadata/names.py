"""What a topic may be called, and which partition of a system topic a group belongs to: Kafka's own rules."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from chronik.limits import TOPIC_NAME_CHARACTERS_MAX

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The leaders of its partitions are the coordinators of the groups that belong to them."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
META_TOPIC: Final = "__meta"
"""Its leader is the leader of the metadata log itself."""

PIPELINES_TOPIC: Final = "__chronik_pipelines"
"""What drivers of pipelines tell of themselves: an ordinary topic, and no system topic."""

SYSTEM_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, META_TOPIC)
"""They hold no records of their own: those live in the metadata log, so every replica that is online is in sync."""

JAVA_HASHES_REMEMBERED: Final = 10_000
REMEMBERED_CHARACTERS_MAX: Final = 256
"""Each commit asks four times for the partition of its group, here and where it is applied. Names that are remembered
take a few megabytes at most; longer ones are no group that somebody has named."""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_fault(name: str) -> str | None:
    """Returns why `name` cannot be a topic's name; None when it can."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return "the topic name cannot be '.' or '..'"
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        return f"the topic name is longer than {TOPIC_NAME_CHARACTERS_MAX} characters"
    if not _LEGAL_NAME.fullmatch(name):
        return f"the topic name {name!r} has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None


def metric_name(name: str) -> str:
    """Returns the name in metrics: names that differ only in '.' and '_' share it, so Kafka allows only one of them."""
    return name.replace(".", "_")


def coordinator_partition(key: str, partition_count: int) -> int:
    """Returns the partition whose leader coordinates the group (or transaction) `key`, as Kafka computes it."""
    java_hash = _remembered_java_hash(key) if len(key) <= REMEMBERED_CHARACTERS_MAX else _java_hash(key)
    return java_hash % partition_count


def _java_hash(text: str) -> int:
    """Returns what Java's `hashCode` gives for a string, without its sign."""
    units = text.encode("utf-16-le", "surrogatepass")
    java_hash = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        java_hash = (java_hash * 31 + (high << 8 | low)) & 0xFFFFFFFF
    signed = java_hash - 2**32 if java_hash >= 2**31 else java_hash
    return 0 if signed == -(2**31) else abs(signed)


_remembered_java_hash = lru_cache(JAVA_HASHES_REMEMBERED)(_java_hash)
