"""Tests that the token of a Spark Connect server is sent only to the address that it listens on."""

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

from chronik.pipeline.spark.connect_server import ConnectServer

pytestmark = pytest.mark.slow

grpc: Any = pytest.importorskip("grpc")

SECONDS_MAX = 60.0
REJECTED = "UNIMPLEMENTED"

CONNECT_SCRIPT = """
import sys
from chronik.pipeline.spark.runtime import session
try:
    session(sys.argv[1], **{"spark.sql.session.timeZone": "UTC"})
except Exception as error:
    print(error)
"""

ReceivedTokens = list[tuple[str, str | None]]


@contextmanager
def recording_server(address: str, port: int, received: ReceivedTokens) -> Iterator[int]:
    """Run a server that records received tokens and rejects all calls; yields its port."""

    class RecordingHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: Any) -> None:
            received.append((address, dict(call.invocation_metadata).get("authorization")))

    server = grpc.server(ThreadPoolExecutor(2), handlers=[RecordingHandler()], options=[("grpc.so_reuseport", 0)])
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


@pytest.mark.skipif(not has_ipv6(), reason="::1 is not available on this machine")
def test_token_is_sent_only_to_ipv4_loopback_address() -> None:
    received: ReceivedTokens = []
    with recording_server("127.0.0.1", 0, received) as port, recording_server("[::1]", port, received):
        server = ConnectServer(os.getpid(), "", port, "SECRET", "local[1]", "")
        command = [sys.executable, "-c", CONNECT_SCRIPT, server.url]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert REJECTED in ran.stdout, ran.stderr
    assert set(received) == {("127.0.0.1", "Bearer SECRET")}
