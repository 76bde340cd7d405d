"""State of a socket in the kernel: bytes not yet received by the client, and whether the client has disconnected.

A socket becomes writable again only when a third of its send buffer (megabytes on Linux) is free. Judged by that alone,
a client that reads 400 kB/s would seem to be stalled for four seconds. On other systems the buffers are small.
"""

from __future__ import annotations

import select
import socket
import struct
import sys

if sys.platform == "linux":
    import fcntl
    import termios

    def send_queue_bytes(sock: socket.socket) -> int:
        """Return the bytes in the socket's send queue."""
        (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(count)

    def is_closed_by_peer(sock: socket.socket) -> bool:
        """Return whether the client has closed its end, even if there is unread data."""
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

else:

    def send_queue_bytes(sock: socket.socket) -> int:
        """Return 0: the size of the send queue is only available on Linux."""
        return 0

    def is_closed_by_peer(sock: socket.socket) -> bool:
        """Return False: the state is only available on Linux."""
        return False
