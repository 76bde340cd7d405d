"""Delays between password guesses: a successful login must not reset those of guesses at other accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from chronik.console.rest.login_attempts import (
    COUNTS_MAX,
    DELAY_SECONDS_MAX,
    REMEMBERED_SECONDS,
    WAITING_MAX,
    LoginAttempts,
    TooManyAttempts,
)

HOST, OTHER_HOST = "192.0.2.1", "192.0.2.2"
Check = Callable[[], Awaitable[bool]]


class Time:
    """A clock that moves when something sleeps, and at no other time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def right() -> bool:
    return True


async def wrong() -> bool:
    return False


async def guesses_within(seconds: float, guess: Callable[[LoginAttempts], Awaitable[None]]) -> int:
    """Return how many guesses an attacker makes within a time if each follows the previous one immediately."""
    time = Time()
    attempts, count = LoginAttempts(time, time.sleep), 0
    end = time.now + seconds
    while time.now < end:
        await guess(attempts)
        count += 1
    return count


def test_successful_login_of_an_attacker_does_not_reset_delays_of_guesses() -> None:
    async def guess(attempts: LoginAttempts) -> None:
        await attempts.run(HOST, "alice", wrong)

    async def guess_after_own_login(attempts: LoginAttempts) -> None:
        await attempts.run(HOST, "mallory", right)
        await attempts.run(HOST, "alice", wrong)

    async def scenario() -> None:
        plain = await guesses_within(20.0, guess)
        assert plain <= 12
        assert await guesses_within(20.0, guess_after_own_login) <= plain

    asyncio.run(scenario())


def test_guesses_at_many_accounts_are_delayed_together() -> None:
    number = 0

    async def guess(attempts: LoginAttempts) -> None:
        nonlocal number
        number += 1
        await attempts.run(HOST, f"user-{number}", wrong)

    assert asyncio.run(guesses_within(20.0, guess)) <= 12


def test_addresses_of_one_ipv6_network_are_delayed_together() -> None:
    number = 0

    async def guess(attempts: LoginAttempts) -> None:
        nonlocal number
        number += 1
        await attempts.run(f"2001:db8::{number:x}", f"user-{number}", wrong)

    assert asyncio.run(guesses_within(20.0, guess)) <= 12


def test_user_with_the_right_password_is_not_delayed_by_guesses_at_others() -> None:
    async def scenario() -> None:
        time = Time()
        attempts = LoginAttempts(time, time.sleep)
        await attempts.run(HOST, "alice", right)
        for number in range(20):
            await attempts.run(HOST, f"user-{number}", wrong)
        began = time.now
        assert await attempts.run(HOST, "alice", right)
        assert await attempts.run(OTHER_HOST, "bob", right)
        assert time.now == began
        assert await attempts.run(HOST, "bob", right), "delayed, but not locked out"
        assert 0 < time.now - began <= DELAY_SECONDS_MAX

    asyncio.run(scenario())


def test_failures_are_forgotten_with_time() -> None:
    async def scenario() -> None:
        time = Time()
        attempts = LoginAttempts(time, time.sleep)
        for _ in range(20):
            await attempts.run(HOST, "alice", wrong)
        time.now = began = time.now + REMEMBERED_SECONDS + 1
        assert await attempts.run(HOST, "alice", right)
        assert time.now == began

    asyncio.run(scenario())


def test_parallel_guesses_at_one_account_run_one_at_a_time() -> None:
    async def scenario() -> None:
        time = Time()
        attempts, running, go = LoginAttempts(time, time.sleep), 0, asyncio.Event()

        async def guess() -> bool:
            nonlocal running
            running += 1
            assert running == 1
            await go.wait()
            running -= 1
            return False

        guesses = [asyncio.ensure_future(attempts.run(HOST, "alice", guess)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyAttempts):
            await attempts.run(HOST, "alice", guess)
        go.set()
        began = time.now
        assert await asyncio.gather(*guesses) == [False] * WAITING_MAX
        assert time.now - began > 30, "as if one had followed the other"

    asyncio.run(scenario())


def test_parallel_requests_of_a_verified_user_run_at_once() -> None:
    async def scenario() -> None:
        time = Time()
        attempts, running, go = LoginAttempts(time, time.sleep), 0, asyncio.Event()
        await attempts.run(HOST, "alice", right)

        async def check() -> bool:
            nonlocal running
            running += 1
            await go.wait()
            return True

        checks = [asyncio.ensure_future(attempts.run(HOST, "alice", check)) for _ in range(3 * WAITING_MAX)]
        await asyncio.sleep(0)
        assert running == 3 * WAITING_MAX
        go.set()
        assert all(await asyncio.gather(*checks))

    asyncio.run(scenario())


def test_counts_are_bounded() -> None:
    async def scenario() -> None:
        time = Time()
        attempts = LoginAttempts(time, time.sleep)
        for number in range(COUNTS_MAX + 100):
            await attempts.run(f"host-{number}", "x" * 5000, wrong)
        assert len(attempts._pairs) == len(attempts._networks) == COUNTS_MAX
        assert max(len(user) for _, user in attempts._pairs) == 64

    asyncio.run(scenario())
