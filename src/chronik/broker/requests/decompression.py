"""Batch decompression: small batches inline, large batches in a thread, one at a time.

The thread shares the interpreter with the event loop, which leaves enough time for one thread but not for many. A
request that waits for the thread blocks its connection, so each connection has at most one. Batches of usual size are
decompressed inline and never wait for a large one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.errors import KafkaError, RecordsTooLarge
from chronik.scheduler import Steps, run_in_thread

T = TypeVar("T")


class BatchDecompressor:
    """A decompressor of record batches, which uses a thread for large batches."""

    def __init__(self) -> None:
        self.offloaded_count = 0
        """Number of batches since the start that were too large to be decompressed on the event loop."""

    async def run(
        self,
        work: Callable[[DecompressionBudget], T],
        inline_budget: DecompressionBudget | None,
        budget: DecompressionBudget,
    ) -> T:
        """Decompress record batches on the event loop if `inline_budget` suffices, otherwise in a thread.

        `work` must only read its inputs, and may be started twice. Its exceptions are raised here.
        """
        if inline_budget is not None:
            with contextlib.suppress(RecordsTooLarge):
                return work(inline_budget)
        return await self.run_in_thread(work, budget)

    async def run_in_thread(self, work: Callable[[DecompressionBudget], T], budget: DecompressionBudget) -> T:
        """Decompress record batches in a thread.

        The partition's leader and configs may change during the call.
        """
        self.offloaded_count += 1
        return _unwrap_decompression_outcome(await run_in_thread(lambda: _run_decompression(work, budget)))

    def run_in_thread_as_step(self, work: Callable[[DecompressionBudget], T], budget: DecompressionBudget) -> Steps[T]:
        """Decompress record batches in a thread, as a step of a request that runs in steps."""
        self.offloaded_count += 1
        outcome: T | _DecompressionFailure = yield lambda: _run_decompression(work, budget)
        return _unwrap_decompression_outcome(outcome)


class _DecompressionFailure(NamedTuple):
    """An error that decompressing record batches raised in a thread."""

    error_raised: KafkaError


def _unwrap_decompression_outcome(outcome: T | _DecompressionFailure) -> T:
    """Return the result of a decompression in a thread, or raise its error."""
    if isinstance(outcome, _DecompressionFailure):
        try:
            raise outcome.error_raised
        finally:
            del outcome  # avoids a reference cycle between this frame and the error
    return outcome


def _run_decompression(
    work: Callable[[DecompressionBudget], T], budget: DecompressionBudget
) -> T | _DecompressionFailure:
    """Run a decompression function, and return its result or the KafkaError that it raised.

    The error has no traceback: the frames of an exception raised across threads would keep the decompressed data in
    memory until the next garbage collection.
    """
    try:
        return work(budget)
    except KafkaError as error:
        return _DecompressionFailure(error.without_traceback())
