"""Work in a thread that has ended when its caller goes on, even when the caller was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_to_its_end(work: Callable[[], T]) -> T:
    """Does as `asyncio.to_thread`, but waits for the thread when it is cancelled: otherwise a node that stops would
    close the files that the thread is working on."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
