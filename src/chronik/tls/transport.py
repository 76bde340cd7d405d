"""A transport that encrypts: between a socket and a protocol that knows nothing of TLS.

Why not the `ssl=` of the loop: there a protocol hears of a connection only when its handshake is over, so that nobody
could count those that are not, by their addresses too; the certificate is that of the start; and an answer of 16 MB is
encrypted at one go, while all others wait. Here bytes go through OpenSSL in memory, in slices.

What was written and not encrypted yet counts as not sent, as does what the socket holds.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from chronik.limits import KIB, TLS_HANDSHAKE_BYTES_MAX
from chronik.scheduler import Callback, LoopShare
from chronik.tls.backlog import SLICE_BYTES, Backlog
from chronik.tls.reasons import reason_of

SCRATCH_BYTES: Final = 64 * KIB
"""Room for one read from the socket."""

REPLIES_UNREAD_BYTES_MAX: Final = 64 * KIB
"""What TLS itself has to say (new keys, farewells) to who reads nothing. Each reply has some dozens of bytes."""

SMALL_RECORD_BYTES_MAX: Final = 4 * KIB

ALL_OF_BUFFER: Final = 0
"""What `read` takes for "as much as there is room for"."""

FAREWELL_SECONDS: Final = 1.0
"""How long the reason of a failed handshake may take to be sent."""

_scratch: Final = memoryview(bytearray(SCRATCH_BYTES))
"""Reads on one loop never overlap."""


class TlsRefused(Exception):
    """The handshake is over, and still the other end may not come in; the message is its one log line."""


class TlsOwner(Protocol):
    @property
    def handshake_seconds(self) -> float: ...

    def handshake_began(self, transport: TlsTransport) -> bool:
        """Is called for each new connection, before anything is read. Sets `share`; returns whether it may go on."""

    def handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        """Returns who speaks over the connection from now on. Raises TlsRefused."""

    def handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        """Is called once if it was not done; without a reason if the other end just went away."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """Is a protocol to the socket's transport, and a transport to the protocol that its owner names."""

    def __init__(self, owner: TlsOwner, context: ssl.SSLContext, *, dials: bool = False) -> None:
        super().__init__()
        self._owner = owner
        self._context = context
        self._dials = dials
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None  # made when the first bytes come: it takes dozens of kB
        self._socket: asyncio.Transport
        self._inner: asyncio.BufferedProtocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: str | None = None
        self._backlog = Backlog()
        self._high = SLICE_BYTES
        self._inner_paused = False
        self._socket_paused = False
        self._reading_paused = False
        self._has_more = False  # after a buffer was filled
        self._work: Final = Callback(self._resume)
        self.share: LoopShare
        """Of the handshake at first; the owner may set another one when that is done."""
        self._closing = False
        self._is_lost = False
        self._handshake_bytes = 0
        self.has_spoken = False
        """Whether anything has come from the other end."""

    @property
    def host(self) -> str:
        name = self._socket.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else "?"

    @property
    def port(self) -> int:
        name = self._socket.get_extra_info("peername")
        return int(name[1]) if isinstance(name, tuple) else 0

    @property
    def peer_certificate(self) -> bytes | None:
        """The other end's certificate in DER, if it has shown one; it was checked."""
        return self._ssl.getpeercert(binary_form=True) if self._ssl is not None else None

    # The socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._socket.set_write_buffer_limits(high=self._high)
        if not self._owner.handshake_began(self):
            self._closing = True
            self._socket.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._owner.handshake_seconds, self._handshake_is_late)
        if self._dials:
            self._shake_hands()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = self._closing = True
        self._backlog.clear()
        if self._work.is_queued:
            self.share.withdraw(self._work)
        inner = self._inner
        if inner is not None:
            self._inner_paused = False
            inner.connection_lost(error)
        else:
            self._end_handshake()
            self._owner.handshake_failed(self, self._failure)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _scratch

    def buffer_updated(self, count: int) -> None:
        if self._closing:
            return
        self._incoming.write(_scratch[:count])
        if self._inner is None:
            self.has_spoken = True
            self._handshake_bytes += count
            self._shake_hands_fairly()
        elif not self._reading_paused:
            self._decrypt(self._inner)

    def eof_received(self) -> bool:
        """The other end is gone, or says no more: as without TLS, what was written is sent, and then it is over. The
        socket stays until that is done."""
        self._incoming.write_eof()
        if self._inner is None:
            self.give_up(None)
        else:
            self.close()
        return True

    def pause_writing(self) -> None:
        self._socket_paused = True

    def resume_writing(self) -> None:
        self._socket_paused = False
        self._go_on_writing()

    # The handshake

    def _shake_hands_fairly(self) -> None:
        """Continue the handshake when the scheduler allows it: it takes up to a millisecond, or several with a large
        RSA key. Nothing is read until then: a client may send megabytes behind its handshake."""
        if self._handshake_bytes > TLS_HANDSHAKE_BYTES_MAX:
            self.give_up(f"its TLS handshake has more than {TLS_HANDSHAKE_BYTES_MAX} bytes")
            return
        if not self._work.is_queued:
            self.share.run(self._work)
        if self._work.is_queued:
            self._socket.pause_reading()

    def _shake_hands(self) -> None:
        if self._ssl is None:
            self._ssl = self._context.wrap_bio(self._incoming, self._outgoing, server_side=not self._dials)
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send_replies()
            return
        except (ssl.SSLError, OSError, ValueError) as error:
            self._send_replies()
            self.give_up(reason_of(error))
            return
        self._send_replies()
        self._welcome()

    def _welcome(self) -> None:
        try:
            inner = self._owner.handshake_done(self)
        except TlsRefused as refused:
            self.give_up(str(refused))
            return
        self._end_handshake()
        self._inner = inner
        inner.connection_made(self)
        if not self._closing and not self._reading_paused:
            self._decrypt(inner)

    def _handshake_is_late(self) -> None:
        self.give_up(f"its TLS handshake took more than {self._owner.handshake_seconds:g} s")

    def give_up(self, reason: str | None) -> None:
        """Ends the connection, which is nobody's yet. What TLS has to say about it is sent if it can be at once."""
        if self._closing:
            return
        self._closing = True
        self._failure = reason
        self._end_handshake()
        self._socket.close()
        asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self._socket.abort)

    def _end_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Reading

    def _decrypt(self, inner: asyncio.BufferedProtocol) -> None:
        while not self._reading_paused and not self._closing:
            # Nobody keeps a view of the buffer: the protocol may want to make it larger.
            began = time.perf_counter()
            filled = self._fill(cast(memoryview, inner.get_buffer(-1)))
            self.share.charge(time.perf_counter() - began)
            if filled:
                inner.buffer_updated(filled)
            if self._outgoing.pending:
                self._send_replies()
            if not self._has_more:
                return

    def _fill(self, buffer: memoryview) -> int:
        """Decrypts into the buffer what there is, record by record, and returns how much it was. Some clients make a
        record of TLS of each of Kafka's: a call for each is all that may be spent on it. Whether there is another is
        asked only after large ones, and where one came alone: OpenSSL tells, but by an exception."""
        read = cast("Callable[[int, memoryview], int]", cast(ssl.SSLObject, self._ssl).read)
        incoming, rest = self._incoming, buffer
        try:
            count = read(ALL_OF_BUFFER, rest)
            small_bytes_max = SMALL_RECORD_BYTES_MAX if incoming.pending else 0
            while count:
                rest = rest[count:]
                if count > small_bytes_max and not incoming.pending:
                    break
                count = read(ALL_OF_BUFFER, rest)
            if not count and rest:
                self._is_over(None)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._is_over(None)
        except (ssl.SSLError, OSError) as error:
            self._is_over(reason_of(error))
        self._has_more = not rest
        return len(buffer) - len(rest)

    def _is_over(self, failure: str | None) -> None:
        """Closes after what was decrypted has been handled."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self.close if failure is None else self._socket.abort)

    def _send_replies(self) -> None:
        """Sends what TLS itself has to say."""
        if self._socket_paused and self._outgoing.pending < REPLIES_UNREAD_BYTES_MAX:
            return
        if self._socket_paused:
            self._socket.abort()
        elif self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    # Writing

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._closing:
            return
        self._backlog.extend(list_of_data)
        if not self._socket_paused and not self._work.is_queued:
            self._encrypt()
        if not self._inner_paused and self._inner is not None and self.get_write_buffer_size() > self._high:
            self._inner_paused = True
            self._inner.pause_writing()

    def _encrypt(self) -> None:
        tls, outgoing, socket = cast(ssl.SSLObject, self._ssl), self._outgoing, self._socket
        try:
            while self._backlog.size_bytes:
                tls.write(cast(bytes, self._backlog.next_slice()))
                socket.write(outgoing.read())
                if self._socket_paused or not self._backlog.size_bytes:
                    break
                if not self.share.may_continue():
                    self.share.submit(self._work)
                    break
        except ssl.SSLError:  # it ended in the midst of it; why was said where it was read
            socket.abort()

    def _resume(self) -> None:
        """Continue the handshake, or encrypt what is left to be written."""
        if self._is_lost:
            return
        if self._inner is None:
            if not self._closing:
                self._shake_hands()
            if self.is_reading():
                self._socket.resume_reading()
        else:
            self._go_on_writing()

    def _go_on_writing(self) -> None:
        if self._work.is_queued:
            return
        if self._outgoing.pending and not self._socket_paused:
            self._socket.write(self._outgoing.read())
        if self._backlog.size_bytes and not self._socket_paused:
            self._encrypt()
        if self._backlog.size_bytes or self._socket_paused or self._work.is_queued:
            return
        if self._closing:
            self._say_farewell()
        elif self._inner_paused and self._inner is not None:
            self._inner_paused = False
            self._inner.resume_writing()

    # What a transport can do

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner = cast(asyncio.BufferedProtocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._inner)

    def is_closing(self) -> bool:
        return self._closing or self._socket.is_closing()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """What has come already is decrypted first, in a moment: the protocol may be in the midst of something."""
        self._reading_paused = False
        asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._reading_paused or self._closing or self._inner is None:
            return
        self._decrypt(self._inner)
        if not self._reading_paused and not self._closing:
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Writing is resumed when everything is encrypted and the socket takes more, whatever `low` is."""
        self._high = SLICE_BYTES if high is None else high
        self._socket.set_write_buffer_limits(high=self._high)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, self._high

    def get_write_buffer_size(self) -> int:
        return self._backlog.size_bytes + self._socket.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Sends what was written, then ends."""
        if self._closing:
            return
        self._closing = True
        if not self._socket.is_closing():
            self._socket.pause_reading()
        if not self._backlog.size_bytes and not self._socket_paused:
            self._say_farewell()

    def _say_farewell(self) -> None:
        if self._socket.is_closing():
            return
        with suppress(ssl.SSLError, OSError, ValueError):  # it would wait for the other's farewell, which nobody needs
            cast(ssl.SSLObject, self._ssl).unwrap()
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()
