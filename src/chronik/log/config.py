"""Topic configs that determine how partitions are stored, with Kafka's names and defaults."""

from __future__ import annotations

import msgspec

LONG_MAX = 2**63 - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class LogConfig(msgspec.Struct, frozen=True):
    """The topic configs that determine how a partition's log is stored."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    """Retention time of records in milliseconds; -1 for unlimited."""
    retention_bytes: int = -1
    """Maximum size of a partition in bytes; -1 for unlimited."""
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = DAY_MS
    compaction_keys_bytes_max: int = 128 << 20
    """Maximum size in bytes of the offset map of a compaction. Further keys are compacted by the next compaction."""

    @property
    def is_compaction_enabled(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_retention_enabled(self) -> bool:
        return "delete" in self.cleanup_policy
