"""The token of a Spark Connect server goes to the address that it listens on, and to nobody beside it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from chronik.pipeline.spark.connect import Server

pytestmark = pytest.mark.slow

grpc: Any = pytest.importorskip("grpc")

SECONDS_MAX = 60.0
REFUSED = "UNIMPLEMENTED"

DIALLING = """
import sys
from chronik.pipeline.spark.runtime import session
try:
    session(sys.argv[1], **{"spark.sql.session.timeZone": "UTC"})
except Exception as error:
    print(error)
"""

Heard = list[tuple[str, str | None]]


@contextmanager
def listening(address: str, port: int, heard: Heard) -> Iterator[int]:
    """A server that notes who is given which token, and refuses all."""

    class Noting(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> None:
            heard.append((address, dict(call.invocation_metadata).get("authorization")))

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Noting()], options=[("grpc.so_reuseport", 0)])
    bound = server.add_secure_port(f"{address}:{port}", grpc.local_server_credentials())
    server.start()
    try:
        yield bound
    finally:
        server.stop(None).wait()


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="nobody can listen on ::1 here")
def test_token_is_sent_only_to_ipv4_loopback_address() -> None:
    heard: Heard = []
    with listening("127.0.0.1", 0, heard) as port, listening("[::1]", port, heard):
        server = Server(os.getpid(), "", port, "SECRET", "local[1]", "")
        command = [sys.executable, "-c", DIALLING, server.url]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert REFUSED in ran.stdout, ran.stderr
    assert set(heard) == {("127.0.0.1", "Bearer SECRET")}
