"""Rate quotas in simulated time: what a client gets that tries to exceed its rate."""

from __future__ import annotations

import random

import pytest

from chronik.clock import ManualClock
from chronik.limits import MIB, THROTTLE_SECONDS_MAX, TRACKED_QUOTA_ENTITIES_MAX
from chronik.metadata.records import Entity, QuotaValues
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.limiter import BURST_SECONDS, MUTATION_BURST_SECONDS, QuotaLimiter, QuotaUsage
from chronik.security.quotas.token_buckets import TokenBucket, TokenBuckets

RATE = 1_000_000
SECONDS = 20.0


class Client:
    """A client that sends as soon as it may, slightly late after each throttling."""

    def __init__(self, limiter: QuotaLimiter, clock: ManualClock, client_id: str = "c") -> None:
        self.limiter, self.clock, self.client_id = limiter, clock, client_id

    def usage(self) -> QuotaUsage:
        usage = self.limiter.usage("alice", self.client_id)
        assert usage is not None
        return usage

    def produce(self, size: int) -> float:
        usage = self.usage()
        usage.charge_produce(size)
        return usage.throttle_seconds


def limiter_of(quotas: dict[Entity, QuotaValues], clock: ManualClock) -> QuotaLimiter:
    limiter = QuotaLimiter(clock, lambda: quotas)
    limiter.reload()
    return limiter


def with_rates(clock: ManualClock, **rates: float) -> QuotaLimiter:
    return limiter_of({(("user", "alice"),): rates}, clock)


@pytest.mark.parametrize("size", [100, 16_384, 300_000, 1_000_000, MIB])
@pytest.mark.parametrize("late_seconds", [0.0002, 0.003, 0.05])
def test_producer_gets_its_rate_within_ten_percent(size: int, late_seconds: float) -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=RATE), clock)
    sent = 0
    while clock.monotonic() < SECONDS:
        wait = client.produce(size)
        sent += size
        clock.advance(wait + late_seconds)
    could_send = SECONDS / late_seconds * size
    assert sent <= 1.1 * RATE * SECONDS
    assert sent >= 0.9 * min(RATE * SECONDS, could_send)


@pytest.mark.parametrize("batch", [1000, 200_000, 1_000_000])
@pytest.mark.parametrize("late_seconds", [0.0005, 0.02])
def test_consumer_gets_its_rate_within_ten_percent(batch: int, late_seconds: float) -> None:
    """A response contains as many batches as fit, but at least one."""
    clock = ManualClock()
    client = Client(with_rates(clock, consumer_byte_rate=RATE), clock)
    received = answers = 0
    while clock.monotonic() < SECONDS:
        usage = client.usage()
        if usage.is_fetch_throttled():
            assert usage.throttle_seconds > 0
            clock.advance(usage.throttle_seconds)
        else:
            size = max(usage.fetch_bytes_max // batch, 1) * batch
            usage.charge_fetch(size)
            assert usage.throttle_seconds == 0, "the next fetch is throttled for these bytes"
            received += size
            answers += 1
        clock.advance(late_seconds)
    assert answers > 10
    assert 0.9 * RATE * SECONDS <= received <= 1.1 * RATE * SECONDS


@pytest.mark.parametrize("seed", range(20))
def test_rate_is_bounded_for_irregular_traffic(seed: int) -> None:
    """Over any 20 s: the rate, the bucket's content, and one more request per connection."""
    rng = random.Random(seed)
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=RATE), clock)
    connections = rng.choice([1, 2])
    free_at = [0.0] * connections
    sent: list[tuple[float, int]] = []
    while clock.monotonic() < 100:
        for number in range(connections):
            if free_at[number] <= clock.monotonic():
                size = rng.choice([10, 1000, 500_000, MIB])
                free_at[number] = clock.monotonic() + client.produce(size)
                sent.append((clock.monotonic(), size))
        clock.advance(rng.choice([0.001, 0.01, 0.3, 3.0] if rng.random() < 0.01 else [0.001, 0.01]))
    for start, _ in sent:
        within = sum(size for at, size in sent if start <= at < start + SECONDS)
        assert within <= RATE * SECONDS + BURST_SECONDS * RATE + connections * MIB


def test_client_below_its_rate_is_never_throttled() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=RATE), clock)
    for _ in range(1000):
        assert client.produce(90_000) == 0
        clock.advance(0.1)


def test_early_timer_does_not_throttle_again() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=RATE), clock)
    clock.advance(client.produce(2 * RATE) - 0.001)
    assert client.produce(0) == 0
    assert client.produce(2000) == pytest.approx(0.003), "the debt is kept"


def test_clients_of_one_user_share_its_rate() -> None:
    clock = ManualClock()
    limiter = with_rates(clock, producer_byte_rate=RATE)
    assert Client(limiter, clock, "one").produce(RATE) == pytest.approx(1 - BURST_SECONDS)
    assert Client(limiter, clock, "two").produce(RATE) == pytest.approx(2 - BURST_SECONDS)
    assert limiter.usage("bob", "one") is None


def test_changed_rate_applies_to_existing_debt() -> None:
    clock = ManualClock()
    quotas: dict[Entity, QuotaValues] = {(("user", "alice"),): {"producer_byte_rate": RATE}}
    limiter = limiter_of(quotas, clock)
    client = Client(limiter, clock)
    assert client.produce(int(RATE * (10 + BURST_SECONDS))) == pytest.approx(10)
    quotas[(("user", "alice"),)] = {"producer_byte_rate": 10 * RATE}
    limiter.reload()
    assert client.produce(0) == pytest.approx(1)


def test_throttle_time_is_limited() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=1), clock)
    assert client.produce(int(THROTTLE_SECONDS_MAX)) == pytest.approx(THROTTLE_SECONDS_MAX - BURST_SECONDS)
    assert client.produce(1) == THROTTLE_SECONDS_MAX


def test_request_quota_throttles_one_second_at_most() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, request_percentage=10), clock)
    used_seconds = 0.0
    while clock.monotonic() < 60:
        usage = client.usage()
        usage.charge_request_time(0.02)
        used_seconds += 0.02
        assert usage.throttle_seconds <= 1.0
        clock.advance(0.02 + usage.throttle_seconds)
    assert used_seconds == pytest.approx(6.0, rel=0.1)


def test_time_used_after_response_throttles_next_request() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, request_percentage=1), clock)
    usage = client.usage()
    usage.charge_request_time(5, may_throttle=False)
    assert usage.throttle_seconds == 0
    usage = client.usage()
    usage.charge_request_time(0)
    assert usage.throttle_seconds == 1.0


def test_mutation_quota_rejects_strict_clients_and_throttles_others() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, controller_mutation_rate=2), clock)
    first = client.usage()
    first.charge_mutation(
        int(2 * MUTATION_BURST_SECONDS) + 10, strict=True
    )  # as in Kafka, the exceeding request succeeds
    assert first.throttle_seconds == 0
    second = client.usage()
    with pytest.raises(KafkaError) as raised:
        second.charge_mutation(1, strict=True)
    assert raised.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle_seconds == pytest.approx(5)
    old = client.usage()
    old.charge_mutation(4, strict=False)
    assert old.throttle_seconds == pytest.approx(7)
    clock.advance(7)
    client.usage().charge_mutation(1, strict=True)


# Retention of buckets


def test_full_bucket_is_discarded() -> None:
    buckets: TokenBuckets[int] = TokenBuckets(0.5)
    for number in range(100):
        buckets.get(number, 10.0, 0.0).tokens -= 6
    assert len(buckets) == 100
    for _ in range(100):
        buckets.get(1000, 10.0, 0.2)
    assert len(buckets) == 101, "none of them is full yet"
    for _ in range(100):
        buckets.get(1000, 10.0, 0.7)
    assert len(buckets) == 1


def test_overdrawn_bucket_does_not_prevent_discarding_others() -> None:
    buckets: TokenBuckets[int] = TokenBuckets(0.5)
    buckets.get(-1, 10.0, 0.0).tokens -= 1_000_000
    for number in range(100):
        buckets.get(number, 10.0, 0.0)
    for _ in range(100):
        buckets.get(1000, 10.0, 5.0)
    assert len(buckets) == 2
    assert buckets.get(-1, 10.0, 5.0).tokens < 0


def test_number_of_buckets_is_limited_and_least_recently_used_is_evicted() -> None:
    buckets: TokenBuckets[int] = TokenBuckets(0.5)
    for number in range(TRACKED_QUOTA_ENTITIES_MAX):
        buckets.get(number, 10.0, 0.0).tokens -= 100
    assert len(buckets) == TRACKED_QUOTA_ENTITIES_MAX
    buckets.get(TRACKED_QUOTA_ENTITIES_MAX, 10.0, 0.0).tokens -= 100
    assert len(buckets) == TRACKED_QUOTA_ENTITIES_MAX
    assert buckets.get(TRACKED_QUOTA_ENTITIES_MAX, 10.0, 0.0).tokens < 0


def test_backward_clock_adds_no_tokens() -> None:
    bucket = TokenBucket(0.0, 10.0, 1.0, 5.0)
    bucket.fill(1.0, 9.0)
    assert bucket.tokens == 0.0


def test_buckets_are_cleared_when_no_quotas_are_left() -> None:
    clock = ManualClock()
    quotas: dict[Entity, QuotaValues] = {(("user", "alice"),): {"producer_byte_rate": RATE}}
    limiter = limiter_of(quotas, clock)
    assert limiter.is_active
    assert Client(limiter, clock).produce(10 * RATE) > 0
    quotas.clear()
    limiter.reload()
    assert not limiter.is_active
    assert len(limiter.produce) == 0
