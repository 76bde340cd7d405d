"""One client's connection: requests are handled in order, and answered in order.

As in Kafka, a connection's next request waits until the one before is answered, so that what a client sends after
another request sees its effect. The exception is a request whose effect is already ordered (a produce that waits for
the disk or for followers): the next one starts meanwhile, and its response waits its turn. While followers have a
long backlog, a produce request is no exception: see `chronik.broker.uncommitted`.

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
from typing import Any, Final, Protocol, cast

from chronik.addresses import network_of
from chronik.errors import reason_of, unexpected
from chronik.exchange import Disconnect, Dispatch, Outbox, Peer, Reply, Response, account_key
from chronik.limits import FRAME_RATE_BYTES_MIN, REQUESTS_QUEUED_MAX, RESPONSES_UNSENT_BYTES_MAX
from chronik.scheduler import Account, Scheduler, Work
from chronik.server.frames import SCRATCH_BYTES, FrameReader, FrameRefused
from chronik.server.listener_limits import ListenerLimits
from chronik.server.places import Place
from chronik.server.send_queue import has_hung_up
from chronik.server.unread import UnreadResponses

logger = logging.getLogger("chronik.server")


REQUESTS_WHILE_QUEUED_MAX: Final = 4
"""Requests of a connection that waits for the scheduler, beyond which its socket is not read."""

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
    scheduler: Scheduler

    @property
    def connection_count(self) -> int: ...

    def scratch(self) -> memoryview: ...

    def admit(self, connection: Connection) -> bool: ...

    def release(self, connection: Connection) -> None: ...

    def has_room(self, connection: Connection, count: int) -> bool:
        """Whether its large requests may take `count` bytes; if not, `granted` is called when they may."""


class Connection(asyncio.BufferedProtocol, Work):
    """A client's connection. As work for the scheduler, it handles queued requests."""

    def __init__(self, listener: ConnectionOwner, name: str, number: int) -> None:
        """Create the connection of a client of the listener called `name`."""
        Work.__init__(self)
        self._listener = listener
        self._scheduler = listener.scheduler
        self._loop = listener.loop
        self._number = number
        self._reader = FrameReader(listener.scratch(), listener.limits.frame_bytes)
        self._queue: deque[bytearray] = deque()  # requests that wait to be handled
        self._replies: deque[Reply[Any]] = deque()  # to be sent in order
        self._blocked: Reply[Any] | None = None  # the one that must be answered before the next request starts
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
        self.peer.account = self._open_account()
        if not self._listener.admit(self):
            self.close(f"refused: {self.refusal}")
            return
        if self.peer.throttled_seconds:
            self._throttle()
        self._transport.set_write_buffer_limits(high=RESPONSES_UNSENT_BYTES_MAX)
        logger.debug("connection %d from %s:%d", self._number, self.peer.host, self.peer.port)
        if not self.peer.is_let_in:
            self._ask_who_it_is()

    def _open_account(self) -> Account:
        peer = self.peer
        if not peer.is_let_in:
            return self._scheduler.open_account(network_of(peer.host), is_authenticated=False)
        return self._scheduler.open_account(account_key(peer.principal, peer.host))

    def _change_account(self) -> None:
        """Charge the principal from now on, and no longer the address."""
        before, was_queued = self.peer.account, self.is_queued
        self._scheduler.withdraw(before, self)
        self.peer.account = self._open_account()
        self._scheduler.close_account(before)
        if was_queued:
            self._scheduler.submit(self.peer.account, self)

    def _ask_who_it_is(self) -> None:
        """Takes little of the client, and not for long, until it has said so."""
        allowed = self._listener.limits
        self._reader.allow(min(allowed.unauthenticated_frame_bytes, allowed.frame_bytes))
        told = f"it did not say who it is within {allowed.authentication_seconds:g} s"
        self._end_after(allowed.authentication_seconds, self.close, told)
        self.peer.when_let_in = self._let_in

    def _let_in(self) -> None:
        if not self._closing:  # who it is may be found out too late: then its end stays as it is
            self._change_account()
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
        for reply in self._replies:
            reply.cancel()
        self._replies.clear()
        self._scheduler.withdraw(self.peer.account, self)
        self._scheduler.close_account(self.peer.account)
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
        if self._queue and not self.is_queued:
            self._scheduler.run(self.peer.account, self)
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
        self._handle_later()
        self._adjust_reading()

    # Requests in, responses out

    def resume(self) -> None:
        """Send replies that are ready, and handle queued requests while there is time."""
        try:
            if self._has_left:
                self.close(self.peer.farewell)
            self._send_ready()
            if not self._closing:
                self._handle_queued()
                self._adjust_reading()
        except Exception as error:  # a bug; the client must not be left waiting
            self.close(f"its connection failed: {error!r}")
            raise

    def _handle_queued(self) -> None:
        if self._queue:
            self._handle_while_allowed()
        if self._queue and self._blocked is not None and self._blocked.hurry is not None:
            self._blocked.hurry.ask()

    def _handle_later(self) -> None:
        """Have queued requests handled when the scheduler allows it: the caller may be in the middle of something."""
        if self._queue and not self._closing and self._may_handle_next():
            self._scheduler.submit(self.peer.account, self)

    def _may_handle_next(self) -> bool:
        return (
            self._blocked is None
            and self._throttled is None
            and not self._writing_paused
            and len(self._replies) < REQUESTS_QUEUED_MAX
        )

    def _handle_while_allowed(self) -> None:
        queue = self._queue
        while queue and not self._closing and self._may_handle_next():
            frame = queue.popleft()
            cost = _counted(len(frame))
            try:
                reply = self._listener.dispatch(frame, self.peer)
            except Disconnect as error:
                self.close(str(error))
                return
            except Exception as error:  # a bug; it must not leave a client waiting forever
                told = "request of connection %d failed: %s; the connection is closed"
                logger.error(told, self._number, reason_of(error), exc_info=unexpected(error))
                self.close(f"its request failed: {error!r}")
                return
            if reply.is_ready and not self._replies:
                self._held -= cost
                self._send_reply(reply)
            else:
                reply.request_bytes = cost
                self._replies.append(reply)
                if not reply.is_ready:
                    if not reply.is_pipelined:
                        self._blocked = reply
                    reply.when_ready(self._reply_ready)
            if self.peer.throttled_seconds:
                self._throttle()
            if queue and not self._scheduler.has_time():
                self._scheduler.submit(self.peer.account, self)
                return

    def _reply_ready(self) -> None:
        """Send what is ready. Replies to unauthenticated clients, such as rejected logins, wait for the scheduler."""
        if self._closing:
            return
        if not self.peer.is_let_in:
            self._scheduler.submit(self.peer.account, self)
            return
        self._send_ready()
        self._handle_later()
        self._adjust_reading()

    def _send_ready(self) -> None:
        replies = self._replies
        if self._closing or not replies or not replies[0].is_ready:
            return
        while replies and replies[0].is_ready:
            reply = replies.popleft()
            self._held -= reply.request_bytes
            if reply is self._blocked:
                self._blocked = None
            if not self._send_reply(reply):
                return
            if self.peer.farewell and not replies:  # the last of them says why: it blocks those behind it
                self._part()
                return
        blocked = self._blocked
        if blocked is not None and blocked.may_pipeline is not None and blocked.may_pipeline():
            self._blocked = None
        if self.peer.throttled_seconds:
            self._throttle()
        self.last_active = self._loop.time()

    def _send_reply(self, reply: Reply[Any]) -> bool:
        """Send it, or close the connection if the request cannot be answered."""
        error = reply.error
        if error is not None:
            self.close(str(error) if isinstance(error, Disconnect) else f"its request failed: {error!r}")
            return False
        self._send(reply.frame)
        return True

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
        self._handle_later()
        self._adjust_reading()

    def _part(self) -> None:
        """Leaves the client time to read why: some look at the end of a connection first, and miss what came before."""
        self._queue.clear()
        self.stop_reading()
        self._end_after(FAREWELL_SECONDS, self._leave)

    def _leave(self) -> None:
        self._has_left = True
        self._scheduler.run(self.peer.account, self)

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
            or (not self.peer.is_let_in and bool(self._replies or self._queue))
            or (self.is_queued and len(self._queue) >= REQUESTS_WHILE_QUEUED_MAX)
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
        return self._writing_paused or not (self._replies or self._queue or self._throttled)

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
        return [reply.until_ready() for reply in self._replies if not reply.is_ready]

    @property
    def has_work(self) -> bool:
        """Whether requests have arrived that can be handled, or replies that can be sent."""
        return not self._closing and ((self._may_handle_next() and bool(self._queue)) or self.is_queued)

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
