"""One connection between two nodes, dialled or accepted: the handshake, then frames both ways."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import sys
import termios
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from chronik.errors import BadMessage
from chronik.files import Buffer
from chronik.peers.frames import SCRATCH_BYTES, Frame, FrameKind, FrameRefused, FrameSplitter, encode_frame
from chronik.peers.handshake import DialerHandshake, Handshake, HandshakeFailed

logger = logging.getLogger("chronik.raft")

HANDSHAKE_SECONDS_MAX: Final = 5.0
"""Time for four small messages; a peer that takes longer holds a descriptor for nothing."""

UNSENT_BYTES_HIGH: Final = 1024 * 1024
"""How much the socket may hold unsent. Further frames wait in our own queue, where the old ones can be dropped."""

UNACKNOWLEDGED_SECONDS_MAX: Final = 15
"""A connection is given up when the other machine does not acknowledge for this long what was sent to it."""

PING_SECONDS: Final = 0.5
SILENT_PINGS_MAX: Final = 6
"""The end that dialled pings twice a second, and is answered. When nothing at all has come for six pings, the line is
taken for cut: a new connection works as soon as the line does, while the old one waits for TCP's next attempt, which
comes the later the longer the cut was. A line that becomes slow, 1.2 s each way, is silent for 2.4 s. Pings are
counted, not seconds: a node that was paused itself has to look at what has come before it calls others silent.

A ping that is still on its way behind a large message cannot be answered: as long as the other machine takes what was
sent before it, the line is slow, not cut."""


class ConnectionOwner(Protocol):
    def connection_opened(self, connection: PeerConnection) -> None:
        """Is called when the handshake is done: `connection.peer` is who it says it is."""

    def frames_received(self, connection: PeerConnection, frames: Sequence[Frame]) -> None:
        """May raise BadMessage; then the connection is closed."""

    def writing_resumed(self, connection: PeerConnection) -> None: ...

    def connection_closed(self, connection: PeerConnection) -> None: ...


_scratch: Final = memoryview(bytearray(SCRATCH_BYTES))


class PeerConnection(asyncio.BufferedProtocol):
    def __init__(self, owner: ConnectionOwner, handshake: Handshake, ping: bytes | None = None) -> None:
        """`ping` is what this end, if it dialled, sends again and again for the other end to answer."""
        self._owner = owner
        self._handshake = handshake
        self._ping = ping
        self._has_dialled = isinstance(handshake, DialerHandshake)
        self._is_watched = ping is not None
        self._pings_unanswered = 0
        self._handed_bytes = 0
        self._delivered_bytes = 0
        """What the other machine had acknowledged at the last look."""
        self._oldest_ping_end: int | None = None
        """How much was handed over up to the end of the oldest unanswered ping."""
        self._splitter = FrameSplitter(_scratch)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Rings first if the handshake takes too long, then to look whether the other end is silent."""
        self._hang_up: Callable[[], None] | None = None
        """Ends what carries it, while that is not ready to be spoken over."""
        self.host = "?"
        self._address = "?"
        self.is_closing = False
        self.is_paused = False

    def arrived(self, host: str, port: int, hang_up: Callable[[], None]) -> None:
        """Notes where it comes from, before it can be spoken over: TLS comes first."""
        self.host, self._address, self._hang_up = host, f"{host}:{port}", hang_up

    def bind_to(self, certificates: bytes) -> None:
        """Has the handshake hold for a connection with these certificates alone."""
        self._handshake.certificates = certificates

    @property
    def has_begun(self) -> bool:
        """Whether it can be spoken over, or TLS is on its way."""
        return self._transport is not None or self._handshake.certificates != b""

    @property
    def peer(self) -> int:
        return self._handshake.peer

    @property
    def is_open(self) -> bool:
        return self.has_been_open and not self.is_closing

    @property
    def has_greeted(self) -> bool:
        """Whether it has said who it is; whether that is true is another matter."""
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
            self._handed_bytes += sum(map(len, frames))

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """Gives the connection up, with one line in the log."""
        if self.is_closing:
            return
        self.is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._log_close(reason, level)
        if self._transport is not None:
            self._transport.abort()  # what was not sent is lost, as any message may be
        elif self._hang_up is not None:
            self._hang_up()

    def _log_close(self, reason: str, level: int) -> None:
        """Log the peer by its node id wherever it is known: this end knows whom it dialled. The log limits the lines of
        each kind, so that a flood of unauthenticated connections does not suppress the lines about peers."""
        if self._handshake.is_done:
            logger.log(level, "peer connection with node %d at %s closed: %s", self.peer, self._address, reason)
        elif self._has_dialled:
            told = "peer connection to node %d at %s closed during the handshake: %s"
            logger.log(level, told, self.peer, self._address, reason)
        elif self.has_greeted:
            told = "unauthenticated peer connection from %s closed: %s; it claimed to be node %d"
            logger.log(level, told, self._address, reason, self.peer)
        else:
            logger.log(level, "unauthenticated peer connection from %s closed: %s", self._address, reason)

    # ------------------------------------------------------------------------------------------- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_closing:  # closed between its arrival and this call
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.host = name[0]
            self._address = f"{name[0]}:{name[1]}"
        _watch_the_line(transport.get_extra_info("socket"))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_SECONDS_MAX, self._handshake_is_late)
        first = self._handshake.begin()
        if first is not None:
            self.send([encode_frame(FrameKind.HANDSHAKE, first)])

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._splitter.buffer()

    def buffer_updated(self, count: int) -> None:
        if self.is_closing:
            return
        self._splitter.received(count)
        self._pings_unanswered = 0
        self._oldest_ping_end = None
        frames: list[Frame] = []
        try:
            while (frame := self._splitter.next()) is not None:
                if self._handshake.is_done:
                    frames.append(frame)
                else:
                    self._shake_hands(frame)
            if frames:
                self._owner.frames_received(self, frames)
        except (FrameRefused, HandshakeFailed, BadMessage) as error:
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

    # ------------------------------------------------------------------------------------------------- the handshake

    def _shake_hands(self, frame: Frame) -> None:
        if frame.kind is not FrameKind.HANDSHAKE:
            raise HandshakeFailed("data received before the handshake was completed")
        answer = self._handshake.receive(bytes(frame.content))
        if answer is not None:
            self.send([encode_frame(FrameKind.HANDSHAKE, answer)])
        if self._handshake.is_done:
            self._splitter.trust()
            if self._timer is not None:
                self._timer.cancel()
            self._look()
            self._owner.connection_opened(self)

    def _handshake_is_late(self) -> None:
        self.close(f"handshake not completed within {HANDSHAKE_SECONDS_MAX:.0f} s", logging.WARNING)

    # --------------------------------------------------------------------------------------------------------- silence

    def pinged(self) -> None:
        """Notes that the other end pings: when it stops, it is cut off. (Nodes of earlier versions never ping.)"""
        self._is_watched = True

    def _look(self) -> None:
        if self._is_watched and self._pings_unanswered >= SILENT_PINGS_MAX:
            self.close(f"no data received for {PING_SECONDS * SILENT_PINGS_MAX:g} s")
            return
        self._pings_unanswered = 0 if self._gets_through() else self._pings_unanswered + 1
        if self._ping is not None:
            self.send([self._ping])
            self._oldest_ping_end = self._oldest_ping_end or self._handed_bytes
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._look)

    def _gets_through(self) -> bool:
        """Whether less is outstanding before the oldest ping than at the last look. A ping that has arrived does not
        count: the machine of a process that is stopped acknowledges it, and nobody answers."""
        before, self._delivered_bytes = self._delivered_bytes, self._handed_bytes - self._outstanding_bytes()
        return self._oldest_ping_end is not None and before < self._delivered_bytes < self._oldest_ping_end

    def _outstanding_bytes(self) -> int:
        connected = self._transport.get_extra_info("socket") if self._transport is not None else None
        return self.unsent_bytes + (_unacknowledged_bytes(connected) if connected is not None else 0)


def _unacknowledged_bytes(connected: socket.socket) -> int:
    """Returns what the kernel holds: not sent yet, or not known to have arrived. A slow line keeps megabytes there."""
    count = bytearray(4)
    try:
        fcntl.ioctl(connected.fileno(), termios.TIOCOUTQ, count)
    except OSError:
        return 0  # a system that does not tell
    return int.from_bytes(count, sys.byteorder)


def _watch_the_line(connected: socket.socket | None) -> None:
    """Has the kernel watch the line: a machine that loses its power sends no farewell, and looks alive for minutes."""
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, UNACKNOWLEDGED_SECONDS_MAX // 3)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, UNACKNOWLEDGED_SECONDS_MAX // 3)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_SECONDS_MAX * 1000)
