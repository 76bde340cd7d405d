"""One client connection: requests are handled and answered in order, with back-pressure on the client.

As in Kafka, the next request of a connection is handled after the response to the previous one, so a request sees the
effects of earlier ones. The exception is a pipelined request whose effect is already ordered (a produce that waits for
the disk or for followers): the next request starts immediately, and its response waits. While followers have a long
backlog, produce requests are not pipelined: see `chronik.broker.uncommitted`.

Back-pressure: the node does not read from the socket while REQUESTS_QUEUED_MAX requests are queued, while the client
does not read its responses, or while there is no memory for a large request. Large requests count against that memory
from the arrival of their bytes until they are answered. While other connections wait for the memory, the rest of a
partially received request must arrive at a minimum rate.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec

from chronik import limits
from chronik.errors import exc_info_if_unexpected, find_root_cause
from chronik.ip_addresses import client_network
from chronik.limits import (
    FRAME_RATE_BYTES_MIN,
    REQUESTS_QUEUED_MAX,
    RESPONSE_RATE_BYTES_MIN,
    RESPONSES_UNSENT_BYTES_MAX,
)
from chronik.request_reply import (
    ConnectedClient,
    Disconnect,
    Dispatch,
    Reply,
    ResponseFrame,
    UnsentByteCounter,
    build_account_key,
)
from chronik.scheduler import Account, Scheduler, Work
from chronik.server.frames import READ_BUFFER_BYTES, FrameReader, InvalidFrameSize

logger = logging.getLogger("chronik.server")

REQUESTS_WHILE_QUEUED_MAX: Final = 4
"""Number of queued requests at which a connection that waits for the scheduler stops reading from its socket."""

CLOSE_DELAY_SECONDS: Final = 0.25
"""Delay in seconds between sending the final response to a rejected client and closing its connection."""


class ConnectionSlot(NamedTuple):
    """A client's slot in the connection limit, from before the TLS handshake until the connection closes."""

    host: str
    throttled_until: float
    """Event-loop time until which the client's requests are delayed because of the connection rate limit."""


class ConnectionStats(msgspec.Struct):
    """Connection statistics of one listener since the node started."""

    accepted: int = 0
    rejected: int = 0
    """Number of connections that were rejected because of a limit, before or after the TLS handshake."""
    open: int = 0
    throttled: int = 0
    """Number of connections that were accepted but delayed because of the connection rate limit."""
    throttled_seconds: float = 0.0


if sys.platform == "linux":
    import fcntl
    import termios

    def send_queue_bytes(sock: socket.socket) -> int:
        """Return the bytes in the socket's send queue."""
        (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(count)

    def is_closed_by_peer(sock: socket.socket) -> bool:
        """Return whether the client has closed its end of the connection, even if unread data remains."""
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

else:

    def send_queue_bytes(sock: socket.socket) -> int:
        """Return 0: the size of the send queue is only available on Linux."""
        return 0

    def is_closed_by_peer(sock: socket.socket) -> bool:
        """Return False: the TCP state is only available on Linux."""
        return False


class UnreadResponses:
    """The response bytes that a client has not read yet, and the time since it last read at the minimum rate.

    They are tracked only while the transport has paused writing because the kernel's send buffer is full.

    A socket becomes writable again only when a third of its send buffer (megabytes on Linux) is free. By that criterion
    alone, a client that reads 400 kB/s would appear stalled for four seconds, so the bytes in the kernel's send queue
    are counted as well. On other systems the buffers are small.
    """

    __slots__ = ("_last_progress", "_outbox", "_transport", "bytes")

    def __init__(self, transport: asyncio.Transport, outbox: UnsentByteCounter) -> None:
        self._transport = transport
        self._outbox = outbox
        self._last_progress = (0.0, 0)  # time of the last progress, and unread bytes at that time
        self.bytes = 0
        """Response bytes in the transport's write buffer, which count as unread by the client."""

    def start(self, now: float) -> None:
        """Start tracking unread responses, because the transport has paused writing."""
        self._update_unsent_bytes(self._transport.get_write_buffer_size())
        self._last_progress = now, self._count_unread_bytes()

    def stop(self) -> None:
        """Stop tracking unread responses, because all are written or the connection is closed."""
        self._update_unsent_bytes(0)

    def add(self, count: int) -> None:
        """Count the bytes of a new response as unread."""
        since, unread = self._last_progress
        self._last_progress = since, unread + count
        self._update_unsent_bytes(self._transport.get_write_buffer_size())

    def has_progress(self, now: float) -> bool:
        """Return whether the client has read at the minimum rate or faster since its last recorded progress."""
        if not self.bytes:
            return False
        self._update_unsent_bytes(self._transport.get_write_buffer_size())
        since, before = self._last_progress
        unread = self._count_unread_bytes()
        if unread >= before or before - unread < RESPONSE_RATE_BYTES_MIN * (now - since):
            return False
        self._last_progress = now, unread
        return True

    def stalled_seconds(self, now: float) -> float:
        """Return the seconds since the client last read at the minimum rate; 0 if it has no unread responses."""
        return now - self._last_progress[0] if self.bytes else 0.0

    def _update_unsent_bytes(self, unsent: int) -> None:
        growth = unsent - self.bytes
        self.bytes = unsent
        self._outbox.add(growth)

    def _count_unread_bytes(self) -> int:
        if self._transport.is_closing():  # its file descriptor may be closed or reused
            return self.bytes
        return self.bytes + send_queue_bytes(self._transport.get_extra_info("socket"))


class ListenerLimits(msgspec.Struct, frozen=True):
    """The limits of the client listeners of a node; tests lower them."""

    frame_bytes: int = limits.FRAME_BYTES_MAX
    frames_bytes: int = limits.FRAMES_BYTES_MAX
    frame_receive_seconds: float = limits.FRAME_RECEIVE_SECONDS_MAX
    frame_rate_seconds: float = limits.FRAME_RATE_SECONDS
    connections: int = limits.CONNECTIONS_MAX
    handshakes: int = limits.TLS_HANDSHAKES_MAX
    handshakes_per_address: int = limits.TLS_HANDSHAKES_PER_ADDRESS_MAX
    handshake_seconds: float = limits.TLS_HANDSHAKE_SECONDS_MAX
    idle_seconds: float = limits.CONNECTION_IDLE_SECONDS_MAX
    responses_bytes: int = limits.RESPONSES_BYTES_MAX
    response_stalled_seconds: float = limits.RESPONSE_STALLED_SECONDS_MAX
    unauthenticated_frame_bytes: int = limits.UNAUTHENTICATED_FRAME_BYTES_MAX
    authentication_seconds: float = limits.AUTHENTICATION_SECONDS_MAX
    linger_seconds: float = 5.0
    stop_seconds: float = 10.0


class ConnectionHost(Protocol):
    """The interface through which a connection uses its listener."""

    dispatch: Dispatch
    sasl_listeners: Collection[str]
    """Names of the listeners that require SASL authentication."""
    limits: ListenerLimits
    loop: asyncio.AbstractEventLoop
    unsent_bytes: UnsentByteCounter
    scheduler: Scheduler

    @property
    def connection_count(self) -> int: ...

    def read_buffer(self) -> memoryview: ...

    def admit(self, connection: ClientConnection) -> bool: ...

    def release(self, connection: ClientConnection) -> None: ...

    def reserve_memory(self, connection: ClientConnection, count: int) -> bool:
        """Reserve `count` bytes for the connection's large requests, or return False and notify it later."""


class ClientConnection(asyncio.BufferedProtocol, Work):
    """A connection of a Kafka client. The scheduler resumes it to handle its queued requests."""

    def __init__(self, listener: ConnectionHost, name: str, number: int) -> None:
        """Create a connection of a client that has connected to the listener `name`."""
        Work.__init__(self)
        self._listener = listener
        self._scheduler = listener.scheduler
        self._loop = listener.loop
        self._number = number
        self._reader = FrameReader(listener.read_buffer(), listener.limits.frame_bytes)
        self._queue: deque[bytearray] = deque()  # requests that wait to be handled
        self._replies: deque[Reply[Any]] = deque()  # pending replies in request order
        self._blocked: Reply[Any] | None = None  # the reply that must be sent before the next request is handled
        self._reading_paused = False
        self._writing_paused = False
        self._stopping = False
        self._closing = False
        self._throttled: asyncio.TimerHandle | None = None  # ends the throttling, which stops reading and handling
        self._held_bytes = 0  # bytes of large requests that are queued or not answered yet
        self._has_reserved_memory = False  # whether it has reserved memory for large requests
        self.last_active = self._loop.time()
        self.frame_started_at: float | None = None  # when the client began to send a request that is incomplete
        self._rate_sample = (0.0, 0)  # time and received bytes at the last measurement of the receive rate
        self.slot: ConnectionSlot | None = None
        self.rejection_reason = ""
        """Reason for rejecting the connection; empty if it is accepted."""
        self.client = ConnectedClient("?", 0, number, name, is_authenticated=name not in listener.sasl_listeners)
        self._close_timer: asyncio.TimerHandle | None = None  # closes the connection after a timeout
        self._is_close_due = False  # whether the delay after the last response is over
        self._transport: asyncio.Transport
        self._unread: UnreadResponses

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unread = UnreadResponses(self._transport, self._listener.unsent_bytes)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.client.host, self.client.port = name[0], name[1]
        self.client.account = self._open_account()
        if not self._listener.admit(self):
            self.close(f"rejected: {self.rejection_reason}")
            return
        if self.client.throttle_seconds:
            self._throttle_client()
        self._transport.set_write_buffer_limits(high=RESPONSES_UNSENT_BYTES_MAX)
        logger.debug("connection %d accepted: client=%s:%d", self._number, self.client.host, self.client.port)
        if not self.client.is_authenticated:
            self._require_authentication()

    def _open_account(self) -> Account:
        peer = self.client
        if not peer.is_authenticated:
            return self._scheduler.open_account(client_network(peer.host), is_authenticated=False)
        return self._scheduler.open_account(build_account_key(peer.principal, peer.host))

    def _switch_to_principal_account(self) -> None:
        """Account further work to the authenticated client's principal instead of its IP address."""
        before, was_queued = self.client.account, self.is_queued
        self._scheduler.withdraw(before, self)
        self.client.account = self._open_account()
        self._scheduler.close_account(before)
        if was_queued:
            self._scheduler.submit(self.client.account, self)

    def _require_authentication(self) -> None:
        """Limit the request size and set a deadline until the client has authenticated."""
        allowed = self._listener.limits
        self._reader.set_frame_bytes_max(min(allowed.unauthenticated_frame_bytes, allowed.frame_bytes))
        reason = f"authentication not completed within {allowed.authentication_seconds:g} s"
        self._schedule_close(allowed.authentication_seconds, self.close, reason)
        self.client.on_authenticated = self._on_authenticated

    def _on_authenticated(self) -> None:
        if not self._closing:  # authentication may succeed after the connection has begun to close
            self._switch_to_principal_account()
            self._cancel_close_timer()
            self._reader.set_frame_bytes_max(self._listener.limits.frame_bytes)

    def _schedule_close(self, seconds: float, end: Callable[..., None], *arguments: str) -> None:
        self._cancel_close_timer()
        self._close_timer = self._loop.call_later(seconds, end, *arguments)

    def _cancel_close_timer(self) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._cancel_close_timer()
        if self._throttled is not None:
            self._throttled.cancel()
        self._queue.clear()
        for reply in self._replies:
            reply.cancel()
        self._replies.clear()
        self._scheduler.withdraw(self.client.account, self)
        self._scheduler.close_account(self.client.account)
        self._listener.release(self)
        self._writing_paused = False
        self._unread.stop()
        logger.debug("connection %d closed%s", self._number, f": {error}" if error else "")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        self.last_active = self._loop.time()
        try:
            for frame in self._reader.split_received(count):
                self._queue.append(frame)
                if len(frame) > READ_BUFFER_BYTES:
                    self._held_bytes += len(frame)
                self.frame_started_at = None
        except InvalidFrameSize as error:
            self.close(str(error))
            return
        if self._reader.is_in_frame and self.frame_started_at is None:
            self._start_receive_timer(self.last_active)
        if self._queue and not self.is_queued:
            self._scheduler.run(self.client.account, self)
            if not self.is_queued:
                return  # `resume` has adjusted reading
        self._adjust_reading()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._unread.start(self._loop.time())

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._unread.stop()
        self.last_active = self._loop.time()
        self._schedule_queued_requests()
        self._adjust_reading()

    # Requests and responses

    def resume(self) -> None:
        """Send the ready responses, and handle queued requests until the scheduler's time slice ends."""
        try:
            if self._is_close_due:
                self.close(self.client.close_reason)
            self._send_ready_replies()
            if not self._closing:
                self._handle_queued_requests()
                self._adjust_reading()
        except Exception as error:  # a bug: do not leave the client waiting
            self.close(f"internal error: {error!r}")
            raise

    def _handle_queued_requests(self) -> None:
        if self._queue:
            self._handle_requests_while_allowed()
        if self._queue and self._blocked is not None and self._blocked.early_completion is not None:
            self._blocked.early_completion.request()

    def _schedule_queued_requests(self) -> None:
        """Submit this connection to the scheduler, which will handle its queued requests."""
        if self._queue and not self._closing and self._may_handle_next_request():
            self._scheduler.submit(self.client.account, self)

    def _may_handle_next_request(self) -> bool:
        return (
            self._blocked is None
            and self._throttled is None
            and not self._writing_paused
            and len(self._replies) < REQUESTS_QUEUED_MAX
        )

    def _handle_requests_while_allowed(self) -> None:
        queue = self._queue
        while queue and not self._closing and self._may_handle_next_request():
            frame = queue.popleft()
            cost = _large_request_bytes(len(frame))
            try:
                reply = self._listener.dispatch(frame, self.client)
            except Disconnect as error:
                self.close(str(error))
                return
            except Exception as error:  # a bug: do not leave the client waiting
                message = "connection %d: request failed: %s; closing the connection"
                logger.error(message, self._number, find_root_cause(error), exc_info=exc_info_if_unexpected(error))
                self.close(f"request failed: {error!r}")
                return
            if reply.is_ready and not self._replies:
                self._held_bytes -= cost
                self._send_reply(reply)
            else:
                reply.request_bytes = cost
                self._replies.append(reply)
                if not reply.is_ready:
                    if not reply.is_pipelined:
                        self._blocked = reply
                    reply.set_ready_callback(self._on_reply_ready)
            if self.client.throttle_seconds:
                self._throttle_client()
            if queue and not self._scheduler.has_time():
                self._scheduler.submit(self.client.account, self)
                return

    def _on_reply_ready(self) -> None:
        """Send ready replies. For unauthenticated clients, the scheduler decides when to send them."""
        if self._closing:
            return
        if not self.client.is_authenticated:
            self._scheduler.submit(self.client.account, self)
            return
        self._send_ready_replies()
        self._schedule_queued_requests()
        self._adjust_reading()

    def _send_ready_replies(self) -> None:
        replies = self._replies
        if self._closing or not replies or not replies[0].is_ready:
            return
        while replies and replies[0].is_ready:
            reply = replies.popleft()
            self._held_bytes -= reply.request_bytes
            if reply is self._blocked:
                self._blocked = None
            if not self._send_reply(reply):
                return
            if self.client.close_reason and not replies:  # the last response states the reason
                self._close_after_last_response()
                return
        blocked = self._blocked
        if blocked is not None and blocked.may_pipeline is not None and blocked.may_pipeline():
            self._blocked = None
        if self.client.throttle_seconds:
            self._throttle_client()
        self.last_active = self._loop.time()

    def _send_reply(self, reply: Reply[Any]) -> bool:
        """Send the reply. If the request failed without a response, close the connection and return False."""
        error = reply.error
        if error is not None:
            self.close(str(error) if isinstance(error, Disconnect) else f"request failed: {error!r}")
            return False
        self._send(reply.frame)
        return True

    def _throttle_client(self) -> None:
        """Delay the client's next requests because of an exceeded quota, unless they are already delayed for longer."""
        until = self._loop.time() + self.client.throttle_seconds
        self.client.throttle_seconds = 0.0
        if self._throttled is not None:
            if self._throttled.when() >= until:
                return
            self._throttled.cancel()
        self._throttled = self._loop.call_at(until, self._stop_throttling_client)

    def _stop_throttling_client(self) -> None:
        self._throttled = None
        self.last_active = self._loop.time()
        self._schedule_queued_requests()
        self._adjust_reading()

    def _close_after_last_response(self) -> None:
        """Close the connection after a delay: some clients detect the closed socket before they read the response."""
        self._queue.clear()
        self.stop_reading()
        self._schedule_close(CLOSE_DELAY_SECONDS, self._close_when_scheduled)

    def _close_when_scheduled(self) -> None:
        self._is_close_due = True
        self._scheduler.run(self.client.account, self)

    def _send(self, response: ResponseFrame) -> None:
        if response is None:
            return
        if len(response) == 1:
            self._transport.write(response[0])
        else:
            self._transport.writelines(response)
        if self._unread.bytes:
            self._unread.add(sum(map(len, response)))

    # Limits

    def _adjust_reading(self) -> None:
        if self._closing:
            return
        required = self._reader.required_bytes
        wanted = self._held_bytes + (required if required > READ_BUFFER_BYTES else 0)
        has_room = not (wanted or self._has_reserved_memory) or self._listener.reserve_memory(self, wanted)
        self._has_reserved_memory = wanted > 0
        wait = (
            self._stopping
            or self._throttled is not None
            or (self._writing_paused and bool(self._queue))
            or len(self._queue) >= REQUESTS_QUEUED_MAX
            or (not self.client.is_authenticated and bool(self._replies or self._queue))
            or (self.is_queued and len(self._queue) >= REQUESTS_WHILE_QUEUED_MAX)
            or not has_room
        )
        if wait and not self._reading_paused:
            self._reading_paused = True
            self.frame_started_at = None  # from now on the delay is ours, not the client's
            self._transport.pause_reading()
        elif not wait and self._reading_paused:
            self._reading_paused = False
            if self._reader.is_in_frame:
                self._start_receive_timer(self._loop.time())
            self._transport.resume_reading()

    def _start_receive_timer(self, now: float) -> None:
        self.frame_started_at = now
        self._rate_sample = now, self._reader.received_bytes

    def on_memory_granted(self) -> None:
        """Continue reading a large request after the listener has reserved the memory for it."""
        self._loop.call_soon(self._adjust_reading)

    # Methods for the listener

    @property
    def is_waiting_for_client(self) -> bool:
        """Return whether the connection waits only for the client, either to send a request or to read responses."""
        return self._writing_paused or not (self._replies or self._queue or self._throttled)

    @property
    def is_throttled(self) -> bool:
        """Return whether the client's requests are delayed because a quota was exceeded."""
        return self._throttled is not None

    @property
    def has_client_disconnected(self) -> bool:
        """Return whether the client has disconnected. The transport does not detect this while reading is paused."""
        return not self._transport.is_closing() and is_closed_by_peer(self._transport.get_extra_info("socket"))

    def update_last_activity(self, now: float) -> None:
        """Update the time of the last activity if the client has read its responses at the minimum rate."""
        if self._unread.has_progress(now):
            self.last_active = now

    def stalled_seconds(self, now: float) -> float:
        """Return the seconds since the client's last read progress; 0 if all responses are sent."""
        return self._unread.stalled_seconds(now)

    def is_receiving_too_slowly(self, now: float) -> bool:
        """Return whether the client sends a large request below the minimum rate.

        The minimum rate applies while other connections wait for memory.
        """
        if self.frame_started_at is None or not _large_request_bytes(self._reader.required_bytes):
            return False
        since, received = self._rate_sample
        seconds = now - since
        if seconds < self._listener.limits.frame_rate_seconds:
            return False
        self._rate_sample = now, self._reader.received_bytes
        return self._reader.received_bytes - received < FRAME_RATE_BYTES_MIN * seconds

    def pending_replies(self) -> list[asyncio.Future[ResponseFrame]]:
        """Return the futures of the replies that are not ready yet."""
        return [reply.ready_future() for reply in self._replies if not reply.is_ready]

    @property
    def has_work(self) -> bool:
        """Return whether the connection can handle received requests or send ready replies."""
        return not self._closing and ((self._may_handle_next_request() and bool(self._queue)) or self.is_queued)

    def stop_reading(self) -> None:
        """Stop reading from the socket. Requests that have already arrived are still handled."""
        self._stopping = True
        self._adjust_reading()

    def close_and_discard(self, reason: str) -> None:
        """Close the connection without sending its buffered responses, to free memory for other connections."""
        self.close(reason)
        self._transport.abort()

    def close(self, reason: str) -> None:
        """Close the connection after the transport has sent its buffered responses, and log the reason."""
        if self._closing:
            return
        self._closing = True
        logger.info("connection %d from %s:%d closed: %s", self._number, self.client.host, self.client.port, reason)
        self._transport.close()
        # A client that does not read must not keep the connection open.
        self._schedule_close(self._listener.limits.linger_seconds, self._transport.abort)


def _large_request_bytes(size: int) -> int:
    """Return the size of a request that counts against the memory budget for large requests, else 0."""
    return size if size > READ_BUFFER_BYTES else 0
