"""How much of what was sent the system still holds because the other end has no room for it: this shows whether a slow
client reads at all.

A socket is writable again only when a third of its buffer, which has megabytes on Linux, is free: judged by that alone,
a client that reads 400 kB a second would seem to stand still for four. Elsewhere buffers are small, and need no look.
"""

from __future__ import annotations

import socket
import struct
import sys

if sys.platform == "linux":
    import fcntl
    import termios

    def bytes_in_system(sock: socket.socket) -> int:
        (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(count)

else:

    def bytes_in_system(sock: socket.socket) -> int:
        return 0
