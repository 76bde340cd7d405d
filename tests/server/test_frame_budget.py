"""Memory budget of large requests: FIFO order without deadlock."""

from __future__ import annotations

import random

import pytest

from chronik.limits import FRAME_RATE_BYTES_MIN
from chronik.server.frame_budget import FrameBudget
from chronik.server.listener_limits import ListenerLimits


def test_budget_is_exceeded_by_one_holder_only() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    assert budget.reserve("a", 60)
    assert budget.reserve("b", 40)
    assert budget.reserve("c", 30)
    assert not budget.reserve("d", 1)
    assert (budget.total_bytes, budget.has_waiters) == (130, True)


def test_waiting_holders_are_served_in_fifo_order() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "abc":
        budget.reserve(holder, 50)
    assert not budget.reserve("d", 50)
    assert not budget.reserve("e", 10)
    assert list(budget.grant_waiting()) == []
    budget.release("a")
    assert list(budget.grant_waiting()) == ["d"]
    budget.release("b")
    assert list(budget.grant_waiting()) == ["e"]
    assert not budget.has_waiters


def test_holder_that_exceeds_limit_is_not_blocked_by_waiters() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "ab":
        budget.reserve(holder, 60)
    assert not budget.reserve("a", 70)
    assert budget.reserve("b", 70)


def test_budget_is_exceeded_by_one_request_at_most() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    assert budget.reserve("a", 100)
    assert budget.reserve("a", 160)
    assert not budget.reserve("a", 161)
    assert (budget.total_bytes, budget.has_waiters) == (160, True)
    assert budget.reserve("a", 130), "one of its requests was answered, but it still exceeds the limit"
    assert not budget.reserve("b", 1)
    assert budget.reserve("a", 160)


def test_waiting_holder_that_exceeds_limit_is_served_first() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder, count in (("a", 20), ("b", 80), ("c", 50)):
        assert budget.reserve(holder, count)
    assert not budget.reserve("d", 50)
    assert not budget.reserve("c", 70)
    assert list(budget.grant_waiting()) == []
    budget.release("a")
    assert list(budget.grant_waiting()) == ["c"]
    assert (budget.reserved_bytes("c"), budget.has_waiters) == (70, True)


def test_holder_that_reduces_its_reservation_stops_waiting() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "abc":
        budget.reserve(holder, 60)
    assert not budget.reserve("a", 70)
    assert budget.reserve("a", 50)
    assert budget.reserved_bytes("a") == 50
    budget.release("b")
    assert list(budget.grant_waiting()) == ["c"]


@pytest.mark.parametrize("seed", range(50))
def test_all_partially_received_requests_complete(seed: int) -> None:
    """Each request doubles until it is complete, then releases its memory; the total stays bounded."""
    rng = random.Random(seed)
    limit, largest = 1_000, 600
    budget: FrameBudget[int] = FrameBudget(limit, largest)
    sizes = {number: rng.randrange(1, largest) for number in range(40)}
    wanted = dict.fromkeys(sizes, 1)
    runnable = set(sizes)
    while sizes:
        assert runnable, "deadlock"
        number = rng.choice(sorted(runnable))
        if budget.reserved_bytes(number) == sizes[number]:
            budget.release(number)
            del sizes[number]
            runnable.discard(number)
        elif not budget.reserve(number, min(wanted[number], sizes[number])):
            runnable.discard(number)
        wanted[number] *= 2
        runnable.update(budget.grant_waiting())
        assert budget.total_bytes <= limit + largest
    assert budget.total_bytes == 0


@pytest.mark.parametrize("seed", range(50))
def test_all_pipelined_requests_complete(seed: int) -> None:
    """Each connection has several received requests, which are answered one by one, and one that is being received."""
    rng = random.Random(seed)
    limit, largest = 1_000, 600
    budget: FrameBudget[int] = FrameBudget(limit, largest)
    remaining = {number: [rng.randrange(1, largest) for _ in range(8)] for number in range(6)}
    held: dict[int, list[int]] = {number: [] for number in remaining}
    arriving = dict.fromkeys(remaining, 0)
    waiting: set[int] = set()
    while remaining:
        choices = sorted({number for number in remaining if number not in waiting or held[number]})
        assert choices, "deadlock"
        number = rng.choice(choices)
        if held[number] and (number in waiting or rng.random() < 0.3):
            held[number].pop(0)
        elif remaining[number] and arriving[number] == remaining[number][0]:
            held[number].append(remaining[number].pop(0))
            arriving[number] = 0
        elif remaining[number]:
            arriving[number] = min(max(2 * arriving[number], 1), remaining[number][0])
        if not remaining[number] and not held[number]:
            budget.release(number)
            del remaining[number]
        elif budget.reserve(number, sum(held[number]) + arriving[number]):
            waiting.discard(number)
        else:
            waiting.add(number)
        waiting -= set(budget.grant_waiting())
        assert budget.total_bytes <= limit + largest
    assert budget.total_bytes == 0


def test_minimum_receive_rate_is_64_kib_per_second() -> None:
    assert FRAME_RATE_BYTES_MIN == 64 * 1024
    assert ListenerLimits().frame_rate_seconds == 2.0
