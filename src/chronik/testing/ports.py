"""Reservation of free ports for processes that must know their port before they start."""

from __future__ import annotations

import socket
import sys
import weakref

HOST = "127.0.0.1"

KEEPS_RESERVATION = sys.platform == "linux"
"""Whether reserved ports can stay bound while in use. On Linux, a bound socket with SO_REUSEADDR that does not listen
keeps the port from being assigned to others, but allows a server to bind it explicitly with SO_REUSEADDR. On other
systems, the port must be released before the process starts, and may be lost."""


class ReservedPorts:
    """A set of free TCP ports that the operating system assigns to no other process until they are released."""

    def __init__(self, count: int) -> None:
        sockets = [_bind_free_port() for _ in range(count)]
        self.ports: list[int] = [each.getsockname()[1] for each in sockets]
        # The finalizer closes the sockets of tests that fail before `release`, which would cause warnings in others.
        self._closing = weakref.finalize(self, _close_sockets, sockets)
        if not KEEPS_RESERVATION:
            self.release()

    def release(self) -> None:
        """Release the reserved ports."""
        self._closing()


def _close_sockets(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _bind_free_port() -> socket.socket:
    reserved = socket.socket()
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, 0))
    except BaseException:
        reserved.close()
        raise
    return reserved
