"""Runs a node until a signal or a failure stops it, and returns the exit code. Errors are reported in one line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from chronik.api.routing.handlers import import_handlers
from chronik.api.routing.router import Interceptor
from chronik.config import Address, NodeConfig
from chronik.errors import ChronikError, exc_info_if_unexpected, find_root_cause
from chronik.log_output import configure_logging, print_notice
from chronik.metadata.commands.security import AlterScramUser
from chronik.node.memory_tuning import limit_gc_duration, retain_freed_memory
from chronik.node.node import Node
from chronik.node.service_manager import READY, STOPPING, notify_service_manager

logger = logging.getLogger("chronik.node")

EXIT_OK, EXIT_FAILED, EXIT_NOT_STARTED = 0, 1, 2

THREAD_SWITCH_SECONDS = 0.0005
"""The thread switch interval of the Python interpreter in seconds (`sys.setswitchinterval`).

It determines how long a sync thread waits for the GIL while the event loop is busy. Python's default of 5 ms would
delay every acknowledgement.
"""

DEFERRED_IMPORT_SECONDS = 0.1
"""The delay in seconds between a node's start and the import of the remaining API handlers.

The first client requests use only a few APIs and should not wait for all imports.
"""

ReadyCallback = Callable[[Node, Address], None]


def run(
    config: NodeConfig,
    *,
    interceptor: Interceptor | None = None,
    ready: ReadyCallback | None = None,
    restore_identity: bool = False,
    first_user: AlterScramUser | None = None,
) -> int:
    """Run a node, and return the exit code: 0 after a signal, 2 if it could not start, 1 if it failed."""
    configure_logging(config.log_level, sys.stderr, config.log_format)
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    if config.peers:
        retain_freed_memory()
    node = Node(config, interceptor=interceptor, restore_identity=restore_identity, first_user=first_user)
    return _run_event_loop(_serve_until_signal(node, ready, config.log_format))


async def _serve_until_signal(node: Node, ready: ReadyCallback | None, log_format: str) -> int:
    try:
        address = await node.start()
    except (ChronikError, OSError) as error:
        print_notice(str(error), log_format)
        return EXIT_NOT_STARTED
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_event_loop_error)
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stopping.set)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopping.set))
    if ready is not None:
        ready(node, address)
    notify_service_manager(READY)
    stop_requested = asyncio.ensure_future(stopping.wait())
    stopped = asyncio.ensure_future(node.wait_until_stopped())
    early, _ = await asyncio.wait(
        (stop_requested, stopped), timeout=DEFERRED_IMPORT_SECONDS, return_when=asyncio.FIRST_COMPLETED
    )
    if not early:
        await import_handlers()
        # Now that everything is imported that stays until the end.
        limit_gc_duration()
        await asyncio.wait((stop_requested, stopped), return_when=asyncio.FIRST_COMPLETED)
    stop_requested.cancel()
    if not stopped.done():
        logger.info("node stopping")
        notify_service_manager(STOPPING)
        await node.stop()
    try:
        await stopped
    except Exception as error:
        _fail_stop(error, log_format)
    return EXIT_OK


def log_event_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an event loop error, without a traceback if the error is expected, such as exhausted file descriptors."""
    error = context.get("exception")
    if error is None or exc_info_if_unexpected(error) is not None:
        loop.default_exception_handler(context)
    else:
        logger.error("event loop: %s: %s", context.get("message", "error"), find_root_cause(error))


def _fail_stop(error: Exception, log_format: str) -> NoReturn:
    """Exit the process immediately, because nothing may be written any more and threads may hang on a failed disk."""
    print_notice(f"stopped: {error}", log_format)
    os._exit(EXIT_FAILED)


def _run_event_loop(main: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
