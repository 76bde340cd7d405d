"""What the system knows of a connection: how much of what was sent it still holds because the other end has no room for
it, which shows whether a slow client reads at all; and whether the other end is gone.

A socket is writable again only when a third of its buffer, which has megabytes on Linux, is free: judged by that alone,
a client that reads 400 kB a second would seem to stand still for four. Elsewhere buffers are small, and need no look.
"""

from __future__ import annotations

import select
import socket
import struct
import sys

if sys.platform == "linux":
    import fcntl
    import termios

    def bytes_in_system(sock: socket.socket) -> int:
        (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(count)

    def has_hung_up(sock: socket.socket) -> bool:
        """Whether the other end has closed, also while there is something left to read."""
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

else:

    def bytes_in_system(sock: socket.socket) -> int:
        return 0

    def has_hung_up(sock: socket.socket) -> bool:
        return False
