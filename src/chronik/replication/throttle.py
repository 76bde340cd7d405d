"""How fast replicas that are being moved may be copied: Kafka's `leader.` and `follower.replication.throttled.rate`.

Only those named in `leader.` or `follower.replication.throttled.replicas` are held back; who is in sync already is
usually not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chronik.broker.replica import Replica
from chronik.clock import Clock
from chronik.configs.keys import LONG_MAX
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.store import MetadataStore

EVERY_REPLICA: Final = "*"


class ReplicationThrottle:
    """`side` is "leader" or "follower"."""

    def __init__(self, side: str, store: MetadataStore, configs: ConfigResolver, clock: Clock) -> None:
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._store = store
        self._configs = configs
        self._clock = clock
        self._free_at = 0.0

    def delay(self, replica: Replica, broker_id: int) -> float:
        """Seconds until more may be copied of the replica that is on `broker_id`."""
        rate = self._configs.broker_int(self._rate_key)
        if rate >= LONG_MAX or not self._is_throttled(replica, broker_id):
            return 0.0
        return max(self._free_at - self._clock.monotonic(), 0.0)

    def copied(self, replica: Replica, broker_id: int, size: int) -> None:
        rate = self._configs.broker_int(self._rate_key)
        if rate < LONG_MAX and self._is_throttled(replica, broker_id):
            self._free_at = max(self._free_at, self._clock.monotonic()) + size / max(rate, 1)

    def _is_throttled(self, replica: Replica, broker_id: int) -> bool:
        topic = self._store.image.topics_by_id.get(replica.topic_id)
        if topic is None:
            return False
        named = _named(topic.configs, self._replicas_key)
        return EVERY_REPLICA in named or f"{replica.index}:{broker_id}" in named


def _named(configs: Mapping[str, str], key: str) -> frozenset[str]:
    return frozenset(part.strip() for part in configs.get(key, "").split(",") if part.strip())
