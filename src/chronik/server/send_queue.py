"""How much of what was sent the system still holds, since the other end has no room for it: it tells of a slow reader
that it reads.

A socket is writable again only when a third of its buffer is free, which has megabytes on Linux: from that alone one
that takes 400 kB in a second would seem to stand still for four. Elsewhere buffers are small, and nothing is asked.
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
