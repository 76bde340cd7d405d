"""Answers that go on: server-sent events, made in threads of their own, one for each who listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Iterator
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from chronik.console.rest.call import Call
from chronik.console.rest.inside import Loop
from chronik.console.rest.refusals import Refusal, refusal_of
from chronik.console.rest.shapes.common import Error
from chronik.errors import ChronikError

logger = logging.getLogger("chronik.console")

CONTENT_TYPE: Final = "text/event-stream"
STREAMS_MAX: Final = 16
"""Searches and tails in progress: each has a thread."""
STREAMS_PER_ACCOUNT_MAX: Final = 6
"""Those of one account."""
EVENTS_AHEAD_MAX: Final = 64
"""Events that wait until the browser has read those before."""
KEEP_ALIVE_SECONDS: Final = 15.0
KEEP_ALIVE: Final = b": still here\n\n"


class Event(NamedTuple):
    name: str
    data: Any


def encoded_event(event: Event) -> bytes:
    """JSON has no line breaks of its own."""
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), msgspec.json.encode(event.data))


def error_event(error: Refusal) -> bytes:
    return encoded_event(Event("error", Error(str(error), error.code)))


class Streams:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._calls: dict[Call, str] = {}

    def close(self) -> None:
        for call in self._calls:
            call.has_gone.set()

    def reserve(self, call: Call) -> None:
        """Count a stream from before it starts. Raises Refusal when too many are in progress."""
        of_account = sum(account == call.account for account in self._calls.values())
        if len(self._calls) >= STREAMS_MAX or of_account >= STREAMS_PER_ACCOUNT_MAX:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many searches and tails are under way")
        self._calls[call] = call.account

    def release(self, call: Call) -> None:
        self._calls.pop(call, None)

    def events(self, call: Call, made: Iterator[Event]) -> AsyncGenerator[bytes, None]:
        """Return the encoded events of a stream that was reserved. It is released when they end, or are dropped."""
        events = self._events(call, made)
        weakref.finalize(events, self._calls.pop, call, None)  # a generator that never starts has no end either
        return events

    async def _events(self, call: Call, made: Iterator[Event]) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(EVENTS_AHEAD_MAX)

        def put(piece: bytes | None) -> None:
            asyncio.run_coroutine_threadsafe(queue.put(piece), loop).result()

        def run() -> None:
            # What waits here when the listener goes is cancelled, or there is no loop any more.
            with contextlib.suppress(Exception):
                for piece in _pieces(made):
                    if call.has_gone.is_set():
                        return
                    put(piece)
                put(None)

        thread = threading.Thread(target=run, name="console stream", daemon=True)
        thread.start()
        try:
            while True:
                try:
                    piece = await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    yield KEEP_ALIVE
                    continue
                if piece is None:
                    return
                yield piece
        finally:
            call.has_gone.set()
            self.release(call)
            while not queue.empty():  # whoever waits for room finds it, and then sees that nobody listens
                queue.get_nowait()


def _pieces(made: Iterator[Event]) -> Iterator[bytes]:
    try:
        for event in made:
            yield encoded_event(event)
    except Refusal as error:
        yield error_event(error)
    except ChronikError as error:
        yield error_event(refusal_of(error))
    except Exception:
        logger.exception("a stream of events failed")
        yield encoded_event(Event("error", Error("this operation is broken; the node's log says why")))
