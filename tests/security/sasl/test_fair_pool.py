"""Fair thread pool for authentication: few threads, shared fairly between client addresses."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from chronik.limits import CONCURRENT_AUTHENTICATIONS_MAX, QUEUED_AUTHENTICATIONS_MAX
from chronik.request_reply import Disconnect
from chronik.security.sasl.fair_pool import LONGEST_WAITING_EVERY, FairThreadPool, Priority


class Slow:
    """A function that blocks until `go` is set, and records its callers."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.done: list[str] = []
        self.running = self.most_running = 0
        self._lock = threading.Lock()

    def __call__(self, name: str) -> str:
        with self._lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        assert self.go.wait(20)
        with self._lock:
            self.running -= 1
            self.done.append(name)
        return name


async def start(work: FairThreadPool, slow: Slow, names: list[tuple[str, str]]) -> list[asyncio.Task[str]]:
    return await start_at(Priority.NORMAL, work, slow, names)


async def start_at(
    priority: Priority, work: FairThreadPool, slow: Slow, names: list[tuple[str, str]]
) -> list[asyncio.Task[str]]:
    tasks = [asyncio.ensure_future(work.run(host, partial(slow, name), priority)) for host, name in names]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def test_concurrency_is_limited_and_clients_alternate() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(), Slow()
        busy = [("evil", f"evil{number}") for number in range(CONCURRENT_AUTHENTICATIONS_MAX + 20)]
        tasks = await start(work, slow, [*busy, ("good", "good")])
        slow.go.set()
        assert await asyncio.wait_for(tasks[-1], 20) == "good"
        assert slow.done.index("good") <= CONCURRENT_AUTHENTICATIONS_MAX + 2 * CONCURRENT_AUTHENTICATIONS_MAX
        assert sorted(await asyncio.gather(*tasks)) == sorted(slow.done)
        assert slow.most_running <= CONCURRENT_AUTHENTICATIONS_MAX
        work.close()

    asyncio.run(scenario())


def test_higher_priority_function_runs_before_lower_priority_queue() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(), Slow()
        crowd = await start_at(Priority.LOW, work, slow, [(f"evil{n}", f"evil{n}") for n in range(120)])
        (new,) = await start_at(Priority.NORMAL, work, slow, [("new", "new")])
        (verified,) = await start_at(Priority.HIGH, work, slow, [("verified", "verified")])
        slow.go.set()
        await asyncio.gather(*crowd, new, verified)
        position = {name: number for number, name in enumerate(slow.done)}
        assert position["verified"] < 2 * CONCURRENT_AUTHENTICATIONS_MAX
        assert position["new"] < 3 * CONCURRENT_AUTHENTICATIONS_MAX
        work.close()

    asyncio.run(scenario())


def test_lower_priority_functions_do_not_starve() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(ThreadPoolExecutor(1), running_max=1), Slow()
        low = await start_at(Priority.LOW, work, slow, [("low", f"low{number}") for number in range(4)])
        normal = await start_at(Priority.NORMAL, work, slow, [("normal", f"normal{number}") for number in range(4)])
        high = await start_at(Priority.HIGH, work, slow, [(f"high{number}", "high") for number in range(100)])
        slow.go.set()
        await asyncio.gather(*low, *normal, *high)
        assert max(slow.done.index(each) for each in ("low3", "normal3")) <= 8 * LONGEST_WAITING_EVERY
        work.close()

    asyncio.run(scenario())


def test_full_queue_evicts_lower_priority_for_higher_priority_only() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(running_max=1, waiting_max=8), Slow()
        crowd = await start_at(Priority.LOW, work, slow, [(f"evil{n}", f"evil{n}") for n in range(8)])
        crowd += await start_at(Priority.NORMAL, work, slow, [("new", "new")])
        (verified,) = await start_at(Priority.HIGH, work, slow, [("verified", "verified")])
        with pytest.raises(Disconnect):
            await work.run("evil9", lambda: "x", Priority.LOW)
        slow.go.set()
        assert await asyncio.wait_for(verified, 20) == "verified"
        ended = await asyncio.gather(*crowd, return_exceptions=True)
        assert [type(each) for each in ended] == [str, Disconnect, *[str] * 7]
        work.close()

    asyncio.run(scenario())


def test_full_queue_evicts_high_priority_client_with_large_queue_share() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(running_max=1, waiting_max=24), Slow()
        many = await start_at(Priority.HIGH, work, slow, [("many", str(number)) for number in range(1 + 20)])
        few = await start_at(Priority.HIGH, work, slow, [("few", str(number)) for number in range(3)])
        crowd = await start_at(Priority.LOW, work, slow, [(f"low{number}", "low") for number in range(18)])
        slow.go.set()
        ended = await asyncio.gather(*many, *few, *crowd, return_exceptions=True)
        rejected = [isinstance(each, Disconnect) for each in ended]
        assert (sum(rejected[:21]), sum(rejected[21:24]), sum(rejected[24:])) == (17, 0, 0)
        work.close()

    asyncio.run(scenario())


def test_threads_per_client_are_limited() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(ThreadPoolExecutor(4), running_max=4, running_per_client_max=2), Slow()
        tasks = await start(work, slow, [("evil", f"evil{number}") for number in range(6)])
        assert await asyncio.wait_for(work.run("good", lambda: "good"), 20) == "good"
        assert slow.most_running == 2
        slow.go.set()
        assert sorted(await asyncio.gather(*tasks)) == sorted(slow.done)
        assert slow.most_running == 2
        assert not work._running
        work.close()

    asyncio.run(scenario())


def test_queue_of_waiting_functions_is_limited() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(), Slow()
        names = [("host", str(number)) for number in range(CONCURRENT_AUTHENTICATIONS_MAX + QUEUED_AUTHENTICATIONS_MAX)]
        tasks = await start(work, slow, names)
        with pytest.raises(Disconnect, match="too many authentications"):
            await work.run("host", lambda: "x")
        for task in tasks[CONCURRENT_AUTHENTICATIONS_MAX:]:
            task.cancel()
        slow.go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await asyncio.wait_for(work.run("host", lambda: "y"), 20) == "y"
        assert not work._running or not work._waiting_count
        work.close()

    asyncio.run(scenario())


def test_full_queue_evicts_newest_function_of_largest_client() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(), Slow()
        names = [("evil", str(number)) for number in range(CONCURRENT_AUTHENTICATIONS_MAX + QUEUED_AUTHENTICATIONS_MAX)]
        tasks = await start(work, slow, [*names, ("good", "good")])
        assert isinstance((await asyncio.gather(tasks[-2], return_exceptions=True))[0], Disconnect), "the newest"
        slow.go.set()
        assert await asyncio.wait_for(tasks[-1], 20) == "good"
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not work._waiting_count
        work.close()

    asyncio.run(scenario())


def test_cancelled_caller_keeps_thread_occupied_until_function_ends() -> None:
    async def scenario() -> None:
        work, slow = FairThreadPool(), Slow()
        tasks = await start(work, slow, [("a", str(number)) for number in range(CONCURRENT_AUTHENTICATIONS_MAX)])
        for task in tasks:
            task.cancel()
        (late,) = await start(work, slow, [("b", "late")])
        assert not late.done()
        assert slow.most_running <= CONCURRENT_AUTHENTICATIONS_MAX
        slow.go.set()
        assert await asyncio.wait_for(late, 20) == "late"
        work.close()

    asyncio.run(scenario())


def test_exception_is_raised_to_caller() -> None:
    async def scenario() -> None:
        work = FairThreadPool()

        def broken() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await work.run("a", broken)
        assert await work.run("a", lambda: 5) == 5
        work.close()

    asyncio.run(scenario())
