"""Ports that nobody else gets, for processes that are told theirs before they start."""

from __future__ import annotations

import socket
import sys
import weakref

HOST = "127.0.0.1"

HELD_WHILE_IN_USE = sys.platform == "linux"
"""On Linux a bound socket that does not listen, with SO_REUSEADDR, keeps a port from everyone who asks for any port
(listeners and outgoing connections alike) and lets in whoever asks for this one with SO_REUSEADDR, as servers do. So it
stays ours while its process is down. Elsewhere it must be let go before the process starts, and may be lost."""


class ReservedPorts:
    def __init__(self, count: int) -> None:
        sockets = [_bound() for _ in range(count)]
        self.ports: list[int] = [each.getsockname()[1] for each in sockets]
        # Who forgets them, or fails before the release, leaves no socket to be complained of in somebody else's test.
        self._closing = weakref.finalize(self, _close, sockets)
        if not HELD_WHILE_IN_USE:
            self.release()

    def release(self) -> None:
        self._closing()


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _bound() -> socket.socket:
    reserved = socket.socket()
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, 0))
    except BaseException:
        reserved.close()
        raise
    return reserved
