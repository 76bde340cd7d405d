"""What takes milliseconds is done in few threads, and addresses take turns."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from chronik.exchange import Disconnect
from chronik.limits import AUTHENTICATIONS_AT_WORK_MAX, AUTHENTICATIONS_WAITING_MAX
from chronik.security.sasl.work import LONGEST_WAITING_EVERY, Priority, Work


class Slow:
    """Work that waits to be let go, and notes who was at it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.done: list[str] = []
        self.at_once = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, who: str) -> str:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        assert self.go.wait(20)
        with self._lock:
            self.at_once -= 1
            self.done.append(who)
        return who


async def started(work: Work, slow: Slow, names: list[tuple[str, str]]) -> list[asyncio.Task[str]]:
    return await started_at(Priority.NORMAL, work, slow, names)


async def started_at(
    priority: Priority, work: Work, slow: Slow, names: list[tuple[str, str]]
) -> list[asyncio.Task[str]]:
    tasks = [asyncio.ensure_future(work.do(host, partial(slow, who), priority)) for host, who in names]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def test_few_run_at_once_and_addresses_take_turns() -> None:
    async def story() -> None:
        work, slow = Work(), Slow()
        busy = [("evil", f"evil{number}") for number in range(AUTHENTICATIONS_AT_WORK_MAX + 20)]
        tasks = await started(work, slow, [*busy, ("good", "good")])
        slow.go.set()
        assert await asyncio.wait_for(tasks[-1], 20) == "good"
        assert slow.done.index("good") <= AUTHENTICATIONS_AT_WORK_MAX + 2 * AUTHENTICATIONS_AT_WORK_MAX
        assert sorted(await asyncio.gather(*tasks)) == sorted(slow.done)
        assert slow.most <= AUTHENTICATIONS_AT_WORK_MAX
        work.close()

    asyncio.run(story())


def test_function_of_a_higher_priority_runs_before_those_of_many_clients() -> None:
    async def story() -> None:
        work, slow = Work(), Slow()
        crowd = await started_at(Priority.LOW, work, slow, [(f"evil{n}", f"evil{n}") for n in range(120)])
        (new,) = await started_at(Priority.NORMAL, work, slow, [("new", "new")])
        (verified,) = await started_at(Priority.HIGH, work, slow, [("verified", "verified")])
        slow.go.set()
        await asyncio.gather(*crowd, new, verified)
        position = {who: number for number, who in enumerate(slow.done)}
        assert position["verified"] < 2 * AUTHENTICATIONS_AT_WORK_MAX
        assert position["new"] < 3 * AUTHENTICATIONS_AT_WORK_MAX
        work.close()

    asyncio.run(story())


def test_functions_of_a_lower_priority_do_not_starve() -> None:
    async def story() -> None:
        work, slow = Work(ThreadPoolExecutor(1), running_max=1), Slow()
        low = await started_at(Priority.LOW, work, slow, [("low", f"low{number}") for number in range(4)])
        normal = await started_at(Priority.NORMAL, work, slow, [("normal", f"normal{number}") for number in range(4)])
        high = await started_at(Priority.HIGH, work, slow, [(f"high{number}", "high") for number in range(100)])
        slow.go.set()
        await asyncio.gather(*low, *normal, *high)
        assert max(slow.done.index(each) for each in ("low3", "normal3")) <= 8 * LONGEST_WAITING_EVERY
        work.close()

    asyncio.run(story())


def test_full_queue_rejects_a_lower_priority_for_a_higher_one_and_not_the_reverse() -> None:
    async def story() -> None:
        work, slow = Work(running_max=1, waiting_max=8), Slow()
        crowd = await started_at(Priority.LOW, work, slow, [(f"evil{n}", f"evil{n}") for n in range(8)])
        crowd += await started_at(Priority.NORMAL, work, slow, [("new", "new")])
        (verified,) = await started_at(Priority.HIGH, work, slow, [("verified", "verified")])
        with pytest.raises(Disconnect):
            await work.do("evil9", lambda: "x", Priority.LOW)
        slow.go.set()
        assert await asyncio.wait_for(verified, 20) == "verified"
        ended = await asyncio.gather(*crowd, return_exceptions=True)
        assert [type(each) for each in ended] == [str, Disconnect, *[str] * 7]
        work.close()

    asyncio.run(story())


def test_client_with_most_places_loses_one_to_a_lower_priority() -> None:
    async def story() -> None:
        work, slow = Work(running_max=1, waiting_max=24), Slow()
        many = await started_at(Priority.HIGH, work, slow, [("many", str(number)) for number in range(1 + 20)])
        few = await started_at(Priority.HIGH, work, slow, [("few", str(number)) for number in range(3)])
        crowd = await started_at(Priority.LOW, work, slow, [(f"low{number}", "low") for number in range(18)])
        slow.go.set()
        ended = await asyncio.gather(*many, *few, *crowd, return_exceptions=True)
        rejected = [isinstance(each, Disconnect) for each in ended]
        assert (sum(rejected[:21]), sum(rejected[21:24]), sum(rejected[24:])) == (17, 0, 0)
        work.close()

    asyncio.run(story())


def test_client_with_slow_functions_leaves_threads_to_others() -> None:
    async def story() -> None:
        work, slow = Work(ThreadPoolExecutor(4), running_max=4, running_per_client_max=2), Slow()
        tasks = await started(work, slow, [("evil", f"evil{number}") for number in range(6)])
        assert await asyncio.wait_for(work.do("good", lambda: "good"), 20) == "good"
        assert slow.most == 2
        slow.go.set()
        assert sorted(await asyncio.gather(*tasks)) == sorted(slow.done)
        assert slow.most == 2
        assert not work._running
        work.close()

    asyncio.run(story())


def test_so_many_wait_and_no_more() -> None:
    async def story() -> None:
        work, slow = Work(), Slow()
        names = [("host", str(number)) for number in range(AUTHENTICATIONS_AT_WORK_MAX + AUTHENTICATIONS_WAITING_MAX)]
        tasks = await started(work, slow, names)
        with pytest.raises(Disconnect, match="too many others wait"):
            await work.do("host", lambda: "x")
        for task in tasks[AUTHENTICATIONS_AT_WORK_MAX:]:
            task.cancel()
        slow.go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await asyncio.wait_for(work.do("host", lambda: "y"), 20) == "y"
        assert not work._running or not work._waiting_count
        work.close()

    asyncio.run(story())


def test_who_fills_the_room_makes_room_for_others() -> None:
    async def story() -> None:
        work, slow = Work(), Slow()
        names = [("evil", str(number)) for number in range(AUTHENTICATIONS_AT_WORK_MAX + AUTHENTICATIONS_WAITING_MAX)]
        tasks = await started(work, slow, [*names, ("good", "good")])
        assert isinstance((await asyncio.gather(tasks[-2], return_exceptions=True))[0], Disconnect), "who came last"
        slow.go.set()
        assert await asyncio.wait_for(tasks[-1], 20) == "good"
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not work._waiting_count
        work.close()

    asyncio.run(story())


def test_who_has_gone_frees_no_thread_before_it_is_free() -> None:
    async def story() -> None:
        work, slow = Work(), Slow()
        tasks = await started(work, slow, [("a", str(number)) for number in range(AUTHENTICATIONS_AT_WORK_MAX)])
        for task in tasks:
            task.cancel()
        (late,) = await started(work, slow, [("b", "late")])
        assert not late.done()
        assert slow.most <= AUTHENTICATIONS_AT_WORK_MAX
        slow.go.set()
        assert await asyncio.wait_for(late, 20) == "late"
        work.close()

    asyncio.run(story())


def test_what_fails_is_told_to_who_asked() -> None:
    async def story() -> None:
        work = Work()

        def broken() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await work.do("a", broken)
        assert await work.do("a", lambda: 5) == 5
        work.close()

    asyncio.run(story())
