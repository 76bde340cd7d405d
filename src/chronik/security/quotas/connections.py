"""Limits on connections: per address, and the rate of new connections per address and in total.

Connections above the total rate are delayed by up to a second. Connections above a limit of their address are rejected.
As in Kafka, rejected connections do not count.
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
"""Burst of new connections, in seconds' worth of the rate: Kafka measures these rates over `quota.window.num` - 1
windows of one second. Clients open their connections together."""

WAIT_SECONDS_MAX: Final = 1.0
"""Longest delay of a connection (Kafka's `quota.window.size.seconds`); one that would need more is rejected."""

PER_ADDRESS: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
CREATION_RATE: Final = "max.connection.creation.rate"

ALL: Final = ""


class Configs(Protocol):
    """Read access to the broker configs."""

    def broker(self, name: str) -> str: ...

    def broker_int(self, name: str) -> int: ...


class Verdict(NamedTuple):
    """The decision about a new connection."""

    refusal: str = ""
    """Why the connection is rejected; empty if it is not."""
    wait_seconds: float = 0.0


class ConnectionLimits:
    """The limits on client connections by address."""

    def __init__(self, configs: Configs, policy: Callable[[], Policy]) -> None:
        self._configs = configs
        self._policy = policy
        self._counts: dict[str, int] = {}
        self._rates: Buckets[str] = Buckets(BURST_SECONDS)
        self._overall: Buckets[str] = Buckets(BURST_SECONDS)

    def come(self, host: str, now: float) -> Verdict:
        """Decide about a new connection, and count it unless it is rejected."""
        address = normalized(host)
        verdict = self._verdict(address, now)
        if not verdict.refusal:
            self._counts[address] = self._counts.get(address, 0) + 1
        return verdict

    def left(self, host: str) -> None:
        """Count that a connection of the address was closed."""
        address = normalized(host)
        count = self._counts.pop(address) - 1
        if count:
            self._counts[address] = count

    def _verdict(self, address: str, now: float) -> Verdict:
        count, maximum = self._counts.get(address, 0), self._connections_max(address)
        if count >= maximum:
            return Verdict(f"{address} has {counted(count, 'connection')}, the maximum ({PER_ADDRESS})")
        overall = self._configs.broker_int(CREATION_RATE)
        wait_seconds = 0.0
        if overall < INT_MAX:
            wait_seconds = self._take_token(self._overall, ALL, overall, now).wait_seconds
            if wait_seconds > WAIT_SECONDS_MAX:
                self._overall.of(ALL, max(overall, 1), now).held += 1
                return Verdict(f"more than {overall} new connections per second ({CREATION_RATE})")
        rate = self._policy().connection_rate(address)
        if rate is not None and self._take_token(self._rates, address, rate, now).held < 0:
            self._rates.of(address, rate, now).held += 1
            if overall < INT_MAX:
                self._overall.of(ALL, max(overall, 1), now).held += 1
            return Verdict(f"more than {rate:g} new connections per second from {address} (connection_creation_rate)")
        return Verdict("", wait_seconds)

    def _connections_max(self, address: str) -> int:
        overrides = self._configs.broker(OVERRIDES)
        override = _parse_overrides(overrides).get(address) if overrides else None
        return self._configs.broker_int(PER_ADDRESS) if override is None else override

    def _take_token(self, buckets: Buckets[str], key: str, rate: float, now: float) -> Bucket:
        bucket = buckets.of(key, max(rate, 1), now)
        bucket.held -= 1
        return bucket


@lru_cache(maxsize=8)
def _parse_overrides(overrides: str) -> Mapping[str, int]:
    """Parse `ADDRESS:COUNT, …`, which `configs` has validated."""
    found = {}
    for part in overrides.split(","):
        address, _, count = part.strip().rpartition(":")
        found[normalized(address.strip("[]"))] = int(count)
    return found
