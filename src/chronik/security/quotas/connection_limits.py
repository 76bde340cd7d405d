"""Limits on connections: per address, and the rate of new connections per address and in total.

Connections above the total rate are delayed by up to a second. Connections above a limit of their address are rejected.
As in Kafka, rejected connections do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from chronik.ip_addresses import normalize_host
from chronik.security.quotas.entities import INT_MAX
from chronik.security.quotas.policy import QuotaPolicy
from chronik.security.quotas.token_buckets import TokenBucket, TokenBuckets
from chronik.wording import pluralize

BURST_SECONDS: Final = 10.0
"""Burst capacity for new connections, in seconds of the rate: many clients may connect simultaneously. Kafka measures
these rates over `quota.window.num` - 1 windows of one second."""

DELAY_SECONDS_MAX: Final = 1.0
"""Maximum delay of a new connection in seconds (Kafka's `quota.window.size.seconds`). A connection that would need a
longer delay is rejected."""

CONNECTIONS_PER_ADDRESS: Final = "max.connections.per.ip"
CONNECTIONS_PER_ADDRESS_OVERRIDES: Final = "max.connections.per.ip.overrides"
CREATION_RATE: Final = "max.connection.creation.rate"

ALL_ADDRESSES: Final = ""


class BrokerConfigReader(Protocol):
    """Read access to the broker configs."""

    def broker_value(self, name: str) -> str: ...

    def broker_int(self, name: str) -> int: ...


class ConnectionDecision(NamedTuple):
    """The decision to accept, delay or reject a new connection."""

    rejection_reason: str = ""
    """Reason for the rejection; empty if the connection is accepted."""
    throttle_seconds: float = 0.0


class ConnectionLimits:
    """Limits on the number and rate of client connections per IP address."""

    def __init__(self, configs: BrokerConfigReader, policy: Callable[[], QuotaPolicy]) -> None:
        self._configs = configs
        self._policy = policy
        self._counts: dict[str, int] = {}
        self._rates: TokenBuckets[str] = TokenBuckets(BURST_SECONDS)
        self._overall: TokenBuckets[str] = TokenBuckets(BURST_SECONDS)

    def accept(self, host: str, now: float) -> ConnectionDecision:
        """Accept, delay or reject a new connection, and count it unless it is rejected."""
        address = normalize_host(host)
        verdict = self._evaluate_connection(address, now)
        if not verdict.rejection_reason:
            self._counts[address] = self._counts.get(address, 0) + 1
        return verdict

    def release(self, host: str) -> None:
        """Decrement the connection count of the address after a connection was closed."""
        address = normalize_host(host)
        count = self._counts.pop(address) - 1
        if count:
            self._counts[address] = count

    def _evaluate_connection(self, address: str, now: float) -> ConnectionDecision:
        count, maximum = self._counts.get(address, 0), self._get_connections_max(address)
        if count >= maximum:
            return ConnectionDecision(
                f"{address} has {pluralize(count, 'connection')}, the maximum ({CONNECTIONS_PER_ADDRESS})"
            )
        overall = self._configs.broker_int(CREATION_RATE)
        wait_seconds = 0.0
        if overall < INT_MAX:
            wait_seconds = self._take_token(self._overall, ALL_ADDRESSES, overall, now).throttle_seconds
            if wait_seconds > DELAY_SECONDS_MAX:
                self._overall.get(ALL_ADDRESSES, max(overall, 1), now).tokens += 1
                return ConnectionDecision(f"more than {overall} new connections per second ({CREATION_RATE})")
        rate = self._policy().connection_rate(address)
        if rate is not None and self._take_token(self._rates, address, rate, now).tokens < 0:
            self._rates.get(address, rate, now).tokens += 1
            if overall < INT_MAX:
                self._overall.get(ALL_ADDRESSES, max(overall, 1), now).tokens += 1
            return ConnectionDecision(
                f"more than {rate:g} new connections per second from {address} (connection_creation_rate)"
            )
        return ConnectionDecision("", wait_seconds)

    def _get_connections_max(self, address: str) -> int:
        overrides = self._configs.broker_value(CONNECTIONS_PER_ADDRESS_OVERRIDES)
        override = _parse_overrides(overrides).get(address) if overrides else None
        return self._configs.broker_int(CONNECTIONS_PER_ADDRESS) if override is None else override

    def _take_token(self, buckets: TokenBuckets[str], key: str, rate: float, now: float) -> TokenBucket:
        bucket = buckets.get(key, max(rate, 1), now)
        bucket.tokens -= 1
        return bucket


@lru_cache(maxsize=8)
def _parse_overrides(overrides: str) -> Mapping[str, int]:
    """Parse `ADDRESS:COUNT, …`, which `configs` has validated."""
    found = {}
    for part in overrides.split(","):
        address, _, count = part.strip().rpartition(":")
        found[normalize_host(address.strip("[]"))] = int(count)
    return found
