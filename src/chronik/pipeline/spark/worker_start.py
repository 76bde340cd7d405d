"""Start one of Spark's Python workers, with its connection to the JVM made before pyspark is imported.

Spark runs `python -m MODULE` for the source of a streaming query, and gives that process ten seconds to connect and ten
more to authenticate; both are constants in Spark's code. The module imports pyspark first, which takes longer than that
when processors and disks are busy, and Spark then fails the query: "Python worker failed to connect back". This program
connects first. Spark waits for the rest without a limit. (Other workers are forked by a daemon that has no such limit.)

The launcher of `chronik.pipeline.spark.python` runs this file by its path: importing the package would take time, too.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER_SECONDS_MAX = 120.0
"""For the JVM's answer to the secret; only a JVM that has stopped does not send it."""

TIMEOUT_SECONDS = 15
"""pyspark's default for the socket that it makes."""

LENGTH_BYTES = 4


def main(arguments: list[str]) -> None:
    """Run the module that `-m MODULE` names as Python would, connected."""
    connection = connect()
    module = arguments[1]
    sys.argv = arguments[1:]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # as `python -m` has it, instead of this file's folder
    if connection is not None:
        hand_over(connection)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def connect() -> socket.socket | None:
    """Return an authenticated connection to the JVM, or None if there is none to be had: pyspark then reports why."""
    try:
        connection = _open()
    except (OSError, ValueError):
        return None
    try:
        secret = os.environ.get("PYTHON_WORKER_FACTORY_SECRET")
        if _is_unix_domain() or _is_accepted(connection, (secret or "").encode()):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def hand_over(connection: socket.socket) -> None:
    """Let pyspark's first connection to the JVM be this one."""
    import pyspark.util

    connect_and_authenticate: Callable[..., tuple[Any, ...]] = pyspark.util.local_connect_and_auth
    unused = [connection]

    def local_connect_and_auth(conn_info: str | int | None, auth_secret: str | None) -> tuple[Any, ...]:
        if not unused:
            return connect_and_authenticate(conn_info, auth_secret)
        made = unused.pop()
        made.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", TIMEOUT_SECONDS)))
        return made.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", 65536))), made

    pyspark.util.local_connect_and_auth = local_connect_and_auth


def _open() -> socket.socket:
    if _is_unix_domain():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
        return connection
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
    return socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])), ANSWER_SECONDS_MAX)


def _is_unix_domain() -> bool:
    return "PYTHON_WORKER_FACTORY_SOCK_PATH" in os.environ


def _is_accepted(connection: socket.socket, secret: bytes) -> bool:
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
