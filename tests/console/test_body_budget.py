"""The memory budget for request bodies: one account cannot exhaust it for others."""

from __future__ import annotations

import pytest

from chronik.console.body_budget import BodyBudget, BodyBudgetExceeded


def test_bodies_up_to_limit_are_accepted_and_one_byte_more_is_rejected() -> None:
    budget: BodyBudget[str] = BodyBudget(100)
    assert budget.reserve("one", "alice", 60) == []
    assert budget.reserve("two", "alice", 40) == []
    assert budget.bytes == 100
    with pytest.raises(BodyBudgetExceeded):
        budget.reserve("two", "alice", 41)
    assert budget.bytes == 60, "the rejected body is released"


def test_reserved_memory_grows_with_body_and_is_released() -> None:
    budget: BodyBudget[str] = BodyBudget(100)
    for size in (10, 50, 100):
        assert budget.reserve("one", "alice", size) == []
        assert budget.bytes == size
    budget.release("one")
    budget.release("one")
    assert budget.bytes == 0
    assert budget.reserve("one", "alice", 0) == []


def test_account_with_most_bytes_loses_its_largest_body() -> None:
    budget: BodyBudget[str] = BodyBudget(100)
    budget.reserve("small", "mallory", 30)
    budget.reserve("large", "mallory", 40)
    budget.reserve("other", "bob", 30)
    assert budget.reserve("new", "alice", 20) == ["large"]
    assert budget.bytes == 80
    assert budget.reserve("new", "alice", 40) == []


def test_account_that_would_use_most_memory_is_rejected() -> None:
    budget: BodyBudget[str] = BodyBudget(100)
    budget.reserve("one", "alice", 50)
    budget.reserve("two", "bob", 50)
    with pytest.raises(BodyBudgetExceeded):
        budget.reserve("three", "carol", 50)
    assert budget.reserve("three", "carol", 30) == ["one"]
