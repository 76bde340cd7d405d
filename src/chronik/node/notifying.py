"""Tells the service manager that has started this process how far it is (systemd's `Type=notify`).

A datagram to the socket that it names in the environment; nothing happens where it names none.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

logger = logging.getLogger("chronik.node")

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(state: str) -> None:
    """Never fails: a node serves whether or not its manager hears of it."""
    name = os.environ.get(SOCKET_VARIABLE)
    if not name or not hasattr(socket, "AF_UNIX"):
        return
    # One that begins with @ has no file, which the system writes as a zero.
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
            sending.setblocking(False)
            sending.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("the service manager was not told %s: %s", state, error)
