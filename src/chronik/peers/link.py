"""The outgoing connection to a peer, which is re-established when it is lost, and its send queue."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from chronik.config import Address
from chronik.errors import InvalidPeerMessage
from chronik.files import Buffer
from chronik.notifier import Notifier
from chronik.peers.calls import PING
from chronik.peers.connection import HANDSHAKE_SECONDS_MAX, PeerConnection
from chronik.peers.frames import FRAME_BYTES_MAX, Frame, FrameKind
from chronik.peers.handshake import DialerHandshake, PeerIdentity
from chronik.peers.tls import PeerTls

logger = logging.getLogger("chronik.raft")

MESSAGES_MAX: Final = 1024
MESSAGES_BYTES_MAX: Final = FRAME_BYTES_MAX + 8 * 1024 * 1024
"""The maximum number of messages queued for a peer, and their maximum total size in bytes.

The largest message must fit. The Raft core limits unacknowledged messages to 64 messages or 4 MiB, so only an
unresponsive peer reaches these limits.
"""

DISCONNECTED_MESSAGES_MAX: Final = 32
"""The maximum number of messages queued for a disconnected peer, such as votes; older messages are dropped."""

CALLS_BYTES_MAX: Final = FRAME_BYTES_MAX + 8 * 1024 * 1024
"""The maximum total size of the calls queued for a peer, in bytes."""

REDIAL_SECONDS_MIN: Final = 0.05
REDIAL_SECONDS_MAX: Final = 0.5
"""The minimum and maximum delay in seconds between attempts to connect to a peer.

Frequent attempts detect early that a network partition has healed. After a restart of the peer, its own dial triggers a
dial immediately.
"""

PARALLEL_DIAL_SECONDS: Final = 0.5
PARALLEL_DIALS_MAX: Final = 10
"""The interval in seconds between concurrent connection attempts to a peer, and their maximum number.

If the SYN packet of a dial is lost, the kernel retransmits it only after 1, 3 and 7 seconds, so another dial is started
in parallel.
"""

FAST_REDIAL_SECONDS: Final = 5.0
FAST_REDIAL_DELAY_SECONDS_MAX: Final = 0.15
"""The time after a lost connection in which a node redials faster, and the maximum delay in this time, in seconds.

A refused connection shows that the peer's process has stopped, which allows a faster failover.
"""

ANOTHER_DIAL_SUCCEEDED: Final = "another dial succeeded first"

WRITE_BYTES: Final = 256 * 1024
"""The maximum number of bytes passed to a peer's socket per write."""


class PeerSendQueue:
    """The bounded queue of Raft messages and calls to be sent to a peer.

    Messages are sent first and in order, so that a large call does not delay a leader's heartbeat. Messages may be
    lost: if there are too many, the oldest are dropped and the sender is notified. Calls are never dropped: if the
    queue is full, a call is rejected immediately.
    """

    def __init__(self) -> None:
        self.is_disconnected = True
        self._messages: deque[bytes] = deque()
        self._messages_bytes = 0
        self._calls: deque[bytes] = deque()
        self._calls_bytes = 0

    def __len__(self) -> int:
        return len(self._messages) + len(self._calls)

    @property
    def size_bytes(self) -> int:
        return self._messages_bytes + self._calls_bytes

    def put_message(self, frame: bytes) -> bool:
        """Add a Raft message; return False if the queue was full and an older message was dropped."""
        self._messages.append(frame)
        self._messages_bytes += len(frame)
        count_max = DISCONNECTED_MESSAGES_MAX if self.is_disconnected else MESSAGES_MAX
        is_complete = True
        while len(self._messages) > count_max or self._messages_bytes > MESSAGES_BYTES_MAX:
            self._messages_bytes -= len(self._messages.popleft())
            is_complete = False
        return is_complete

    def put_call(self, frame: bytes) -> bool:
        """Add a call; return False if the queue is full."""
        if self._calls_bytes + len(frame) > CALLS_BYTES_MAX:
            return False
        self._calls.append(frame)
        self._calls_bytes += len(frame)
        return True

    def take_frames(self, bytes_max: int) -> list[bytes]:
        """Remove and return frames from the front of the queue, up to `bytes_max` in total but at least one."""
        taken: list[bytes] = []
        size = 0
        for frames in (self._messages, self._calls):
            while frames and (not taken or size + len(frames[0]) <= bytes_max):
                frame = frames.popleft()
                size += len(frame)
                taken.append(frame)
                if frames is self._messages:
                    self._messages_bytes -= len(frame)
                else:
                    self._calls_bytes -= len(frame)
            if frames:
                break
        return taken

    def clear(self) -> None:
        """Drop all queued frames after the connection was lost, because they will be outdated."""
        self._messages.clear()
        self._calls.clear()
        self._messages_bytes = self._calls_bytes = 0


class PeerLinkOwner(Protocol):
    """The callbacks of a peer link."""

    def response_received(self, peer: int, content: Buffer) -> None: ...

    def link_opened(self, peer: int) -> None: ...

    def link_lost(self, peer: int) -> None:
        """Handle a lost connection to a peer, or a failed attempt to connect."""

    def link_refused(self, peer: int) -> None:
        """Handle a refused connection attempt, which shows that no process listens on the peer's port."""


class PeerLink:
    """A node's outgoing connection to a peer, which is re-established after failures, and its send queue."""

    def __init__(
        self,
        identity: PeerIdentity,
        peer: int,
        address: Address,
        owner: PeerLinkOwner,
        randomness: random.Random,
        tls: PeerTls | None = None,
    ) -> None:
        self.peer: Final = peer
        self.address: Final = address
        self.queue: Final = PeerSendQueue()
        self._identity = identity
        self._owner = owner
        self._random = randomness
        self._connection: PeerConnection | None = None
        self._is_closed = asyncio.Event()
        self._incoming_dials = Notifier()
        self._refused_since: float | None = None
        self._tls = tls
        self._tls_failed = False
        """Whether the TLS handshake of the last connection attempt failed."""

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    @property
    def refused_seconds(self) -> float:
        """The seconds since the peer started to refuse connection attempts, or 0 if it accepted the last one."""
        since = self._refused_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    def flush(self) -> None:
        connection = self._connection
        while connection is not None and connection.is_open and not connection.is_paused and len(self.queue):
            connection.send(self.queue.take_frames(WRITE_BYTES))

    def dial_now(self) -> None:
        """Connect without delay, because the peer has just connected to this node and is therefore up."""
        self._incoming_dials.notify()

    async def run(self) -> None:
        """Connect to the peer, and reconnect after failures, until cancelled."""
        loop = asyncio.get_running_loop()
        delay, lost_at = REDIAL_SECONDS_MIN, loop.time()
        try:
            while True:
                seen_dials = self._incoming_dials.generation
                if await self._connect_once():
                    delay, lost_at = REDIAL_SECONDS_MIN, loop.time()
                await self._incoming_dials.wait(seen_dials, delay * (0.5 + self._random.random()))
                is_eager = loop.time() - lost_at < FAST_REDIAL_SECONDS
                delay = min(2 * delay, FAST_REDIAL_DELAY_SECONDS_MAX if is_eager else REDIAL_SECONDS_MAX)
        finally:
            if self._connection is not None:
                self._connection.close("the node is shutting down", logging.DEBUG)

    async def _connect_once(self) -> bool:
        """Connect to the peer and wait until the connection is closed. Return whether the handshake was completed."""
        self._is_closed.clear()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS_MAX):
                connection = await self._dial()
        except (OSError, TimeoutError) as error:
            logger.debug("connection to node %d at %s failed: %s", self.peer, self.address, error or "timed out")
            self._owner.link_lost(self.peer)
            self._record_connection_refusal(error)
            return False
        self._refused_since = None
        self._connection = connection
        try:
            if not connection.is_closing:
                await self._is_closed.wait()
        finally:
            connection.close("the link was closed", logging.DEBUG)
            self._connection = None
        return connection.has_been_open

    async def _dial(self) -> PeerConnection:
        """Connect to the peer with concurrent attempts, and return the first connection that is established.

        Another dial is started at regular intervals, and immediately after the peer has dialed this node: the network
        works again, but the kernel would retransmit the SYN packets of earlier dials only later.
        """
        dials: set[asyncio.Task[PeerConnection]] = set()
        seen_dials = self._incoming_dials.generation
        wake_up: asyncio.Task[bool] | None = None
        try:
            while True:
                if len(dials) < PARALLEL_DIALS_MAX:
                    dials.add(asyncio.create_task(self._dial_once(), name=f"dial of node {self.peer}"))
                wake_up = asyncio.create_task(self._incoming_dials.wait(seen_dials, PARALLEL_DIAL_SECONDS))
                done, _ = await asyncio.wait({*dials, wake_up}, return_when=asyncio.FIRST_COMPLETED)
                for dial in dials & done:
                    dials.remove(dial)
                    return dial.result()
                seen_dials = self._incoming_dials.generation
        finally:
            if wake_up is not None:
                wake_up.cancel()
            for dial in dials:
                dial.add_done_callback(_close_dialed_connection)
                dial.cancel()

    async def _dial_once(self) -> PeerConnection:
        connection = PeerConnection(self, DialerHandshake(self._identity, self.peer), PING)
        try:
            await asyncio.get_running_loop().create_connection(self._create_protocol_factory(connection), *self.address)
        except asyncio.CancelledError:  # the connection may have been established at this moment
            connection.close(ANOTHER_DIAL_SUCCEEDED, logging.DEBUG)
            raise
        return connection

    def _create_protocol_factory(self, connection: PeerConnection) -> Callable[[], asyncio.BaseProtocol]:
        """Return the asyncio protocol factory of a connection attempt, with or without TLS."""
        tls = self._tls
        if tls is None or (self._tls_failed and not tls.is_required):
            self._tls_failed = False
            return lambda: connection
        return lambda: tls.dial(connection, self._on_tls_failure)

    def _on_tls_failure(self) -> None:
        self._tls_failed = True

    def _record_connection_refusal(self, error: Exception) -> None:
        """Record whether the failed connection attempt was refused, and notify the owner in this case.

        Refusals are not detected if the host has several addresses.
        """
        if not isinstance(error, ConnectionRefusedError):
            self._refused_since = None
            return
        if self._refused_since is None:
            self._refused_since = asyncio.get_running_loop().time()
        self._owner.link_refused(self.peer)

    # ----------------------------------------------------------------------------------------------- connection
    # callbacks

    def connection_opened(self, connection: PeerConnection) -> None:
        logger.info("connected to node %d at %s", self.peer, self.address)
        self._connection = connection
        self.queue.is_disconnected = False
        self.flush()
        self._owner.link_opened(self.peer)

    def frames_received(self, connection: PeerConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.kind is not FrameKind.RESPONSE:
                raise InvalidPeerMessage(f"unexpected {frame.kind.name.lower()} frame on an outgoing connection")
            self._owner.response_received(self.peer, frame.content)

    def writing_resumed(self, connection: PeerConnection) -> None:
        self.flush()

    def connection_closed(self, connection: PeerConnection) -> None:
        if connection is not self._connection:
            return  # another dial succeeded first
        self.queue.is_disconnected = True
        self.queue.clear()
        self._is_closed.set()
        self._owner.link_lost(self.peer)


def _close_dialed_connection(dial: asyncio.Task[PeerConnection]) -> None:
    """Close the connection of a concurrent attempt that is no longer needed."""
    if not dial.cancelled() and dial.exception() is None:
        dial.result().close(ANOTHER_DIAL_SUCCEEDED, logging.DEBUG)
