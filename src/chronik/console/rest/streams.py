"""Answers that go on: server-sent events, made in threads of their own, one for each who listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
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
"""Searches and tails under way: each has a thread."""
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


class Streams:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._calls: set[Call] = set()

    def close(self) -> None:
        for call in self._calls:
            call.has_gone.set()

    def check_room(self) -> None:
        """Raises Refusal when too many are under way."""
        if len(self._calls) >= STREAMS_MAX:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many searches and tails are under way")

    async def events(self, call: Call, made: Iterator[Event]) -> AsyncGenerator[bytes, None]:
        """Encodes what is made, for as long as anybody listens."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(EVENTS_AHEAD_MAX)
        self._calls.add(call)

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
            self._calls.discard(call)
            while not queue.empty():  # whoever waits for room finds it, and then sees that nobody listens
                queue.get_nowait()


def _pieces(made: Iterator[Event]) -> Iterator[bytes]:
    try:
        for event in made:
            yield encoded_event(event)
    except Refusal as error:
        yield encoded_event(Event("error", Error(str(error), error.code)))
    except ChronikError as error:
        refusal = refusal_of(error)
        yield encoded_event(Event("error", Error(str(refusal), refusal.code)))
    except Exception:
        logger.exception("a stream of events failed")
        yield encoded_event(Event("error", Error("this operation is broken; the node's log says why")))
