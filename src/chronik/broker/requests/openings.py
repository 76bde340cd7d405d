"""Opens batches that have to be opened: small ones at once, large ones in a thread, one after the other.

The thread shares the interpreter with the event loop, which can spare enough for one thread, but not for many. A
request waits for its turn, and its connection with it, so that there is never more than one for each connection.
Usual batches are opened at once and never wait for a large one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from chronik.protocol.budget import Budget
from chronik.protocol.errors import KafkaError, RecordsTooLarge
from chronik.scheduler import Steps, offloaded

T = TypeVar("T")


class Openings:
    def __init__(self) -> None:
        self.in_thread = 0
        """How many batches were too large for the loop, since the start."""

    async def run(self, work: Callable[[Budget], T], at_once: Budget | None, budget: Budget) -> T:
        """Runs `work` here if `at_once` allows it, in the thread if it turns out to need more. `work` must only read
        what it was given, and may be begun twice. Raises what it raises."""
        if at_once is not None:
            with contextlib.suppress(RecordsTooLarge):
                return work(at_once)
        return await self.run_in_thread(work, budget)

    async def run_in_thread(self, work: Callable[[Budget], T], budget: Budget) -> T:
        """Runs `work` in the thread. Afterwards everything may have changed: who leads, what the topic demands."""
        self.in_thread += 1
        return _result(await offloaded(lambda: _outcome(work, budget)))

    def steps_in_thread(self, work: Callable[[Budget], T], budget: Budget) -> Steps[T]:
        """Run `work` in the thread, for a request that is made of steps. Raises what it raises."""
        self.in_thread += 1
        outcome: T | _Refused = yield lambda: _outcome(work, budget)
        return _result(outcome)


class _Refused(NamedTuple):
    why: KafkaError


def _result(outcome: T | _Refused) -> T:
    if isinstance(outcome, _Refused):
        try:
            raise outcome.why
        finally:
            del outcome  # which this frame would hold, and the error this frame
    return outcome


def _outcome(work: Callable[[Budget], T], budget: Budget) -> T | _Refused:
    """Returns an error without its traceback: one that is raised across threads keeps what was opened in memory, by way
    of the frames that it came through, until the next garbage collection."""
    try:
        return work(budget)
    except KafkaError as error:
        return _Refused(error.without_frames())
