from __future__ import annotations

import asyncio
import threading

import pytest

from chronik.broker.thread_work import run_in_thread


def test_cancellation_waits_until_thread_has_finished() -> None:
    """Otherwise a stopping node would close a file during its sync, and report the error as a storage failure."""
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        may_end.wait(20)
        done.append("worked")

    async def story() -> None:
        task = asyncio.ensure_future(run_in_thread(work))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["worked"]

    asyncio.run(story())


def test_exception_of_thread_work_is_raised() -> None:
    def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run_in_thread(work))
