"""Replication throttling: Kafka's `leader.` and `follower.replication.throttled.rate`.

It applies to the partitions listed for this broker in `leader.` or `follower.replication.throttled.replicas`, and only
to followers that are not in sync: throttling the others would delay acks=all and remove them from the ISR.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chronik.broker.replica import Replica
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.configs.validators import LONG_MAX
from chronik.metadata.stores.store import MetadataStore

EVERY_REPLICA: Final = "*"

RECHECK_SECONDS: Final = 1.0
"""Maximum delay in seconds before a throttled partition is checked again, because the rate may change. Kafka also uses
1 s."""


class ReplicationThrottle:
    """A rate limit on the replication traffic of this node; `side` is its role, "leader" or "follower"."""

    def __init__(self, side: str, node_id: int, store: MetadataStore, configs: ConfigResolver, clock: Clock) -> None:
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._node_id = node_id
        self._store = store
        self._configs = configs
        self._clock = clock
        self._free_at = 0.0
        self._rate = 1
        """Rate limit in bytes per second from which `_free_at` was computed, the time until which copying is paused."""

    def delay(self, replica: Replica, follower: int) -> float:
        """Return for how many seconds, at most 1, to delay copying the partition to the broker `follower`."""
        rate = self._configs.broker_int(self._rate_key)
        if rate >= LONG_MAX or not self._is_throttled(replica, follower):
            return 0.0
        return min(self._compute_pause_seconds(rate), RECHECK_SECONDS)

    def record_copied_bytes(self, replica: Replica, follower: int, size: int) -> None:
        rate = self._configs.broker_int(self._rate_key)
        if rate < LONG_MAX and self._is_throttled(replica, follower):
            self._free_at = self._clock.monotonic() + self._compute_pause_seconds(rate) + size / self._rate

    def _compute_pause_seconds(self, rate: int) -> float:
        """Return the seconds for which copying must pause to stay below the current rate."""
        now, previous_rate = self._clock.monotonic(), self._rate
        self._rate = max(rate, 1)
        owed_seconds = max(self._free_at - now, 0.0) * previous_rate / self._rate
        self._free_at = now + owed_seconds
        return owed_seconds

    def _is_throttled(self, replica: Replica, follower: int) -> bool:
        topic = self._store.image.all_topics_by_id.get(replica.topic_id)
        if topic is None or follower in topic.partitions[replica.index].isr:
            return False
        listed = _parse_throttled_replicas(topic.configs, self._replicas_key)
        return EVERY_REPLICA in listed or f"{replica.index}:{self._node_id}" in listed


def _parse_throttled_replicas(configs: Mapping[str, str], key: str) -> frozenset[str]:
    return frozenset(part.strip() for part in configs.get(key, "").split(",") if part.strip())
