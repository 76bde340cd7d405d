"""An asyncio transport that adds TLS between a socket transport and a protocol that is unaware of it.

The event loop's own `ssl=` is not used for three reasons: a protocol is notified of a connection only after the
handshake, so handshakes could not be limited per address; the certificate cannot change after the start; and a 16 MB
response is encrypted in one call while other connections wait. This transport passes bytes through OpenSSL in memory,
in slices.

Data that is written but not encrypted yet counts as unsent, like the socket's write buffer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from chronik.limits import KIB, TLS_HANDSHAKE_BYTES_MAX
from chronik.scheduler import CallbackWork, EventLoopBudget

SLICE_BYTES: Final = 64 * KIB
"""Number of plaintext bytes to encrypt at a time (four TLS records), before other work may run."""

Buffer = bytes | bytearray | memoryview

_REASONS: Final = {
    "HTTP_REQUEST": "the peer does not use TLS",
    "WRONG_VERSION_NUMBER": "the peer does not use TLS",
    "UNSUPPORTED_PROTOCOL": "the peer supports no enabled TLS version",
    "VERSION_TOO_LOW": "the peer supports no enabled TLS version",
    "NO_SHARED_CIPHER": "the peer supports no enabled cipher suite",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer presented no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer does not trust our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer does not trust our certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate",
}

READ_BUFFER_BYTES: Final = 64 * KIB
"""Size of the buffer for one read from the socket."""

PROTOCOL_UNSENT_BYTES_MAX: Final = 64 * KIB
"""Maximum unsent bytes of the TLS protocol itself, such as key updates and alerts. Beyond it, the connection of a
client that does not read is closed."""

SMALL_RECORD_BYTES_MAX: Final = 4 * KIB

WHOLE_BUFFER: Final = 0
"""Argument of `SSLObject.read` that reads as many bytes as fit into the buffer."""

ALERT_SECONDS: Final = 1.0
"""Timeout in seconds for sending the alert of a failed handshake."""

_scratch: Final = memoryview(bytearray(READ_BUFFER_BYTES))
"""The read buffer that all connections share. Reads on one event loop never overlap."""


class EncryptionBacklog:
    """A FIFO buffer of plaintext that is not encrypted yet."""

    def __init__(self) -> None:
        self._buffers: deque[Buffer] = deque()
        self.size_bytes = 0

    def extend(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self._buffers.append(buffer)
            self.size_bytes += len(buffer)

    def clear(self) -> None:
        self._buffers.clear()
        self.size_bytes = 0

    def pop_slice(self) -> Buffer:
        """Remove and return up to SLICE_BYTES of plaintext. Small buffers are joined, as TLS records have overhead."""
        waiting = self._buffers
        taken: list[Buffer] = []
        free_bytes = SLICE_BYTES
        while waiting and free_bytes:
            buffer = waiting.popleft()
            if len(buffer) > free_bytes:
                view = memoryview(buffer)
                waiting.appendleft(view[free_bytes:])
                buffer = view[:free_bytes]
            if buffer:
                taken.append(buffer)
            free_bytes -= len(buffer)
        self.size_bytes -= SLICE_BYTES - free_bytes
        return taken[0] if len(taken) == 1 else b"".join(taken)


class TlsConnectionRejected(Exception):
    """The listener rejects a client after its TLS handshake, for the reason in the message."""


class TlsTransportOwner(Protocol):
    """The interface of the component that accepts TLS connections and creates their protocols."""

    @property
    def handshake_seconds(self) -> float: ...

    def on_handshake_started(self, transport: TlsTransport) -> bool:
        """Handle a new connection before any data is read: set its `loop_share`, or return False to reject it."""

    def on_handshake_done(self, transport: TlsTransport) -> asyncio.BufferedProtocol:
        """Return the protocol for an established connection, or raise TlsConnectionRejected."""

    def on_handshake_failed(self, transport: TlsTransport, reason: str | None) -> None:
        """Handle a failed handshake; the reason is None if the client disconnected."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """A TLS implementation between the socket's transport and a protocol, to which it acts as the transport."""

    def __init__(self, owner: TlsTransportOwner, context: ssl.SSLContext, *, is_client: bool = False) -> None:
        super().__init__()
        self._owner = owner
        self._context = context
        self._dials = is_client
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None  # created when the first bytes arrive: it takes dozens of kB
        self._socket: asyncio.Transport
        self._inner: asyncio.BufferedProtocol | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: str | None = None
        self._backlog = EncryptionBacklog()
        self._high = SLICE_BYTES
        self._inner_paused = False
        self._socket_paused = False
        self._reading_paused = False
        self._has_more = False  # whether the last buffer was filled, so more may be decrypted
        self._work: Final = CallbackWork(self._resume)
        self.loop_share: EventLoopBudget
        """The client's share of the event loop, to which the handshake's CPU time is charged."""
        self._closing = False
        self._is_lost = False
        self._handshake_bytes = 0
        self.has_received_bytes = False
        """Whether any bytes have been received."""

    @property
    def host(self) -> str:
        """Return the client's IP address."""
        name = self._socket.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else "?"

    @property
    def port(self) -> int:
        """Return the client's port."""
        name = self._socket.get_extra_info("peername")
        return int(name[1]) if isinstance(name, tuple) else 0

    @property
    def peer_certificate(self) -> bytes | None:
        """Return the verified certificate of the other end in DER format, or None."""
        return self._ssl.getpeercert(binary_form=True) if self._ssl is not None else None

    # Callbacks of the socket transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._socket.set_write_buffer_limits(high=self._high)
        if not self._owner.on_handshake_started(self):
            self._closing = True
            self._socket.abort()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._owner.handshake_seconds, self._on_handshake_timeout)
        if self._dials:
            self._do_handshake()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = self._closing = True
        self._backlog.clear()
        if self._work.is_queued:
            self.loop_share.withdraw(self._work)
        inner = self._inner
        if inner is not None:
            self._inner_paused = False
            inner.connection_lost(error)
        else:
            self._cancel_handshake_timer()
            self._owner.on_handshake_failed(self, self._failure)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _scratch

    def buffer_updated(self, count: int) -> None:
        if self._closing:
            return
        self._incoming.write(_scratch[:count])
        if self._inner is None:
            self.has_received_bytes = True
            self._handshake_bytes += count
            self._schedule_handshake()
        elif not self._reading_paused:
            self._decrypt(self._inner)

    def eof_received(self) -> bool:
        """Send the buffered data and then close, because the other end sends no more data.

        The socket stays open until everything is sent.
        """
        self._incoming.write_eof()
        if self._inner is None:
            self.abort_handshake(None)
        else:
            self.close()
        return True

    def pause_writing(self) -> None:
        self._socket_paused = True

    def resume_writing(self) -> None:
        self._socket_paused = False
        self._continue_writing()

    # The handshake

    def _schedule_handshake(self) -> None:
        """Schedule the next handshake step, which takes a millisecond of CPU time, or several with RSA.

        Reading is paused until then: a client may send megabytes after its handshake.
        """
        if self._handshake_bytes > TLS_HANDSHAKE_BYTES_MAX:
            self.abort_handshake(f"TLS handshake of more than {TLS_HANDSHAKE_BYTES_MAX} bytes")
            return
        if not self._work.is_queued:
            self.loop_share.run(self._work)
        if self._work.is_queued:
            self._socket.pause_reading()

    def _do_handshake(self) -> None:
        if self._ssl is None:
            self._ssl = self._context.wrap_bio(self._incoming, self._outgoing, server_side=not self._dials)
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._send_protocol_bytes()
            return
        except (ssl.SSLError, OSError, ValueError) as error:
            self._send_protocol_bytes()
            self.abort_handshake(describe_tls_error(error))
            return
        self._send_protocol_bytes()
        self._on_handshake_completed()

    def _on_handshake_completed(self) -> None:
        try:
            inner = self._owner.on_handshake_done(self)
        except TlsConnectionRejected as refused:
            self.abort_handshake(str(refused))
            return
        self._cancel_handshake_timer()
        self._inner = inner
        inner.connection_made(self)
        if not self._closing and not self._reading_paused:
            self._decrypt(inner)

    def _on_handshake_timeout(self) -> None:
        self.abort_handshake(f"TLS handshake not completed within {self._owner.handshake_seconds:g} s")

    def abort_handshake(self, reason: str | None) -> None:
        """Close a connection during its handshake. The TLS alert is sent if the socket accepts it."""
        if self._closing:
            return
        self._closing = True
        self._failure = reason
        self._cancel_handshake_timer()
        self._socket.close()
        asyncio.get_running_loop().call_later(ALERT_SECONDS, self._socket.abort)

    def _cancel_handshake_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Reading

    def _decrypt(self, inner: asyncio.BufferedProtocol) -> None:
        while not self._reading_paused and not self._closing:
            # No view of the buffer may be kept: the protocol may have to resize it.
            began = time.perf_counter()
            filled = self._fill(cast(memoryview, inner.get_buffer(-1)))
            self.loop_share.charge(time.perf_counter() - began)
            if filled:
                inner.buffer_updated(filled)
            if self._outgoing.pending:
                self._send_protocol_bytes()
            if not self._has_more:
                return

    def _fill(self, buffer: memoryview) -> int:
        """Decrypt TLS records into the buffer, and return the number of decrypted bytes.

        Some clients send one TLS record per Kafka record, so a record should cost a single OpenSSL call. The check for
        another record is limited to large and single records, because OpenSSL reports the absence of data by an
        exception.
        """
        read = cast("Callable[[int, memoryview], int]", cast(ssl.SSLObject, self._ssl).read)
        incoming, rest = self._incoming, buffer
        try:
            count = read(WHOLE_BUFFER, rest)
            small_bytes_max = SMALL_RECORD_BYTES_MAX if incoming.pending else 0
            while count:
                rest = rest[count:]
                if count > small_bytes_max and not incoming.pending:
                    break
                count = read(WHOLE_BUFFER, rest)
            if not count and rest:
                self._schedule_close(None)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._schedule_close(None)
        except (ssl.SSLError, OSError) as error:
            self._schedule_close(describe_tls_error(error))
        self._has_more = not rest
        return len(buffer) - len(rest)

    def _schedule_close(self, failure: str | None) -> None:
        """Schedule closing the connection after the decrypted data has been handled."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self.close if failure is None else self._socket.abort)

    def _send_protocol_bytes(self) -> None:
        """Send pending bytes of the TLS protocol itself, such as alerts and key updates."""
        if self._socket_paused and self._outgoing.pending < PROTOCOL_UNSENT_BYTES_MAX:
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
                tls.write(cast(bytes, self._backlog.pop_slice()))
                socket.write(outgoing.read())
                if self._socket_paused or not self._backlog.size_bytes:
                    break
                if not self.loop_share.may_continue():
                    self.loop_share.submit(self._work)
                    break
        except ssl.SSLError:  # the connection has failed, and the reason was logged when it was read
            socket.abort()

    def _resume(self) -> None:
        """Continue the handshake, or encrypt the plaintext that is still buffered."""
        if self._is_lost:
            return
        if self._inner is None:
            if not self._closing:
                self._do_handshake()
            if self.is_reading():
                self._socket.resume_reading()
        else:
            self._continue_writing()

    def _continue_writing(self) -> None:
        if self._work.is_queued:
            return
        if self._outgoing.pending and not self._socket_paused:
            self._socket.write(self._outgoing.read())
        if self._backlog.size_bytes and not self._socket_paused:
            self._encrypt()
        if self._backlog.size_bytes or self._socket_paused or self._work.is_queued:
            return
        if self._closing:
            self._send_close_notify()
        elif self._inner_paused and self._inner is not None:
            self._inner_paused = False
            self._inner.resume_writing()

    # Methods of asyncio.Transport

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
        """Resume reading. Received data is decrypted in the next event-loop iteration, not within this call."""
        self._reading_paused = False
        asyncio.get_running_loop().call_soon(self._continue_reading)

    def _continue_reading(self) -> None:
        if self._reading_paused or self._closing or self._inner is None:
            return
        self._decrypt(self._inner)
        if not self._reading_paused and not self._closing:
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the high-water mark. Writing resumes when all data is encrypted and the socket accepts more."""
        self._high = SLICE_BYTES if high is None else high
        self._socket.set_write_buffer_limits(high=self._high)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, self._high

    def get_write_buffer_size(self) -> int:
        return self._backlog.size_bytes + self._socket.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Send the buffered data, then close the connection."""
        if self._closing:
            return
        self._closing = True
        if not self._socket.is_closing():
            self._socket.pause_reading()
        if not self._backlog.size_bytes and not self._socket_paused:
            self._send_close_notify()

    def _send_close_notify(self) -> None:
        if self._socket.is_closing():
            return
        with suppress(ssl.SSLError, OSError, ValueError):  # do not wait for the peer's close_notify
            cast(ssl.SSLObject, self._ssl).unwrap()
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()


def describe_tls_error(error: Exception) -> str:
    """Return a readable message for an error of a TLS connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not trusted: {error.verify_message}"
    code = getattr(error, "reason", None) or str(error)
    return _REASONS.get(code, f"TLS failed: {code}")
