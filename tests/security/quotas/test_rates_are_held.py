"""By simulated time: what a client gets of a rate that it would like to exceed, however it sends."""

from __future__ import annotations

import random

import pytest

from chronik.clock import ManualClock
from chronik.limits import MIB, QUOTA_BUCKETS_MAX, THROTTLE_SECONDS_MAX
from chronik.metadata.security.quotas import Entity, Values
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.security.quotas.buckets import Bucket, Buckets
from chronik.security.quotas.limiter import BURST_SECONDS, MUTATION_BURST_SECONDS, Limiter, Usage

RATE = 1_000_000
SECONDS = 20.0


class Client:
    """Sends what it has as soon as it may, and comes again a little after it has waited."""

    def __init__(self, limiter: Limiter, clock: ManualClock, client_id: str = "c") -> None:
        self.limiter, self.clock, self.client_id = limiter, clock, client_id

    def usage(self) -> Usage:
        usage = self.limiter.usage("alice", self.client_id)
        assert usage is not None
        return usage

    def produce(self, size: int) -> float:
        usage = self.usage()
        usage.produced(size)
        return usage.wait_seconds


def limiter_of(quotas: dict[Entity, Values], clock: ManualClock) -> Limiter:
    limiter = Limiter(clock, lambda: quotas)
    limiter.look()
    return limiter


def with_rates(clock: ManualClock, **rates: float) -> Limiter:
    return limiter_of({(("user", "alice"),): rates}, clock)


@pytest.mark.parametrize("size", [100, 16_384, 300_000, 1_000_000, MIB])
@pytest.mark.parametrize("late_seconds", [0.0002, 0.003, 0.05])
def test_a_producer_gets_its_rate_within_ten_percent(size: int, late_seconds: float) -> None:
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
def test_a_consumer_gets_its_rate_within_ten_percent(batch: int, late_seconds: float) -> None:
    """It is answered with as many batches as fit, or with one."""
    clock = ManualClock()
    client = Client(with_rates(clock, consumer_byte_rate=RATE), clock)
    got = answers = 0
    while clock.monotonic() < SECONDS:
        usage = client.usage()
        if usage.must_fetch_later():
            assert usage.wait_seconds > 0
            clock.advance(usage.wait_seconds)
        else:
            size = max(usage.fetch_bytes_max // batch, 1) * batch
            usage.fetched(size)
            assert usage.wait_seconds == 0, "what was fetched is paid for by the next fetch"
            got += size
            answers += 1
        clock.advance(late_seconds)
    assert answers > 10
    assert 0.9 * RATE * SECONDS <= got <= 1.1 * RATE * SECONDS


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_sent_at_once_and_however_irregularly(seed: int) -> None:
    """Over any 20 s: the rate, what the bucket held, and one request more for each connection."""
    chance = random.Random(seed)
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=RATE), clock)
    connections = chance.choice([1, 2])
    free_at = [0.0] * connections
    sent: list[tuple[float, int]] = []
    while clock.monotonic() < 100:
        for number in range(connections):
            if free_at[number] <= clock.monotonic():
                size = chance.choice([10, 1000, 500_000, MIB])
                free_at[number] = clock.monotonic() + client.produce(size)
                sent.append((clock.monotonic(), size))
        clock.advance(chance.choice([0.001, 0.01, 0.3, 3.0] if chance.random() < 0.01 else [0.001, 0.01]))
    for start, _ in sent:
        within = sum(size for at, size in sent if start <= at < start + SECONDS)
        assert within <= RATE * SECONDS + BURST_SECONDS * RATE + connections * MIB


def test_whoever_stays_below_its_rate_never_waits() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=RATE), clock)
    for _ in range(1000):
        assert client.produce(90_000) == 0
        clock.advance(0.1)


def test_a_timer_that_ends_a_little_early_is_no_reason_to_wait_again() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=RATE), clock)
    clock.advance(client.produce(2 * RATE) - 0.001)
    assert client.produce(0) == 0
    assert client.produce(2000) == pytest.approx(0.003), "and what is owed is kept"


def test_clients_of_one_user_share_its_rate_and_others_do_not() -> None:
    clock = ManualClock()
    limiter = with_rates(clock, producer_byte_rate=RATE)
    assert Client(limiter, clock, "one").produce(RATE) == pytest.approx(1 - BURST_SECONDS)
    assert Client(limiter, clock, "two").produce(RATE) == pytest.approx(2 - BURST_SECONDS)
    assert limiter.usage("bob", "one") is None


def test_a_rate_that_changes_holds_for_what_is_owed_too() -> None:
    clock = ManualClock()
    quotas: dict[Entity, Values] = {(("user", "alice"),): {"producer_byte_rate": RATE}}
    limiter = limiter_of(quotas, clock)
    client = Client(limiter, clock)
    assert client.produce(int(RATE * (10 + BURST_SECONDS))) == pytest.approx(10)
    quotas[(("user", "alice"),)] = {"producer_byte_rate": 10 * RATE}
    limiter.look()
    assert client.produce(0) == pytest.approx(1)


def test_nobody_waits_longer_than_the_longest_wait() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, producer_byte_rate=1), clock)
    assert client.produce(int(THROTTLE_SECONDS_MAX)) == pytest.approx(THROTTLE_SECONDS_MAX - BURST_SECONDS)
    assert client.produce(1) == THROTTLE_SECONDS_MAX


def test_a_share_of_the_loop_is_waited_for_at_most_a_second_at_a_time() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, request_percentage=10), clock)
    took = 0.0
    while clock.monotonic() < 60:
        usage = client.usage()
        usage.took(0.02)
        took += 0.02
        assert usage.wait_seconds <= 1.0
        clock.advance(0.02 + usage.wait_seconds)
    assert took == pytest.approx(6.0, rel=0.1)


def test_what_took_long_after_its_answer_is_waited_for_by_the_next() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, request_percentage=1), clock)
    usage = client.usage()
    usage.took(5, waits=False)
    assert usage.wait_seconds == 0
    usage = client.usage()
    usage.took(0)
    assert usage.wait_seconds == 1.0


def test_changes_of_topics_are_refused_to_whoever_knows_the_error_and_delayed_for_others() -> None:
    clock = ManualClock()
    client = Client(with_rates(clock, controller_mutation_rate=2), clock)
    first = client.usage()
    first.mutated(int(2 * MUTATION_BURST_SECONDS) + 10, strict=True)  # as in Kafka, what goes beyond is still done
    assert first.wait_seconds == 0
    second = client.usage()
    with pytest.raises(KafkaError) as refused:
        second.mutated(1, strict=True)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.wait_seconds == pytest.approx(5)
    old = client.usage()
    old.mutated(4, strict=False)
    assert old.wait_seconds == pytest.approx(7)
    clock.advance(7)
    client.usage().mutated(1, strict=True)


# What is remembered


def test_a_bucket_that_is_full_again_is_forgotten() -> None:
    buckets: Buckets[int] = Buckets(0.5)
    for number in range(100):
        buckets.of(number, 10.0, 0.0).held -= 6
    assert len(buckets) == 100
    for _ in range(100):
        buckets.of(1000, 10.0, 0.2)
    assert len(buckets) == 101, "none of them is full yet"
    for _ in range(100):
        buckets.of(1000, 10.0, 0.7)
    assert len(buckets) == 1


def test_a_bucket_that_is_far_overdrawn_does_not_keep_others() -> None:
    buckets: Buckets[int] = Buckets(0.5)
    buckets.of(-1, 10.0, 0.0).held -= 1_000_000
    for number in range(100):
        buckets.of(number, 10.0, 0.0)
    for _ in range(100):
        buckets.of(1000, 10.0, 5.0)
    assert len(buckets) == 2
    assert buckets.of(-1, 10.0, 5.0).held < 0


def test_no_more_are_remembered_than_the_limit_and_those_used_last_stay() -> None:
    buckets: Buckets[int] = Buckets(0.5)
    for number in range(QUOTA_BUCKETS_MAX):
        buckets.of(number, 10.0, 0.0).held -= 100
    assert len(buckets) == QUOTA_BUCKETS_MAX
    buckets.of(QUOTA_BUCKETS_MAX, 10.0, 0.0).held -= 100
    assert len(buckets) == QUOTA_BUCKETS_MAX
    assert buckets.of(QUOTA_BUCKETS_MAX, 10.0, 0.0).held < 0


def test_time_that_goes_back_gives_nothing() -> None:
    bucket = Bucket(0.0, 10.0, 1.0, 5.0)
    bucket.fill(1.0, 9.0)
    assert bucket.held == 0.0


def test_nothing_is_remembered_once_there_are_no_quotas() -> None:
    clock = ManualClock()
    quotas: dict[Entity, Values] = {(("user", "alice"),): {"producer_byte_rate": RATE}}
    limiter = limiter_of(quotas, clock)
    assert limiter.is_on
    assert Client(limiter, clock).produce(10 * RATE) > 0
    quotas.clear()
    limiter.look()
    assert not limiter.is_on
    assert len(limiter.produce) == 0
