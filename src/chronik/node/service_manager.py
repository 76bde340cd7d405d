"""Notification of the service manager about start and stop (systemd's `Type=notify`).

It sends a datagram to the socket in the environment variable NOTIFY_SOCKET; without the variable, it does nothing.
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


def notify_service_manager(state: str) -> None:
    """Send a state such as `READY=1` to the service manager (sd_notify). A failure is only logged."""
    name = os.environ.get(SOCKET_VARIABLE)
    if not name or not hasattr(socket, "AF_UNIX"):
        return
    # A name with @ is in the abstract namespace, which the kernel marks with a leading NUL byte.
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
            client.setblocking(False)
            client.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("service manager not notified: state=%s: %s", state, error)
