"""Server-sent event streams. Each stream has a thread that produces its events."""

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

from chronik.console.http import ResponseAborted
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import RestError, to_rest_error
from chronik.console.rest.internal_client import LoopBridge
from chronik.console.rest.models.common import Error
from chronik.errors import ChronikError

logger = logging.getLogger("chronik.console")

CONTENT_TYPE: Final = "text/event-stream"
STREAMS_MAX: Final = 16
"""Maximum number of concurrent streams. Each occupies a thread."""
STREAMS_PER_ACCOUNT_MAX: Final = 6
"""Maximum number of streams per account."""
QUEUED_EVENTS_MAX: Final = 64
"""Maximum number of events that are queued for a client."""
QUEUED_CHUNKS_MAX: Final = 4
"""Maximum number of chunks of a file that are queued for a client."""
KEEP_ALIVE_SECONDS: Final = 15.0
KEEP_ALIVE: Final = b": still here\n\n"


class FileStream(NamedTuple):
    """A file that is produced while it is downloaded."""

    content_type: str
    headers: tuple[tuple[str, str], ...]
    chunks: Iterator[bytes]


class ServerSentEvent(NamedTuple):
    """A server-sent event."""

    name: str
    data: Any


def encode_event(event: ServerSentEvent) -> bytes:
    """Encode a server-sent event with JSON data. JSON contains no raw line breaks, so it fits into one data line."""
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), msgspec.json.encode(event.data))


def encode_error_event(error: RestError) -> bytes:
    """Encode an error as a server-sent event named `error`."""
    return encode_event(ServerSentEvent("error", Error(str(error), error.code)))


class EventStreams:
    """The running server-sent event streams, limited in total and per account."""

    def __init__(self, loop: LoopBridge) -> None:
        self._loop = loop
        self._contexts: dict[OperationContext, str] = {}

    def close(self) -> None:
        """Stop all streams."""
        for context in self._contexts:
            context.abandoned.set()

    def reserve(self, context: OperationContext) -> None:
        """Reserve a slot for an event stream. Raise RestError if too many streams are running."""
        of_account = sum(account == context.account for account in self._contexts.values())
        if len(self._contexts) >= STREAMS_MAX or of_account >= STREAMS_PER_ACCOUNT_MAX:
            raise RestError(
                HTTPStatus.TOO_MANY_REQUESTS, "too many searches, tails and exports are in progress: try again later"
            )
        self._contexts[context] = context.account

    def release(self, context: OperationContext) -> None:
        """Release the slot of a stream."""
        self._contexts.pop(context, None)

    def stream_events(
        self, context: OperationContext, produced: Iterator[ServerSentEvent]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the encoded server-sent events of a stream, and release its slot when it ends or is closed."""
        return self._stream(context, _encode_events(produced), QUEUED_EVENTS_MAX, KEEP_ALIVE)

    def stream_file(self, context: OperationContext, chunks: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a file, and release its slot when it ends or is closed.

        Raises:
            Exception: The file is incomplete. The connection must be closed without the final chunk.
        """
        return self._stream(context, _convert_file_errors(chunks), QUEUED_CHUNKS_MAX, None)

    def _stream(
        self, context: OperationContext, chunks: Iterator[bytes], queued_max: int, keep_alive: bytes | None
    ) -> AsyncGenerator[bytes, None]:
        streamed = self._stream_chunks(context, chunks, queued_max, keep_alive)
        weakref.finalize(streamed, self._contexts.pop, context, None)  # A generator that never starts runs no `finally`
        return streamed

    async def _stream_chunks(
        self, context: OperationContext, chunks: Iterator[bytes], queued_max: int, keep_alive: bytes | None
    ) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(queued_max)

        def put(item: bytes | Exception | None) -> None:
            asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

        def run() -> None:
            # When the client disconnects, `put` raises: its future is cancelled, or the event loop is closed.
            with contextlib.suppress(Exception):
                try:
                    for data_bytes in chunks:
                        if context.abandoned.is_set():
                            return
                        put(data_bytes)
                except Exception as error:
                    put(error)
                put(None)

        thread = threading.Thread(target=run, name="console stream", daemon=True)
        thread.start()
        try:
            while True:
                try:
                    item = await asyncio.wait_for(queue.get(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    if keep_alive is not None:
                        yield keep_alive
                    continue
                if item is None:
                    return
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            context.abandoned.set()
            self.release(context)
            while not queue.empty():  # Unblock a producer that waits in `put`, so that it sees `abandoned`.
                queue.get_nowait()


def _convert_file_errors(chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except (RestError, ChronikError) as error:
        raise ResponseAborted(str(error)) from error


def _encode_events(produced: Iterator[ServerSentEvent]) -> Iterator[bytes]:
    try:
        for event in produced:
            yield encode_event(event)
    except RestError as error:
        yield encode_error_event(error)
    except ChronikError as error:
        yield encode_error_event(to_rest_error(error))
    except Exception:
        logger.exception("event stream failed: unexpected error; sending an error event")
        yield encode_event(ServerSentEvent("error", Error("internal error; see the node's log for details")))
