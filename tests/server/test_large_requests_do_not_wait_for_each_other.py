"""The budget of large requests: who came first goes on first, and some one always can."""

from __future__ import annotations

import random

import pytest

from chronik.limits import FRAME_RATE_BYTES_MIN
from chronik.server.frame_budget import FrameBudget
from chronik.server.listener_limits import ListenerLimits


def test_up_to_the_limit_nobody_waits_and_one_more_goes_beyond_it() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    assert budget.want("a", 60)
    assert budget.want("b", 40)
    assert budget.want("c", 30)
    assert not budget.want("d", 1)
    assert (budget.total, budget.is_waited_for) == (130, True)


def test_those_who_wait_are_served_in_their_order_as_there_is_room() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "abc":
        budget.want(holder, 50)
    assert not budget.want("d", 50)
    assert not budget.want("e", 10)
    assert list(budget.granted()) == []
    budget.leave("a")
    assert list(budget.granted()) == ["d"]
    budget.leave("b")
    assert list(budget.granted()) == ["e"]
    assert not budget.is_waited_for


def test_who_has_gone_beyond_the_limit_is_not_held_up_by_those_who_wait() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "ab":
        budget.want(holder, 60)
    assert not budget.want("a", 70)
    assert budget.want("b", 70)


def test_nobody_goes_beyond_the_limit_by_more_than_one_request() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    assert budget.want("a", 100)
    assert budget.want("a", 160)
    assert not budget.want("a", 161)
    assert (budget.total, budget.is_waited_for) == (160, True)
    assert budget.want("a", 130), "one of its requests was answered, and it still is beyond the limit"
    assert not budget.want("b", 1)
    assert budget.want("a", 160)


def test_who_is_beyond_the_limit_and_waits_is_served_before_those_who_came_earlier() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder, count in (("a", 20), ("b", 80), ("c", 50)):
        assert budget.want(holder, count)
    assert not budget.want("d", 50)
    assert not budget.want("c", 70)
    assert list(budget.granted()) == []
    budget.leave("a")
    assert list(budget.granted()) == ["c"]
    assert (budget.reserved_by("c"), budget.is_waited_for) == (70, True)


def test_who_wants_less_waits_no_more() -> None:
    budget: FrameBudget[str] = FrameBudget(100, 60)
    for holder in "abc":
        budget.want(holder, 60)
    assert not budget.want("a", 70)
    assert budget.want("a", 50)
    assert budget.reserved_by("a") == 50
    budget.leave("b")
    assert list(budget.granted()) == ["c"]


@pytest.mark.parametrize("seed", range(50))
def test_all_requests_arrive_in_the_end_however_many_are_there_in_part(seed: int) -> None:
    """Each grows by doubling until it is whole, and goes when it is; the memory taken stays bounded."""
    rng = random.Random(seed)
    limit, largest = 1_000, 600
    budget: FrameBudget[int] = FrameBudget(limit, largest)
    sizes = {number: rng.randrange(1, largest) for number in range(40)}
    wanted = dict.fromkeys(sizes, 1)
    may_go_on = set(sizes)
    while sizes:
        assert may_go_on, "everybody waits for everybody"
        number = rng.choice(sorted(may_go_on))
        if budget.reserved_by(number) == sizes[number]:
            budget.leave(number)
            del sizes[number]
            may_go_on.discard(number)
        elif not budget.want(number, min(wanted[number], sizes[number])):
            may_go_on.discard(number)
        wanted[number] *= 2
        may_go_on.update(budget.granted())
        assert budget.total <= limit + largest
    assert budget.total == 0


@pytest.mark.parametrize("seed", range(50))
def test_so_it_is_where_requests_are_sent_ahead_of_the_one_that_waits(seed: int) -> None:
    """Each connection has several that have arrived, which are answered one by one, and one that is arriving."""
    rng = random.Random(seed)
    limit, largest = 1_000, 600
    budget: FrameBudget[int] = FrameBudget(limit, largest)
    to_come = {number: [rng.randrange(1, largest) for _ in range(8)] for number in range(6)}
    held: dict[int, list[int]] = {number: [] for number in to_come}
    arriving = dict.fromkeys(to_come, 0)
    waits: set[int] = set()
    while to_come:
        choices = sorted({number for number in to_come if number not in waits or held[number]})
        assert choices, "everybody waits for everybody"
        number = rng.choice(choices)
        if held[number] and (number in waits or rng.random() < 0.3):
            held[number].pop(0)
        elif to_come[number] and arriving[number] == to_come[number][0]:
            held[number].append(to_come[number].pop(0))
            arriving[number] = 0
        elif to_come[number]:
            arriving[number] = min(max(2 * arriving[number], 1), to_come[number][0])
        if not to_come[number] and not held[number]:
            budget.leave(number)
            del to_come[number]
        elif budget.want(number, sum(held[number]) + arriving[number]):
            waits.discard(number)
        else:
            waits.add(number)
        waits -= set(budget.granted())
        assert budget.total <= limit + largest
    assert budget.total == 0


def test_a_large_request_has_to_come_at_sixty_four_kilobytes_in_a_second() -> None:
    assert FRAME_RATE_BYTES_MIN == 64 * 1024
    assert ListenerLimits().frame_rate_seconds == 2.0
