"""A deterministic event loop on virtual time, without threads.

All tasks, callbacks and timers of a node carry its `Life` in their context. A run of a process can thus be paused, with
everything it would have done happening later, or killed between any two steps, as by `kill -9`, without any cleanup.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final


class ProcessRun:
    """One run of a process, from its start until it is killed."""

    def __init__(self) -> None:
        self.is_paused = False
        self.is_over = False
        self.held: list[asyncio.Handle] = []
        self.context = contextvars.copy_context()
        self.context.run(_LIFE.set, self)


_LIFE: contextvars.ContextVar[ProcessRun | None] = contextvars.ContextVar("life", default=None)

_NOBODYS_CONTEXT: Final = contextvars.Context()


class _ThreadsJob:
    def __init__(self, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        self.future = future
        self._work = work

    def run(self) -> None:
        if self.future.cancelled():
            return
        try:
            self.future.set_result(self._work())
        except Exception as error:
            self.future.set_exception(error)


_NEEDED_TO_END: Final = (asyncio.Task, asyncio.TaskGroup, _ThreadsJob)
"""Types whose callbacks still run when the simulation ends, so that every task is cancelled, including those that wait
for a thread."""


def _is_needed_to_end(callback: Any) -> bool:
    of_asyncio = getattr(callback, "__module__", None) == asyncio.tasks.__name__  # such as the callbacks of `shield`
    return of_asyncio or isinstance(getattr(callback, "__self__", None), _NEEDED_TO_END)


class SlowDisk(Executor):
    """An executor that stands for threads that wait for a disk."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.failures: list[BaseException] = []
        """Exceptions that no task awaits."""
        self.is_ending = False
        self.steps = 0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._now

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Create a task and keep a reference, so that garbage collection does not finalize killed processes."""
        task = asyncio.Task(coro, loop=loop, **kwargs)
        self._tasks[task] = None
        task.add_done_callback(self._forget, context=_NOBODYS_CONTEXT)
        if self.is_ending:
            task.cancel()
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        job = _ThreadsJob(self.create_future(), lambda: func(*args))
        self.call_later(executor.seconds() if isinstance(executor, SlowDisk) else 0.001, job.run)
        return job.future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_ending:
            self.failures.append(context.get("exception") or AssertionError(context["message"]))

    def resume(self, life: ProcessRun) -> None:
        life.is_paused = False
        held, life.held = life.held, []
        self._ready_handles().extend(held)

    def _ready_handles(self) -> Any:
        base: Any = self
        return base._ready

    def _run_once(self) -> None:
        base: Any = self
        ready, scheduled = base._ready, base._scheduled
        if not ready:
            if not scheduled:
                raise AssertionError("deadlock: no callback or timer is scheduled")
            self._now = max(self._now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            life = handle._context.get(_LIFE)
            if life is not None and self.is_ending:
                if _is_needed_to_end(handle._callback):
                    handle._run()
                continue
            if life is not None and (life.is_paused or life.is_over):
                life.held.append(handle)
                continue
            self.steps += 1
            handle._run()

    def run(self, story: Coroutine[Any, Any, None], lives: list[ProcessRun]) -> None:
        """Run `story`, and then end the remaining tasks of all `lives`."""
        try:
            self.run_until_complete(story)
        finally:
            self.is_ending = True
            for life in lives:
                self._ready_handles().extend(life.held)
            while tasks := list(self._tasks):
                for task in tasks:
                    task.cancel()
                self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.close()


class VirtualClock:
    """A node's clock, with its own offset and rate."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_seconds: float = 0.0, rate: float = 1.0) -> None:
        self._loop = loop
        self._skew_seconds = skew_seconds
        self._rate = rate

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int((self._loop.time() * self._rate + self._skew_seconds) * 1000)

    def monotonic(self) -> float:
        return self._loop.time() * self._rate + self._skew_seconds
