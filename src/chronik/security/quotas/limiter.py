"""Enforcement of client quotas: usage of each client, and how long it is throttled.

A request is handled, and its client is throttled afterwards (KIP-219): the response carries the throttle time, and the
node does not read from the connection during that time. There are two exceptions: a fetch by a client above its quota
returns no records, and a request above the mutation quota is rejected if the client supports the error (KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from chronik.clock import Clock
from chronik.limits import QUOTA_NAME_CHARACTERS_MAX, THROTTLE_SECONDS_MAX
from chronik.metadata.delta import Delta
from chronik.metadata.records import Entity, QuotaValues
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.entities import LONG_MAX
from chronik.security.quotas.policy import NO_QUOTAS, ClientQuotas, QuotaPolicy, RateQuota
from chronik.security.quotas.token_buckets import TokenBuckets

BURST_SECONDS: Final = 0.5
"""Burst capacity of the byte-rate quotas in seconds of the rate, which also limits the size of a fetch response. It
exceeds the time in which a throttled client sends its next request, so that the client can use its full quota."""

REQUEST_BURST_SECONDS: Final = 1.0
"""Burst capacity of the request-time quota: the quota that accrues in this number of seconds."""
MUTATION_BURST_SECONDS: Final = 11.0
"""Burst capacity of the mutation quota, in seconds of the rate: Kafka's `controller.quota.window.num` windows of
`controller.quota.window.size.seconds`."""

REQUEST_THROTTLE_SECONDS_MAX: Final = 1.0
"""Maximum throttle time for the request-time quota in seconds (Kafka's `quota.window.size.seconds`)."""

THROTTLE_SECONDS_MIN: Final = 0.002
"""Minimum throttle time in seconds, limited by timer precision. Shorter delays accumulate in the token bucket."""

PERCENT_PER_LOOP_SECOND: Final = 100.0
"""Number of percentage points of `request_percentage` in a second of event-loop time. One loop handles all requests."""

BucketKey = tuple[str | None, str | None]
"""User and client id that share a token bucket; None for either if the quota does not depend on it."""


class QuotaLimiter:
    """The client quotas of a node, with a token bucket for each client to which a quota applies."""

    def __init__(self, clock: Clock, quotas: Callable[[], Mapping[Entity, QuotaValues]]) -> None:
        """Create a limiter; `quotas` returns the configured quotas from the current metadata image."""
        self._clock = clock
        self._quotas = quotas
        self._policy = QuotaPolicy({})
        self.is_active = False
        """Whether any client quota is configured. If none is, requests are not measured."""
        self.produce: TokenBuckets[BucketKey] = TokenBuckets(BURST_SECONDS)
        self.fetch: TokenBuckets[BucketKey] = TokenBuckets(BURST_SECONDS)
        self.request: TokenBuckets[BucketKey] = TokenBuckets(REQUEST_BURST_SECONDS)
        self.mutation: TokenBuckets[BucketKey] = TokenBuckets(MUTATION_BURST_SECONDS)
        self.throttled_counts = dict.fromkeys(ClientQuotas._fields, 0)
        """Number of throttled requests by quota type."""
        self.throttled_seconds = dict.fromkeys(ClientQuotas._fields, 0.0)
        """Total throttle time in seconds, by quota type."""

    @property
    def policy(self) -> QuotaPolicy:
        return self._policy

    def apply_delta(self, delta: Delta) -> None:
        """Apply the quota changes of a metadata delta."""
        if delta.quotas:
            self.reload()

    def reload(self) -> None:
        """Reload the client quotas from the metadata image."""
        self._policy = QuotaPolicy(self._quotas())
        self.is_active = self._policy.limits_clients
        if not self.is_active:
            for buckets in (self.produce, self.fetch, self.request, self.mutation):
                buckets.clear()

    def usage(self, user: str, client_id: str) -> QuotaUsage | None:
        """Return the quota usage for a request of this client, or None if no quota applies."""
        quotas = self._policy.get_client_quotas(user, client_id[:QUOTA_NAME_CHARACTERS_MAX])
        return None if quotas == NO_QUOTAS else QuotaUsage(self, quotas)

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._clock.monotonic()


class QuotaUsage:
    """The quotas that apply to one request, and the throttle time that the request causes."""

    __slots__ = ("_limiter", "_quotas", "_wait_until", "started_at")

    def __init__(self, limiter: QuotaLimiter, quotas: ClientQuotas) -> None:
        self._limiter = limiter
        self._quotas = quotas
        self._wait_until = 0.0
        self.started_at = 0.0
        """Start time of the request, on the clock that measures its event-loop time."""

    @property
    def throttle_seconds(self) -> float:
        """Return the client's remaining throttle time in seconds."""
        return max(self._wait_until - self._limiter.now(), 0.0) if self._wait_until else 0.0

    def charge_produce(self, size: int) -> None:
        """Charge the produce quota for the bytes of a request."""
        self._charge_bucket("produce", self._quotas.produce, self._limiter.produce, size)

    def is_fetch_throttled(self) -> bool:
        """Return whether the client is throttled because of its previous fetches."""
        return self._charge_bucket("fetch", self._quotas.fetch, self._limiter.fetch, 0) > 0

    @property
    def fetch_bytes_max(self) -> int:
        """Return the maximum size of a fetch response in bytes. The first batch is returned even if it is larger."""
        quota = self._quotas.fetch
        return LONG_MAX if quota is None else max(int(quota.rate * BURST_SECONDS), 1)

    def charge_fetch(self, size: int) -> None:
        """Charge the fetch quota for the bytes of a response. Throttling applies to the next fetch."""
        quota = self._quotas.fetch
        if quota is not None:
            self._limiter.fetch.get(quota.bucket_key, quota.rate, self._limiter.now()).tokens -= size

    def charge_mutation(self, count: int, *, strict: bool) -> None:
        """Charge the mutation quota for partitions that are created or deleted.

        Raises:
            KafkaError: The quota is exceeded, and the client supports this error (`strict`). Other clients are
                throttled afterwards.
        """
        quota, buckets = self._quotas.mutation, self._limiter.mutation
        if quota is None:
            return
        if strict:
            if self._charge_bucket("mutation", quota, buckets, 0):
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            buckets.get(quota.bucket_key, quota.rate, self._limiter.now()).tokens -= count
        else:
            self._charge_bucket("mutation", quota, buckets, count)

    def charge_request_time(self, seconds: float, *, may_throttle: bool = True) -> None:
        """Charge the request-time quota for event-loop time; without `may_throttle`, throttle only later requests."""
        quota, buckets = self._quotas.request, self._limiter.request
        if quota is None:
            return
        percent = seconds * PERCENT_PER_LOOP_SECOND
        if may_throttle:
            self._charge_bucket("request", quota, buckets, percent, REQUEST_THROTTLE_SECONDS_MAX)
        else:
            buckets.get(quota.bucket_key, quota.rate, self._limiter.now()).tokens -= percent

    def _charge_bucket(
        self,
        name: str,
        quota: RateQuota | None,
        buckets: TokenBuckets[BucketKey],
        amount: float,
        seconds_max: float = THROTTLE_SECONDS_MAX,
    ) -> float:
        """Charge a token bucket and return the resulting throttle time in seconds."""
        if quota is None:
            return 0.0
        now = self._limiter.now()
        bucket = buckets.get(quota.bucket_key, quota.rate, now)
        bucket.tokens -= amount
        seconds = min(bucket.throttle_seconds, seconds_max)
        if seconds < THROTTLE_SECONDS_MIN:
            return 0.0
        self._limiter.throttled_counts[name] += 1
        self._limiter.throttled_seconds[name] += seconds
        self._wait_until = max(self._wait_until, now + seconds)
        return seconds
