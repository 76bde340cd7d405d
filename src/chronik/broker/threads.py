"""Work in a thread that is over when whoever waits for it goes on, also when he was told to stop waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_to_its_end(work: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, which leaves the thread behind when it is cancelled: then the node, which stops, would
    close the files that the thread is working on."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
