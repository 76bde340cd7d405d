"""How much clients have used of their quotas, and how long each has to wait for it.

A request is taken, and its client waits afterwards (KIP-219): it is told how long, and its connection is not read
meanwhile. Two are not taken as they are: a fetch of a client that is above its quota is answered without records, and
topics are not changed for one that is above its quota and knows the error that says so (KIP-599).
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
"""How much of a rate of bytes may be used at once, and how much a fetch is answered with, if a batch is not larger. It
is more than any client takes to come again after it has waited, so that nothing of a quota is lost."""

REQUEST_BURST_SECONDS: Final = 1.0
MUTATION_BURST_SECONDS: Final = 11.0
"""Kafka's: `controller.quota.window.num` windows of `controller.quota.window.size.seconds`."""

REQUEST_WAIT_SECONDS_MAX: Final = 1.0
"""Kafka's `quota.window.size.seconds`, beyond which nobody waits for a request that took long."""

WAIT_SECONDS_LEAST: Final = 0.002
"""Nobody waits for less: timers are no finer. What is owed is kept, so nothing is given away."""

PERCENT_OF_LOOP: Final = 100.0
"""A second of the loop, in which a node does everything, as `request_percentage` counts it."""

Shared = tuple[str | None, str | None]


class Limiter:
    def __init__(self, clock: Clock, quotas: Callable[[], Mapping[Entity, Values]]) -> None:
        """`quotas` returns those of the image as it is then."""
        self._clock = clock
        self._quotas = quotas
        self._policy = Policy({})
        self.is_on = False
        """Whether anybody has a quota: if not, nothing else is asked for."""
        self.produce: Buckets[Shared] = Buckets(BURST_SECONDS)
        self.fetch: Buckets[Shared] = Buckets(BURST_SECONDS)
        self.request: Buckets[Shared] = Buckets(REQUEST_BURST_SECONDS)
        self.mutation: Buckets[Shared] = Buckets(MUTATION_BURST_SECONDS)
        self.throttled = dict.fromkeys(Quotas._fields, 0)
        """Requests whose clients had to wait, by what for."""
        self.throttled_seconds = dict.fromkeys(Quotas._fields, 0.0)
        """How long they had to, together."""

    @property
    def policy(self) -> Policy:
        return self._policy

    def follow(self, delta: Delta) -> None:
        if delta.quotas:
            self.look()

    def look(self) -> None:
        """Looks again which quotas there are."""
        self._policy = Policy(self._quotas())
        self.is_on = self._policy.limits_clients
        if not self.is_on:
            for buckets in (self.produce, self.fetch, self.request, self.mutation):
                buckets.clear()

    def usage(self, user: str, client_id: str) -> Usage | None:
        """Returns what counts for a request of this client; None if no quota holds for it."""
        quotas = self._policy.of(user, client_id[:QUOTA_NAME_CHARACTERS_MAX])
        return None if quotas == NONE else Usage(self, quotas)

    def now(self) -> float:
        return self._clock.monotonic()


class Usage:
    """What one request uses of its client's quotas."""

    __slots__ = ("_limiter", "_quotas", "_wait_until", "began")

    def __init__(self, limiter: Limiter, quotas: Quotas) -> None:
        self._limiter = limiter
        self._quotas = quotas
        self._wait_until = 0.0
        self.began = 0.0
        """When the request came, by the clock that measures how long it takes."""

    @property
    def wait_seconds(self) -> float:
        """Returns how long the client has to wait from now on."""
        return max(self._wait_until - self._limiter.now(), 0.0) if self._wait_until else 0.0

    def produced(self, size: int) -> None:
        self._use("produce", self._quotas.produce, self._limiter.produce, size)

    def must_fetch_later(self) -> bool:
        """Whether the client has to wait for what it has fetched before."""
        return self._use("fetch", self._quotas.fetch, self._limiter.fetch, 0) > 0

    @property
    def fetch_bytes_max(self) -> int:
        """Returns how much a fetch may be answered with, if the first batch is not larger."""
        quota = self._quotas.fetch
        return LONG_MAX if quota is None else max(int(quota.rate * BURST_SECONDS), 1)

    def fetched(self, size: int) -> None:
        """What was sent is waited for by the next fetch."""
        quota = self._quotas.fetch
        if quota is not None:
            self._limiter.fetch.of(quota.shared_by, quota.rate, self._limiter.now()).held -= size

    def mutated(self, count: int, *, strict: bool) -> None:
        """Partitions were made or deleted, or are about to be. Raises KafkaError for a client that knows this error and
        has to wait; any other one waits afterwards."""
        quota, buckets = self._quotas.mutation, self._limiter.mutation
        if quota is None:
            return
        if strict:
            if self._use("mutation", quota, buckets, 0):
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            buckets.of(quota.shared_by, quota.rate, self._limiter.now()).held -= count
        else:
            self._use("mutation", quota, buckets, count)

    def took(self, seconds: float, *, waits: bool = True) -> None:
        """The loop was busy with it for so long. What is only known after it was answered does not make it wait."""
        quota, buckets = self._quotas.request, self._limiter.request
        if quota is None:
            return
        percent = seconds * PERCENT_OF_LOOP
        if waits:
            self._use("request", quota, buckets, percent, REQUEST_WAIT_SECONDS_MAX)
        else:
            buckets.of(quota.shared_by, quota.rate, self._limiter.now()).held -= percent

    def _use(
        self,
        name: str,
        quota: Quota | None,
        buckets: Buckets[Shared],
        amount: float,
        seconds_max: float = THROTTLE_SECONDS_MAX,
    ) -> float:
        """Returns how long to wait for it."""
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
