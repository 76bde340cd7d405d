"""Enforcement of client quotas: usage of each client, and how long it is throttled.

A request is handled, and its client is throttled afterwards (KIP-219): the response carries the throttle time, and the
connection is not read meanwhile. There are two exceptions: a fetch by a client above its quota returns no records, and
a client above its mutation quota that supports the error gets it instead of a change (KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from chronik.clock import Clock
from chronik.limits import QUOTA_NAME_CHARACTERS_MAX, THROTTLE_SECONDS_MAX
from chronik.metadata.delta import Delta
from chronik.metadata.security.quotas import Entity, Values
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.buckets import Buckets
from chronik.security.quotas.entities import LONG_MAX
from chronik.security.quotas.policy import NONE, Policy, Quota, Quotas

BURST_SECONDS: Final = 0.5
"""Burst of the byte-rate quotas, and the size of a fetch response (at least one batch), in seconds' worth of the rate.
It is longer than any client takes to return after throttling, so the full quota can be used."""

REQUEST_BURST_SECONDS: Final = 1.0
"""Burst of the request-time quota in seconds' worth of the rate."""
MUTATION_BURST_SECONDS: Final = 11.0
"""Burst of the mutation quota, as in Kafka: `controller.quota.window.num` windows of
`controller.quota.window.size.seconds`."""

REQUEST_WAIT_SECONDS_MAX: Final = 1.0
"""Longest throttle time for request time, as in Kafka (`quota.window.size.seconds`)."""

WAIT_SECONDS_LEAST: Final = 0.002
"""Shortest throttle time: timers are not more precise. Shorter delays stay in the bucket and add up."""

PERCENT_OF_LOOP: Final = 100.0
"""Units of `request_percentage` per second of event-loop time; a node handles all requests on one loop."""

Shared = tuple[str | None, str | None]
"""User and client id that share a bucket; None for either if it does not matter."""


class Limiter:
    """The quota usage of all clients of a node."""

    def __init__(self, clock: Clock, quotas: Callable[[], Mapping[Entity, Values]]) -> None:
        """`quotas` returns the quotas of the current metadata image."""
        self._clock = clock
        self._quotas = quotas
        self._policy = Policy({})
        self.is_on = False
        """Whether any client quota is set; if not, no request is metered."""
        self.produce: Buckets[Shared] = Buckets(BURST_SECONDS)
        self.fetch: Buckets[Shared] = Buckets(BURST_SECONDS)
        self.request: Buckets[Shared] = Buckets(REQUEST_BURST_SECONDS)
        self.mutation: Buckets[Shared] = Buckets(MUTATION_BURST_SECONDS)
        self.throttled = dict.fromkeys(Quotas._fields, 0)
        """Number of throttled requests by quota type."""
        self.throttled_seconds = dict.fromkeys(Quotas._fields, 0.0)
        """Sum of throttle times in seconds by quota type."""

    @property
    def policy(self) -> Policy:
        return self._policy

    def follow(self, delta: Delta) -> None:
        """Apply the quota changes of a metadata delta."""
        if delta.quotas:
            self.look()

    def look(self) -> None:
        """Reload the quotas."""
        self._policy = Policy(self._quotas())
        self.is_on = self._policy.limits_clients
        if not self.is_on:
            for buckets in (self.produce, self.fetch, self.request, self.mutation):
                buckets.clear()

    def usage(self, user: str, client_id: str) -> Usage | None:
        """Return the usage of a request by this client, or None if no quota applies to it."""
        quotas = self._policy.of(user, client_id[:QUOTA_NAME_CHARACTERS_MAX])
        return None if quotas == NONE else Usage(self, quotas)

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._clock.monotonic()


class Usage:
    """The quota usage of one request."""

    __slots__ = ("_limiter", "_quotas", "_wait_until", "began")

    def __init__(self, limiter: Limiter, quotas: Quotas) -> None:
        self._limiter = limiter
        self._quotas = quotas
        self._wait_until = 0.0
        self.began = 0.0
        """Start of the request on the clock that measures its event-loop time."""

    @property
    def wait_seconds(self) -> float:
        """Return for how many seconds the client is throttled from now on."""
        return max(self._wait_until - self._limiter.now(), 0.0) if self._wait_until else 0.0

    def produced(self, size: int) -> None:
        """Charge the produce quota for the bytes of a request."""
        self._charge("produce", self._quotas.produce, self._limiter.produce, size)

    def must_fetch_later(self) -> bool:
        """Return whether the client is throttled for its previous fetches."""
        return self._charge("fetch", self._quotas.fetch, self._limiter.fetch, 0) > 0

    @property
    def fetch_bytes_max(self) -> int:
        """Return the maximum bytes of a fetch response, unless the first batch is larger."""
        quota = self._quotas.fetch
        return LONG_MAX if quota is None else max(int(quota.rate * BURST_SECONDS), 1)

    def fetched(self, size: int) -> None:
        """Charge the fetch quota for the bytes of a response; the next fetch is throttled for them."""
        quota = self._quotas.fetch
        if quota is not None:
            self._limiter.fetch.of(quota.shared_by, quota.rate, self._limiter.now()).held -= size

    def mutated(self, count: int, *, strict: bool) -> None:
        """Charge the mutation quota for partitions that are created or deleted.

        Raises:
            KafkaError: The quota is exceeded, and `strict` says that the client supports this error. Other clients are
                throttled afterwards.
        """
        quota, buckets = self._quotas.mutation, self._limiter.mutation
        if quota is None:
            return
        if strict:
            if self._charge("mutation", quota, buckets, 0):
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            buckets.of(quota.shared_by, quota.rate, self._limiter.now()).held -= count
        else:
            self._charge("mutation", quota, buckets, count)

    def took(self, seconds: float, *, waits: bool = True) -> None:
        """Charge the request quota for event-loop time. With `waits` false, only later requests are throttled."""
        quota, buckets = self._quotas.request, self._limiter.request
        if quota is None:
            return
        percent = seconds * PERCENT_OF_LOOP
        if waits:
            self._charge("request", quota, buckets, percent, REQUEST_WAIT_SECONDS_MAX)
        else:
            buckets.of(quota.shared_by, quota.rate, self._limiter.now()).held -= percent

    def _charge(
        self,
        name: str,
        quota: Quota | None,
        buckets: Buckets[Shared],
        amount: float,
        seconds_max: float = THROTTLE_SECONDS_MAX,
    ) -> float:
        """Charge a bucket and return for how many seconds the client is throttled."""
        if quota is None:
            return 0.0
        now = self._limiter.now()
        bucket = buckets.of(quota.shared_by, quota.rate, now)
        bucket.held -= amount
        seconds = min(bucket.wait_seconds, seconds_max)
        if seconds < WAIT_SECONDS_LEAST:
            return 0.0
        self._limiter.throttled[name] += 1
        self._limiter.throttled_seconds[name] += seconds
        self._wait_until = max(self._wait_until, now + seconds)
        return seconds
