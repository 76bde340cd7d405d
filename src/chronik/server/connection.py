"""One client's connection: requests are handled in order, and answered in order.

As in Kafka, a connection's next request waits until the one before is answered, so that what a client sends after
another request sees its effect. The exception is a request whose effect is already ordered (a produce that waits for
the disk): the next one starts meanwhile, and its response waits its turn.

Back-pressure: while a connection has REQUESTS_QUEUED_MAX requests waiting, or its client does not read its answers, its
socket is not read. Neither is it while the node has no memory for the large request that comes: such requests count
from when their bytes arrive until they are answered, since they are kept until then. While others wait for that memory,
a client that owes the rest of such a request has to send it at a certain rate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, Protocol, cast

from chronik.errors import reason_of, unexpected
from chronik.exchange import Disconnect, Dispatch, Outbox, Peer, Pending, Response
from chronik.limits import FRAME_RATE_BYTES_MIN, REQUESTS_QUEUED_MAX, RESPONSES_UNSENT_BYTES_MAX
from chronik.server.frames import SCRATCH_BYTES, FrameReader, FrameRefused
from chronik.server.listener_limits import ListenerLimits
from chronik.server.places import Place
from chronik.server.send_queue import has_hung_up
from chronik.server.unread import UnreadResponses
from chronik.turns import Turns

logger = logging.getLogger("chronik.server")


FAREWELL_SECONDS: Final = 0.25
"""Between the answer that refuses a client and the end of its connection."""


class ConnectionOwner(Protocol):
    """What a connection needs of the listener that it came through."""

    dispatch: Dispatch
    gated: Collection[str]
    """The names of listeners whose clients must say who they are."""
    limits: ListenerLimits
    loop: asyncio.AbstractEventLoop
    outbox: Outbox
    turns: Turns

    @property
    def connection_count(self) -> int: ...

    def scratch(self) -> memoryview: ...

    def admit(self, connection: Connection) -> bool: ...

    def release(self, connection: Connection) -> None: ...

    def has_room(self, connection: Connection, count: int) -> bool:
        """Whether its large requests may take `count` bytes; if not, `granted` is called when they may."""


class Connection(asyncio.BufferedProtocol):
    def __init__(self, listener: ConnectionOwner, name: str, number: int) -> None:
        """Makes the connection of a client that came through the listener called `name`."""
        self._listener = listener
        self._loop = listener.loop
        self._number = number
        self._reader = FrameReader(listener.scratch(), listener.limits.frame_bytes)
        self._queue: deque[bytearray] = deque()  # requests that wait to be handled
        self._slots: deque[Pending] = deque()  # responses that wait to be sent, in order
        self._blocked: Pending | None = None  # the one that must be answered before the next request starts
        self._reading_paused = False
        self._writing_paused = False
        self._stopping = False
        self._closing = False
        self._throttled: asyncio.TimerHandle | None = None  # until then nothing is read or handled
        self._held = 0  # bytes of large requests that wait to be handled or answered
        self._has_share = False  # of the memory for large requests
        self.last_active = self._loop.time()
        self.frame_began: float | None = None  # since when the client owes the rest of a request
        self._pace = (0.0, 0)  # when its pace was last measured, and how much had arrived by then
        self.place: Place | None = None
        self.refusal = ""
        """Why it is not let in, when it is not."""
        self.peer = Peer("?", 0, number, name, is_let_in=name not in listener.gated)
        self._end: asyncio.TimerHandle | None = None  # when it ends by itself, and how
        self._has_left = False  # whether its client was told why it ends, and had time to read it
        self._transport: asyncio.Transport
        self._unread: UnreadResponses

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unread = UnreadResponses(self._transport, self._listener.outbox)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.peer.host, self.peer.port = name[0], name[1]
        if not self._listener.admit(self):
            self.close(f"refused: {self.refusal}")
            return
        if self.peer.throttled_seconds:
            self._throttle()
        self._transport.set_write_buffer_limits(high=RESPONSES_UNSENT_BYTES_MAX)
        logger.debug("connection %d from %s:%d", self._number, self.peer.host, self.peer.port)
        if not self.peer.is_let_in:
            self._ask_who_it_is()

    def _ask_who_it_is(self) -> None:
        """Takes little of the client, and not for long, until it has said so."""
        allowed = self._listener.limits
        self._reader.allow(min(allowed.unauthenticated_frame_bytes, allowed.frame_bytes))
        told = f"it did not say who it is within {allowed.authentication_seconds:g} s"
        self._end_after(allowed.authentication_seconds, self.close, told)
        self.peer.when_let_in = self._let_in

    def _let_in(self) -> None:
        if not self._closing:  # who it is may be found out too late: then its end stays as it is
            self._forget_end()
            self._reader.allow(self._listener.limits.frame_bytes)

    def _end_after(self, seconds: float, end: Callable[..., None], *arguments: str) -> None:
        self._forget_end()
        self._end = self._loop.call_later(seconds, end, *arguments)

    def _forget_end(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._forget_end()
        if self._throttled is not None:
            self._throttled.cancel()
        self._queue.clear()
        for slot in self._slots:
            slot.response.cancel()
        self._slots.clear()
        self._listener.turns.forget(self, self.peer.host)
        self._listener.release(self)
        self._writing_paused = False
        self._unread.end()
        logger.debug("connection %d closed%s", self._number, f": {error}" if error else "")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        self.last_active = self._loop.time()
        try:
            for frame in self._reader.received(count):
                self._queue.append(frame)
                if len(frame) > SCRATCH_BYTES:
                    self._held += len(frame)
                self.frame_began = None
        except FrameRefused as error:
            self.close(str(error))
            return
        if self._reader.in_frame and self.frame_began is None:
            self._client_owes(self.last_active)
        if self._queue and (self.peer.is_let_in or self._is_strangers_turn()):
            self._handle_queued()
        self._adjust_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._unread.begin(self._loop.time())

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._unread.end()
        self.last_active = self._loop.time()
        self._handle_queued()
        self._adjust_reading()

    # Requests in, responses out

    def _handle_queued(self) -> None:
        if self._queue:
            self._handle_while_allowed()
        if self._queue and self._blocked is not None and self._blocked.hurry is not None:
            self._blocked.hurry.ask()

    def _handle_while_allowed(self) -> None:
        if self._throttled is not None:
            return
        queue = self._queue
        while queue and self._blocked is None and not self._writing_paused and not self._closing:
            if len(self._slots) >= REQUESTS_QUEUED_MAX:
                return
            frame = queue.popleft()
            cost = _counted(len(frame))
            try:
                outcome = self._listener.dispatch(frame, self.peer)
            except Disconnect as error:
                self.close(str(error))
                return
            except Exception as error:  # a bug; it must not leave a client waiting forever
                told = "request of connection %d failed: %s; the connection is closed"
                logger.error(told, self._number, reason_of(error), exc_info=unexpected(error))
                self.close(f"its request failed: {error!r}")
                return
            if isinstance(outcome, Pending):
                outcome.request_bytes = cost
                self._slots.append(outcome)
                if not outcome.pipelined:
                    self._blocked = outcome
                outcome.response.add_done_callback(self._answered)
            else:
                self._held -= cost
                if self._slots:
                    ready: asyncio.Future[Response] = self._loop.create_future()
                    ready.set_result(outcome)
                    self._slots.append(Pending(ready))
                else:
                    self._send(outcome)
            if self.peer.throttled_seconds:
                self._throttle()
                return
            turns = self._listener.turns
            if queue and not (turns.may_go_on(self) if self.peer.is_let_in else self._is_strangers_turn()):
                return

    def go_on(self) -> None:
        """Does what there is to do: it is this connection's turn again."""
        if self._has_left:
            self.close(self.peer.farewell)
        self._send_answers()

    def _is_strangers_turn(self) -> bool:
        """Whether it is; if not, `go_on` is called when it is. All that strangers make the node do waits for its turn:
        hundreds that were refused at about the same time are to be told so, and closed, at about the same time."""
        return self._listener.turns.is_due(self, self.peer.host)

    def _answered(self, _response: asyncio.Future[Response]) -> None:
        if not self._closing and (self.peer.is_let_in or self._is_strangers_turn()):
            self._send_answers()

    def _send_answers(self) -> None:
        """Those that are due, and handles the requests that waited for them."""
        if self._closing:
            return
        while self._slots and self._slots[0].response.done():
            slot = self._slots.popleft()
            self._held -= slot.request_bytes
            if slot is self._blocked:
                self._blocked = None
            if slot.response.cancelled():
                self.close("its request was cancelled")
                return
            error = slot.response.exception()
            if error is not None:
                self.close(str(error) if isinstance(error, Disconnect) else f"its request failed: {error!r}")
                return
            self._send(slot.response.result())
            if self.peer.farewell and not self._slots:  # what says why is the last of them: it blocks those behind it
                self._part()
                return
        if self.peer.throttled_seconds:
            self._throttle()
        self.last_active = self._loop.time()
        self._handle_queued()
        self._adjust_reading()

    def _throttle(self) -> None:
        """Its client has used more than its quota: what comes next waits, and the longest wait counts."""
        until = self._loop.time() + self.peer.throttled_seconds
        self.peer.throttled_seconds = 0.0
        if self._throttled is not None:
            if self._throttled.when() >= until:
                return
            self._throttled.cancel()
        self._throttled = self._loop.call_at(until, self._unthrottle)

    def _unthrottle(self) -> None:
        self._throttled = None
        self.last_active = self._loop.time()
        self._handle_queued()
        self._adjust_reading()

    def _part(self) -> None:
        """Leaves the client time to read why: some look at the end of a connection first, and miss what came before."""
        self._queue.clear()
        self.stop_reading()
        self._end_after(FAREWELL_SECONDS, self._leave)

    def _leave(self) -> None:
        self._has_left = True
        if self.peer.is_let_in or self._is_strangers_turn():
            self.close(self.peer.farewell)

    def _send(self, response: Response) -> None:
        if response is None:
            return
        if len(response) == 1:
            self._transport.write(response[0])
        else:
            self._transport.writelines(response)
        if self._unread.bytes:
            self._unread.sent(sum(map(len, response)))

    # Limits

    def _adjust_reading(self) -> None:
        if self._closing:
            return
        wanted = self._held + _counted(self._reader.memory_wanted)
        has_room = not (wanted or self._has_share) or self._listener.has_room(self, wanted)
        self._has_share = wanted > 0
        wait = (
            self._stopping
            or self._throttled is not None
            or (self._writing_paused and bool(self._queue))
            or len(self._queue) >= REQUESTS_QUEUED_MAX
            or (not self.peer.is_let_in and bool(self._slots or self._queue))
            or not has_room
        )
        if wait and not self._reading_paused:
            self._reading_paused = True
            self.frame_began = None  # from now on it is not the client that is late
            self._transport.pause_reading()
        elif not wait and self._reading_paused:
            self._reading_paused = False
            if self._reader.in_frame:
                self._client_owes(self._loop.time())
            self._transport.resume_reading()

    def _client_owes(self, now: float) -> None:
        self.frame_began = now
        self._pace = now, self._reader.received_bytes

    def granted(self) -> None:
        """Reads on: there is room for what this connection has been waiting for."""
        self._loop.call_soon(self._adjust_reading)

    # The listener's side

    @property
    def waits_for_client(self) -> bool:
        """Whether nothing happens here until the client reads or writes."""
        return self._writing_paused or not (self._slots or self._queue or self._throttled)

    @property
    def is_throttled(self) -> bool:
        return self._throttled is not None

    @property
    def has_lost_client(self) -> bool:
        """Whether the client is gone: a socket that is not read does not tell."""
        return not self._transport.is_closing() and has_hung_up(self._transport.get_extra_info("socket"))

    def look_whether_it_reads(self, now: float) -> None:
        if self._unread.are_read(now):
            self.last_active = now

    def unread_seconds(self, now: float) -> float:
        """Returns how long its client has not read its responses; 0 when it has none to read."""
        return self._unread.seconds(now)

    def is_too_slow(self, now: float) -> bool:
        """Whether the client owes the rest of a large request, and sends it more slowly than it must while others wait
        for the memory that it takes."""
        if self.frame_began is None or not _counted(self._reader.memory_wanted):
            return False
        since, received = self._pace
        seconds = now - since
        if seconds < self._listener.limits.frame_rate_seconds:
            return False
        self._pace = now, self._reader.received_bytes
        return self._reader.received_bytes - received < FRAME_RATE_BYTES_MIN * seconds

    def unanswered(self) -> list[asyncio.Future[Response]]:
        return [slot.response for slot in self._slots]

    def stop_reading(self) -> None:
        """Stops reading: from now on only what has arrived is answered."""
        self._stopping = True
        self._adjust_reading()

    def close_unread(self, reason: str) -> None:
        """Closes, and drops unread answers at once: others wait for that memory."""
        self.close(reason)
        self._transport.abort()

    def close(self, reason: str) -> None:
        if self._closing:
            return
        self._closing = True
        logger.info("connection %d from %s:%d closed: %s", self._number, self.peer.host, self.peer.port, reason)
        self._transport.close()
        # A client that does not read must not keep a closed connection alive.
        self._end_after(self._listener.limits.linger_seconds, self._transport.abort)


def _counted(size: int) -> int:
    """Returns what a request takes of the memory for large ones. Small ones take none: they must never wait for it."""
    return size if size > SCRATCH_BYTES else 0
