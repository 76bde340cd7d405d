"""Start of a Spark Python worker that connects to the JVM before it imports pyspark.

Spark runs `python -m MODULE` for the source of a streaming query, and allows ten seconds to connect and ten more to
authenticate; both are constants in Spark's code. The module imports pyspark first, which takes longer on a busy
machine, and Spark then fails the query with "Python worker failed to connect back". This program connects first; Spark
waits for the rest without a limit. (Other workers are forked by a daemon that has no such limit.)

The launcher (see `chronik.pipeline.spark.installation`) runs this file by its path, because importing the package takes
time.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RESPONSE_SECONDS_MAX = 120.0
"""Maximum time for the JVM to respond to the authentication secret. Only a suspended JVM does not respond."""

TIMEOUT_SECONDS = 15
"""Default timeout of pyspark's own socket, in seconds."""

LENGTH_BYTES = 4


def main(arguments: list[str]) -> None:
    """Connect to the JVM, then run the module named by `-m MODULE` as Python would."""
    connection = connect_to_jvm()
    module = arguments[1]
    sys.argv = arguments[1:]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # as with `python -m`, instead of the directory of this file
    if connection is not None:
        use_connection(connection)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def connect_to_jvm() -> socket.socket | None:
    """Return an authenticated connection to the JVM, or None on failure, which pyspark then reports."""
    try:
        connection = _open()
    except (OSError, ValueError):
        return None
    try:
        secret = os.environ.get("PYTHON_WORKER_FACTORY_SECRET")
        if _is_unix_domain() or _authenticate(connection, (secret or "").encode()):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def use_connection(connection: socket.socket) -> None:
    """Make pyspark use an existing connection to the JVM, instead of opening its own first connection."""
    import pyspark.util

    connect_and_authenticate: Callable[..., tuple[Any, ...]] = pyspark.util.local_connect_and_auth
    connections = [connection]

    def local_connect_and_auth(conn_info: str | int | None, auth_secret: str | None) -> tuple[Any, ...]:
        if not connections:
            return connect_and_authenticate(conn_info, auth_secret)
        pending = connections.pop()
        pending.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", TIMEOUT_SECONDS)))
        return pending.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", 65536))), pending

    pyspark.util.local_connect_and_auth = local_connect_and_auth


def _open() -> socket.socket:
    if _is_unix_domain():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
        return connection
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
    return socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])), RESPONSE_SECONDS_MAX)


def _is_unix_domain() -> bool:
    return "PYTHON_WORKER_FACTORY_SOCK_PATH" in os.environ


def _authenticate(connection: socket.socket, secret: bytes) -> bool:
    connection.sendall(len(secret).to_bytes(LENGTH_BYTES, "big") + secret)
    size = int.from_bytes(_read(connection, LENGTH_BYTES), "big")
    return _read(connection, size) == b"ok"


def _read(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError("the JVM closed the connection")
        received += part
    return received


if __name__ == "__main__":
    main(sys.argv[1:])
