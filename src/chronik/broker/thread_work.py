"""Work in a thread that completes before its caller continues, even if the caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread as `asyncio.to_thread` does, but wait for the thread when cancelled.

    Otherwise a stopping node would close the files that the thread uses.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
