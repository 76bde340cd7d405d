"""How fast replicas that are being moved may be copied: Kafka's `leader.` and `follower.replication.throttled.rate`.

It holds only for partitions that are named for this broker in `leader.` or `follower.replication.throttled.replicas`,
and only for followers that are not in sync: slowing down the others would delay acks=all, and drop them from the ISR.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chronik.broker.replica import Replica
from chronik.clock import Clock
from chronik.configs.checks import LONG_MAX
from chronik.configs.resolver import ConfigResolver
from chronik.metadata.stores.store import MetadataStore

EVERY_REPLICA: Final = "*"

LOOK_AGAIN_SECONDS: Final = 1.0
"""Whoever waits asks again after this time at the latest: meanwhile operators may have allowed more. Kafka, too, looks
once in a second."""


class ReplicationThrottle:
    """`side` is "leader" or "follower": this node's part in the copying."""

    def __init__(self, side: str, node_id: int, store: MetadataStore, configs: ConfigResolver, clock: Clock) -> None:
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        self._node_id = node_id
        self._store = store
        self._configs = configs
        self._clock = clock
        self._free_at = 0.0
        self._rate = 1
        """At which it is free then."""

    def delay(self, replica: Replica, follower: int) -> float:
        """Returns the seconds until more of the partition may be copied to the broker `follower`, or until it is to be
        asked again."""
        rate = self._configs.broker_int(self._rate_key)
        if rate >= LONG_MAX or not self._is_throttled(replica, follower):
            return 0.0
        return min(self._owed_seconds(rate), LOOK_AGAIN_SECONDS)

    def copied(self, replica: Replica, follower: int, size: int) -> None:
        rate = self._configs.broker_int(self._rate_key)
        if rate < LONG_MAX and self._is_throttled(replica, follower):
            self._free_at = self._clock.monotonic() + self._owed_seconds(rate) + size / self._rate

    def _owed_seconds(self, rate: int) -> float:
        """What was copied and is not paid for: so many bytes, which take another time when the rate is another."""
        now, before = self._clock.monotonic(), self._rate
        self._rate = max(rate, 1)
        owed = max(self._free_at - now, 0.0) * before / self._rate
        self._free_at = now + owed
        return owed

    def _is_throttled(self, replica: Replica, follower: int) -> bool:
        topic = self._store.image.held_topics.get(replica.topic_id)
        if topic is None or follower in topic.partitions[replica.index].isr:
            return False
        named = _named(topic.configs, self._replicas_key)
        return EVERY_REPLICA in named or f"{replica.index}:{self._node_id}" in named


def _named(configs: Mapping[str, str], key: str) -> frozenset[str]:
    return frozenset(part.strip() for part in configs.get(key, "").split(",") if part.strip())
