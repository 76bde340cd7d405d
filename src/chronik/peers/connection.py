"""A connection between two nodes, dialed or accepted: a handshake, then frames in both directions."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import sys
import termios
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from chronik.errors import InvalidPeerMessage
from chronik.files import Buffer
from chronik.peers.frames import SCRATCH_BYTES, Frame, FrameKind, InvalidPeerFrame, PeerFrameDecoder, encode_frame
from chronik.peers.handshake import DialerHandshake, HandshakeFailed, PeerHandshake

logger = logging.getLogger("chronik.raft")

HANDSHAKE_SECONDS_MAX: Final = 5.0
"""The maximum duration of a peer connection's handshake in seconds."""

UNSENT_BYTES_HIGH: Final = 1024 * 1024
"""The high-water mark of the socket's write buffer in bytes, above which frames wait in the peer's send queue."""

UNACKNOWLEDGED_SECONDS_MAX: Final = 15
"""The time in seconds after which the kernel closes a connection with unacknowledged data (TCP_USER_TIMEOUT)."""

PING_SECONDS: Final = 0.5
UNANSWERED_PINGS_MAX: Final = 6
"""The number of unanswered pings after which a peer connection is closed.

The dialing end sends two pings per second. After a network failure, a new connection works immediately, while TCP backs
off retransmissions on the old one. The limit tolerates round-trip times of 2.4 s. Counting pings instead of seconds
allows a process that was paused to read the received data first.

A ping may be queued behind a large message. The connection counts as alive while the peer acknowledges data that
precedes the ping.
"""


class PeerConnectionOwner(Protocol):
    """The callbacks of a peer connection."""

    def connection_opened(self, connection: PeerConnection) -> None:
        """Handle the completion of the handshake, which has authenticated the node id `connection.peer`."""

    def frames_received(self, connection: PeerConnection, frames: Sequence[Frame]) -> None:
        """Handle received frames. Raise InvalidPeerMessage to close the connection."""

    def writing_resumed(self, connection: PeerConnection) -> None: ...

    def connection_closed(self, connection: PeerConnection) -> None: ...


_scratch: Final = memoryview(bytearray(SCRATCH_BYTES))


class PeerConnection(asyncio.BufferedProtocol):
    """An asyncio protocol for a connection to a peer, with the peer handshake, frames and pings."""

    def __init__(self, owner: PeerConnectionOwner, handshake: PeerHandshake, ping: bytes | None = None) -> None:
        """Create a connection. The dialing end passes the `ping` frame that it sends periodically."""
        self._owner = owner
        self._handshake = handshake
        self._ping = ping
        self._is_dialer = isinstance(handshake, DialerHandshake)
        self._expects_pings = ping is not None
        self._pings_unanswered = 0
        self._written_bytes = 0
        self._delivered_bytes = 0
        """The number of sent bytes that the peer's kernel had acknowledged at the last liveness check."""
        self._oldest_ping_end: int | None = None
        """The position of the end of the oldest unanswered ping in the stream of sent bytes, or None."""
        self._splitter = PeerFrameDecoder(_scratch)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        """The timer of the handshake timeout and, after the handshake, of the liveness checks."""
        self._abort: Callable[[], None] | None = None
        """The function that aborts the TCP connection during the TLS handshake."""
        self.host = "?"
        self._address = "?"
        self.is_closing = False
        self.is_paused = False

    def set_remote_address(self, host: str, port: int, hang_up: Callable[[], None]) -> None:
        """Set the remote address and the function that aborts the connection during the TLS handshake."""
        self.host, self._address, self._abort = host, f"{host}:{port}", hang_up

    def bind_certificates(self, certificates: bytes) -> None:
        """Bind the peer handshake to the TLS connection by its certificate fingerprints."""
        self._handshake.certificate_fingerprints = certificates

    @property
    def has_started(self) -> bool:
        """Whether the TCP connection or, with TLS, the TLS handshake is complete."""
        return self._transport is not None or self._handshake.certificate_fingerprints != b""

    @property
    def peer(self) -> int:
        return self._handshake.peer

    @property
    def is_open(self) -> bool:
        return self.has_been_open and not self.is_closing

    @property
    def has_received_hello(self) -> bool:
        """Whether the other end has sent a hello with its node id, which is not authenticated yet."""
        return self._handshake.peer >= 0

    @property
    def has_been_open(self) -> bool:
        return self._handshake.is_done

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def send(self, frames: Sequence[Buffer]) -> None:
        if self._transport is not None and not self.is_closing:
            self._transport.writelines(frames)
            self._written_bytes += sum(map(len, frames))

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """Close the peer connection and log the reason."""
        if self.is_closing:
            return
        self.is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._log_connection_close(reason, level)
        if self._transport is not None:
            self._transport.abort()  # unsent data is lost, as any message may be
        elif self._abort is not None:
            self._abort()

    def _log_connection_close(self, reason: str, level: int) -> None:
        """Log why the peer connection was closed, with the peer's node id if it is known.

        Each kind of line is rate-limited separately, so that a flood of unauthenticated connections does not suppress
        lines about peers.
        """
        if self._handshake.is_done:
            logger.log(level, "peer connection with node %d at %s closed: %s", self.peer, self._address, reason)
        elif self._is_dialer:
            message = "peer connection to node %d at %s closed during the handshake: %s"
            logger.log(level, message, self.peer, self._address, reason)
        elif self.has_received_hello:
            message = "unauthenticated peer connection from %s closed: %s; it claimed to be node %d"
            logger.log(level, message, self._address, reason, self.peer)
        else:
            logger.log(level, "unauthenticated peer connection from %s closed: %s", self._address, reason)

    # -------------------------------------------------------------------------------------------- asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_closing:  # closed before this callback
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.host = name[0]
            self._address = f"{name[0]}:{name[1]}"
        _enable_keepalive(transport.get_extra_info("socket"))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_SECONDS_MAX, self._on_handshake_timeout)
        first = self._handshake.start()
        if first is not None:
            self.send([encode_frame(FrameKind.HANDSHAKE, first)])

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._splitter.get_buffer()

    def buffer_updated(self, count: int) -> None:
        if self.is_closing:
            return
        self._splitter.buffer_updated(count)
        self._pings_unanswered = 0
        self._oldest_ping_end = None
        frames: list[Frame] = []
        try:
            while (frame := self._splitter.next_frame()) is not None:
                if self._handshake.is_done:
                    frames.append(frame)
                else:
                    self._continue_handshake(frame)
            if frames:
                self._owner.frames_received(self, frames)
        except (InvalidPeerFrame, HandshakeFailed, InvalidPeerMessage) as error:
            self.close(str(error), logging.WARNING)

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._owner.writing_resumed(self)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_closing:
            self.close(str(error) if error else "closed by the other end")
        self._owner.connection_closed(self)

    # ------------------------------------------------------------------------------------------------------ handshake

    def _continue_handshake(self, frame: Frame) -> None:
        if frame.kind is not FrameKind.HANDSHAKE:
            raise HandshakeFailed("data received before the handshake was completed")
        response = self._handshake.receive(bytes(frame.content))
        if response is not None:
            self.send([encode_frame(FrameKind.HANDSHAKE, response)])
        if self._handshake.is_done:
            self._splitter.allow_large_frames()
            if self._timer is not None:
                self._timer.cancel()
            self._check_liveness()
            self._owner.connection_opened(self)

    def _on_handshake_timeout(self) -> None:
        self.close(f"handshake not completed within {HANDSHAKE_SECONDS_MAX:.0f} s", logging.WARNING)

    # -------------------------------------------------------------------------------------------------- liveness checks

    def on_ping_received(self) -> None:
        """Record that the peer sends pings, so that a lack of pings closes the connection."""
        self._expects_pings = True

    def _check_liveness(self) -> None:
        if self._expects_pings and self._pings_unanswered >= UNANSWERED_PINGS_MAX:
            self.close(f"no data received for {PING_SECONDS * UNANSWERED_PINGS_MAX:g} s")
            return
        self._pings_unanswered = 0 if self._is_peer_acknowledging_data() else self._pings_unanswered + 1
        if self._ping is not None:
            self.send([self._ping])
            self._oldest_ping_end = self._oldest_ping_end or self._written_bytes
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._check_liveness)

    def _is_peer_acknowledging_data(self) -> bool:
        """Return whether the peer has recently acknowledged data that was sent before the oldest unanswered ping.

        Acknowledgement of the ping itself does not count, because the kernel acknowledges it even if the process hangs.
        """
        previous, self._delivered_bytes = self._delivered_bytes, self._written_bytes - self._get_outstanding_bytes()
        return self._oldest_ping_end is not None and previous < self._delivered_bytes < self._oldest_ping_end

    def _get_outstanding_bytes(self) -> int:
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return self.unsent_bytes + (_get_unacknowledged_bytes(sock) if sock is not None else 0)


def _get_unacknowledged_bytes(sock: socket.socket) -> int:
    """Return the number of bytes in the socket's send buffer that the peer has not acknowledged."""
    count = bytearray(4)
    try:
        fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, count)
    except OSError:
        return 0  # not supported on this system
    return int.from_bytes(count, sys.byteorder)


def _enable_keepalive(sock: socket.socket | None) -> None:
    """Enable TCP keepalive and TCP_USER_TIMEOUT, by which the failure of the peer's machine is detected."""
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, UNACKNOWLEDGED_SECONDS_MAX // 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, UNACKNOWLEDGED_SECONDS_MAX // 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_SECONDS_MAX * 1000)
