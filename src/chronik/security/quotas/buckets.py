"""Buckets: what somebody may still use of a rate.

A bucket fills at its rate, up to some seconds' worth, and may be overdrawn: whoever finds it overdrawn waits until it
is not. So a batch that is larger than the bucket passes, and is paid for afterwards. Over any time a bucket lets
through what its rate allows, what it held at the start, and one request more: with half a second's worth and batches of
up to a second's worth that is 7.5 % above the rate over 20 s. Kafka's windows (11 of a second each) would let ten
seconds' worth through at once.

A bucket that is full again says nothing that a new one would not, and is forgotten.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from chronik.limits import QUOTA_BUCKETS_MAX

K = TypeVar("K", bound=Hashable)

FORGOTTEN_AT_ONCE: Final = 2
"""Buckets that are looked at, and forgotten if they are full, whenever one is used: more than can be made."""


class Bucket(msgspec.Struct, gc=False):
    held: float
    """Negative when it is overdrawn."""
    filled_at: float
    rate: float
    seconds_max: float

    def fill(self, rate: float, now: float) -> None:
        """What was used stays used when the rate changes; it is only paid back sooner, or later."""
        self.held = min(self.held + max(now - self.filled_at, 0.0) * self.rate, rate * self.seconds_max)
        self.filled_at = now
        self.rate = rate

    @property
    def wait_seconds(self) -> float:
        """Returns the time until it is not overdrawn any more, from when it was last filled."""
        return -self.held / self.rate if self.held < 0 else 0.0

    def is_full(self, now: float) -> bool:
        return self.held + (now - self.filled_at) * self.rate >= self.rate * self.seconds_max


class Buckets(Generic[K]):
    """Those of one kind of quota, the one that was used last at the end."""

    def __init__(self, seconds_max: float, count_max: int = QUOTA_BUCKETS_MAX) -> None:
        """Each holds what comes in `seconds_max`."""
        self._seconds_max = seconds_max
        self._count_max = count_max
        self._buckets: dict[K, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, key: K, rate: float, now: float) -> Bucket:
        """Returns the bucket, filled up to now."""
        bucket = self._buckets.pop(key, None)
        self._forget(now)
        if bucket is None:
            bucket = Bucket(rate * self._seconds_max, now, rate, self._seconds_max)
        else:
            bucket.fill(rate, now)
        self._buckets[key] = bucket
        return bucket

    def clear(self) -> None:
        self._buckets.clear()

    def _forget(self, now: float) -> None:
        """Forgets some that have not been used for longest, if they are full or there are too many."""
        for _ in range(FORGOTTEN_AT_ONCE):
            oldest = next(iter(self._buckets), None)
            if oldest is None:
                return
            if len(self._buckets) < self._count_max and not self._buckets[oldest].is_full(now):
                # It is looked at again when the others were: one that is far overdrawn must not be in their way.
                self._buckets[oldest] = self._buckets.pop(oldest)
                continue
            del self._buckets[oldest]
