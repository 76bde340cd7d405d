"""Throttling of login attempts: a successful login must not reset the delays for other accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from chronik.console.rest.login_throttle import (
    COUNTS_MAX,
    DELAY_SECONDS_MAX,
    FAILURE_RETENTION_SECONDS,
    WAITING_MAX,
    LoginThrottle,
    TooManyLoginAttempts,
)

HOST, OTHER_HOST = "192.0.2.1", "192.0.2.2"
Check = Callable[[], Awaitable[bool]]


class Time:
    """A clock that only advances when something sleeps."""

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


async def guesses_within(seconds: float, guess: Callable[[LoginThrottle], Awaitable[None]]) -> int:
    """Return how many guesses an attacker makes within a time if each follows the previous one immediately."""
    time = Time()
    attempts, count = LoginThrottle(time, time.sleep), 0
    end = time.now + seconds
    while time.now < end:
        await guess(attempts)
        count += 1
    return count


def test_successful_login_does_not_reset_delay_for_other_accounts() -> None:
    async def guess(attempts: LoginThrottle) -> None:
        await attempts.run(HOST, "alice", wrong)

    async def guess_after_own_login(attempts: LoginThrottle) -> None:
        await attempts.run(HOST, "mallory", right)
        await attempts.run(HOST, "alice", wrong)

    async def scenario() -> None:
        plain = await guesses_within(20.0, guess)
        assert plain <= 12
        assert await guesses_within(20.0, guess_after_own_login) <= plain

    asyncio.run(scenario())


def test_guesses_for_many_accounts_share_one_delay() -> None:
    number = 0

    async def guess(attempts: LoginThrottle) -> None:
        nonlocal number
        number += 1
        await attempts.run(HOST, f"user-{number}", wrong)

    assert asyncio.run(guesses_within(20.0, guess)) <= 12


def test_addresses_of_one_ipv6_network_share_one_delay() -> None:
    number = 0

    async def guess(attempts: LoginThrottle) -> None:
        nonlocal number
        number += 1
        await attempts.run(f"2001:db8::{number:x}", f"user-{number}", wrong)

    assert asyncio.run(guesses_within(20.0, guess)) <= 12


def test_verified_user_is_not_delayed_by_other_failures() -> None:
    async def scenario() -> None:
        time = Time()
        attempts = LoginThrottle(time, time.sleep)
        await attempts.run(HOST, "alice", right)
        for number in range(20):
            await attempts.run(HOST, f"user-{number}", wrong)
        started = time.now
        assert await attempts.run(HOST, "alice", right)
        assert await attempts.run(OTHER_HOST, "bob", right)
        assert time.now == started
        assert await attempts.run(HOST, "bob", right), "delayed, but not locked out"
        assert 0 < time.now - started <= DELAY_SECONDS_MAX

    asyncio.run(scenario())


def test_failure_counts_expire() -> None:
    async def scenario() -> None:
        time = Time()
        attempts = LoginThrottle(time, time.sleep)
        for _ in range(20):
            await attempts.run(HOST, "alice", wrong)
        time.now = started = time.now + FAILURE_RETENTION_SECONDS + 1
        assert await attempts.run(HOST, "alice", right)
        assert time.now == started

    asyncio.run(scenario())


def test_concurrent_guesses_for_one_account_run_sequentially() -> None:
    async def scenario() -> None:
        time = Time()
        attempts, running, go = LoginThrottle(time, time.sleep), 0, asyncio.Event()

        async def guess() -> bool:
            nonlocal running
            running += 1
            assert running == 1
            await go.wait()
            running -= 1
            return False

        guesses = [asyncio.ensure_future(attempts.run(HOST, "alice", guess)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyLoginAttempts):
            await attempts.run(HOST, "alice", guess)
        go.set()
        started = time.now
        assert await asyncio.gather(*guesses) == [False] * WAITING_MAX
        assert time.now - started > 30, "the delays of sequential guesses"

    asyncio.run(scenario())


def test_concurrent_requests_of_verified_user_run_in_parallel() -> None:
    async def scenario() -> None:
        time = Time()
        attempts, running, go = LoginThrottle(time, time.sleep), 0, asyncio.Event()
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


def test_number_of_failure_counts_is_bounded() -> None:
    async def scenario() -> None:
        time = Time()
        attempts = LoginThrottle(time, time.sleep)
        for number in range(COUNTS_MAX + 100):
            await attempts.run(f"host-{number}", "x" * 5000, wrong)
        assert len(attempts._pairs) == len(attempts._networks) == COUNTS_MAX
        assert max(len(user) for _, user in attempts._pairs) == 64

    asyncio.run(scenario())
