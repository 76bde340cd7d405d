"""How many connections an address may have, and how fast new ones may come: from an address, and in all.

What comes faster than all may come waits before it is read, for a second at most. What an address has too much of is
refused. As in Kafka, what is refused does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from chronik.addresses import normalized
from chronik.security.quotas.buckets import Bucket, Buckets
from chronik.security.quotas.entities import INT_MAX
from chronik.security.quotas.policy import Policy
from chronik.wording import counted

BURST_SECONDS: Final = 10.0
"""What may come at once: Kafka measures these rates over `quota.window.num` - 1 windows of a second. Clients open their
connections together."""

WAIT_SECONDS_MAX: Final = 1.0
"""Kafka's `quota.window.size.seconds`, beyond which no connection waits; what would have to is refused."""

PER_ADDRESS: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
CREATION_RATE: Final = "max.connection.creation.rate"

ALL: Final = ""


class Configs(Protocol):
    def broker(self, name: str) -> str: ...

    def broker_int(self, name: str) -> int: ...


class Verdict(NamedTuple):
    refusal: str = ""
    """Empty when it may come."""
    wait_seconds: float = 0.0


class ConnectionLimits:
    def __init__(self, configs: Configs, policy: Callable[[], Policy]) -> None:
        self._configs = configs
        self._policy = policy
        self._counts: dict[str, int] = {}
        self._rates: Buckets[str] = Buckets(BURST_SECONDS)
        self._overall: Buckets[str] = Buckets(BURST_SECONDS)

    def come(self, host: str, now: float) -> Verdict:
        """Counts a connection, unless it is refused."""
        address = normalized(host)
        verdict = self._verdict(address, now)
        if not verdict.refusal:
            self._counts[address] = self._counts.get(address, 0) + 1
        return verdict

    def left(self, host: str) -> None:
        address = normalized(host)
        count = self._counts.pop(address) - 1
        if count:
            self._counts[address] = count

    def _verdict(self, address: str, now: float) -> Verdict:
        count, most = self._counts.get(address, 0), self._most(address)
        if count >= most:
            return Verdict(f"{address} has {counted(count, 'connection')} ({PER_ADDRESS})")
        overall = self._configs.broker_int(CREATION_RATE)
        wait_seconds = 0.0
        if overall < INT_MAX:
            wait_seconds = self._used(self._overall, ALL, overall, now).wait_seconds
            if wait_seconds > WAIT_SECONDS_MAX:
                self._overall.of(ALL, max(overall, 1), now).held += 1
                return Verdict(f"more than {overall} connections come in a second ({CREATION_RATE})")
        rate = self._policy().connection_rate(address)
        if rate is not None and self._used(self._rates, address, rate, now).held < 0:
            self._rates.of(address, rate, now).held += 1
            if overall < INT_MAX:
                self._overall.of(ALL, max(overall, 1), now).held += 1
            return Verdict(f"more than {rate:g} connections come from {address} in a second (connection_creation_rate)")
        return Verdict("", wait_seconds)

    def _most(self, address: str) -> int:
        overrides = self._configs.broker(OVERRIDES)
        own = _parsed(overrides).get(address) if overrides else None
        return self._configs.broker_int(PER_ADDRESS) if own is None else own

    def _used(self, buckets: Buckets[str], key: str, rate: float, now: float) -> Bucket:
        bucket = buckets.of(key, max(rate, 1), now)
        bucket.held -= 1
        return bucket


@lru_cache(maxsize=8)
def _parsed(overrides: str) -> Mapping[str, int]:
    """Reads ADDRESS:COUNT, …, as `configs` has checked it."""
    found = {}
    for part in overrides.split(","):
        address, _, count = part.strip().rpartition(":")
        found[normalized(address.strip("[]"))] = int(count)
    return found
