"""Token buckets that measure how much of a rate quota is available.

A bucket fills at its rate, up to a capacity of some seconds of the rate, and may be overdrawn: the client is then
throttled until the balance is positive again. A batch larger than the bucket is therefore accepted, and the client is
throttled afterwards. Over any period, a bucket allows the rate, its initial tokens and one more request: with a
capacity of half a second and batches of up to one second of the rate, that is 7.5 % above the rate over 20 s. Kafka's
sliding windows (11 of one second) would allow a burst of ten seconds.

A full bucket is equivalent to a new one and is discarded.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from chronik.limits import TRACKED_QUOTA_ENTITIES_MAX
from chronik.request_reply import ConnectedClient

K = TypeVar("K", bound=Hashable)

EXPIRED_PER_USE: Final = 2
"""Number of least recently used buckets to check per access. Full buckets are discarded; since an access creates at
most one bucket, idle buckets do not accumulate."""

ClientKey = tuple[str, str]
"""A client's principal and address."""


class TokenBucket(msgspec.Struct, gc=False):
    """A token bucket, which limits an average rate and allows bursts up to its capacity."""

    tokens: float
    """Number of available tokens, which is negative if more tokens were taken than had accrued."""
    filled_at: float
    rate: float
    seconds_max: float

    def fill(self, rate: float, now: float) -> None:
        """Add the tokens accrued since the last call, then change the rate. A new rate does not restore used tokens."""
        self.tokens = min(self.tokens + max(now - self.filled_at, 0.0) * self.rate, rate * self.seconds_max)
        self.filled_at = now
        self.rate = rate

    @property
    def throttle_seconds(self) -> float:
        """Return the time in seconds from the last fill until the number of tokens is no longer negative."""
        return -self.tokens / self.rate if self.tokens < 0 else 0.0

    def is_full(self, now: float) -> bool:
        """Return whether the bucket has reached its capacity."""
        return self.tokens + (now - self.filled_at) * self.rate >= self.rate * self.seconds_max


class TokenBuckets(Generic[K]):
    """The token buckets for one type of quota, ordered from least to most recently used."""

    def __init__(self, seconds_max: float, count_max: int = TRACKED_QUOTA_ENTITIES_MAX) -> None:
        """Create buckets, each with a capacity of `seconds_max` seconds of its rate."""
        self._seconds_max = seconds_max
        self._count_max = count_max
        self._buckets: dict[K, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def get(self, key: K, rate: float, now: float) -> TokenBucket:
        """Return the token bucket of the key, filled with the tokens accrued until now."""
        bucket = self._buckets.pop(key, None)
        self._evict_unused_buckets(now)
        if bucket is None:
            bucket = TokenBucket(rate * self._seconds_max, now, rate, self._seconds_max)
        else:
            bucket.fill(rate, now)
        self._buckets[key] = bucket
        return bucket

    def clear(self) -> None:
        self._buckets.clear()

    def _evict_unused_buckets(self, now: float) -> None:
        """Discard some of the least recently used buckets if they are full or the maximum number is reached."""
        for _ in range(EXPIRED_PER_USE):
            oldest = next(iter(self._buckets), None)
            if oldest is None:
                return
            if len(self._buckets) < self._count_max and not self._buckets[oldest].is_full(now):
                # Moved to the end, so a bucket that is far overdrawn does not block the others from being checked.
                self._buckets[oldest] = self._buckets.pop(oldest)
                continue
            del self._buckets[oldest]


def client_key(peer: ConnectedClient) -> ClientKey:
    return str(peer.principal), peer.host


class ClientRateLimiter:
    """A per-client rate limit on the creation of ids, with one token bucket per client.

    A client may create up to `count` ids in a burst, and its bucket refills within `seconds`. If ids expire after
    `seconds`, it never has more than twice `count`.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self._rate = count / seconds
        self._buckets: TokenBuckets[ClientKey] = TokenBuckets(seconds)

    def try_acquire(self, client: ClientKey, now: float) -> bool:
        """Take one token. Return False if the client's bucket is empty."""
        bucket = self._buckets.get(client, self._rate, now)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
