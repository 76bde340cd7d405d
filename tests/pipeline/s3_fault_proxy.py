"""A fault-injecting HTTP proxy in front of an S3 server.

The proxy runs in its own process, because delta-rs holds the interpreter lock during listings. It forwards requests
unchanged, with the client's `Host` header, so that signatures stay valid. Rules select requests by operation and path,
and replace or delay their responses; a seed determines the random choices. The parent process controls the proxy with
JSON lines on its standard input, and the proxy exits at the end of the input.

    with run_s3_fault_proxy(server.endpoint) as proxy:
        proxy.inject(Fault(FaultKind.LOST_RESPONSE, [Operation.CONDITIONAL_PUT], count=1))
        ...
        assert proxy.read_report().injected == {"lost_response": 1}
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import h11

HOST = "127.0.0.1"
READ_BYTES = 1 << 16
REQUEST_SECONDS_MAX: Final = 60.0
"""Maximum time for which the proxy waits for the S3 server's response."""


class Operation(StrEnum):
    """An S3 operation, as far as the tests distinguish them."""

    GET = "get"
    HEAD = "head"
    LIST = "list"
    PUT = "put"
    CONDITIONAL_PUT = "conditional_put"
    DELETE = "delete"
    CREATE_UPLOAD = "create_upload"
    UPLOAD_PART = "upload_part"
    COMPLETE_UPLOAD = "complete_upload"
    ABORT_UPLOAD = "abort_upload"
    LIST_UPLOADS = "list_uploads"
    OTHER = "other"


def classify_request(method: str, target: str, *, is_conditional: bool) -> Operation:
    """Return the operation of a request."""
    names = parse_qs(urlsplit(target).query, keep_blank_values=True).keys()
    match method:
        case "GET" if "uploads" in names:
            return Operation.LIST_UPLOADS
        case "GET":
            return Operation.LIST if names & {"list-type", "prefix", "delimiter"} else Operation.GET
        case "HEAD":
            return Operation.HEAD
        case "PUT" if "partNumber" in names:
            return Operation.UPLOAD_PART
        case "PUT":
            return Operation.CONDITIONAL_PUT if is_conditional else Operation.PUT
        case "POST" if "uploads" in names:
            return Operation.CREATE_UPLOAD
        case "POST" if "uploadId" in names:
            return Operation.COMPLETE_UPLOAD
        case "POST" if "delete" in names:
            return Operation.DELETE
        case "DELETE":
            return Operation.ABORT_UPLOAD if "uploadId" in names else Operation.DELETE
    return Operation.OTHER


class FaultKind(StrEnum):
    """The kind of a fault."""

    LOST_REQUEST = "lost_request"
    """The connection is closed before the request reaches the server."""
    LOST_RESPONSE = "lost_response"
    """The server executes the request, and the connection is closed without a response."""
    TRUNCATED_BODY = "truncated_body"
    """The connection is closed after half of the response's body, or before its only byte."""
    DELAY = "delay"
    """The response is delayed by `delay_s`."""
    SLOW_DOWN = "slow_down"
    EXPIRED_TOKEN = "expired_token"
    UNKNOWN_KEY = "unknown_key"
    INTERNAL_ERROR = "internal_error"
    PRECONDITION_FAILED = "precondition_failed"
    CONFLICT = "conflict"


ERROR_RESPONSES: Final = {
    FaultKind.SLOW_DOWN: (503, "SlowDown"),
    FaultKind.EXPIRED_TOKEN: (403, "ExpiredToken"),
    FaultKind.UNKNOWN_KEY: (403, "InvalidAccessKeyId"),
    FaultKind.INTERNAL_ERROR: (500, "InternalError"),
    FaultKind.PRECONDITION_FAILED: (412, "PreconditionFailed"),
    FaultKind.CONFLICT: (409, "ConditionalRequestConflict"),
}
"""Status and S3 error code of the kinds that replace a response."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that injects a fault into matching requests. The first matching rule applies to a request."""

    kind: FaultKind
    operations: Sequence[Operation] = ()
    """The operations it applies to; empty for all."""
    path: str = ""
    """Regular expression that the path of the request must contain."""
    count: int | None = None
    """Number of requests that it applies to; None for no limit."""
    skip: int = 0
    """Number of matching requests that are forwarded first."""
    probability: float = 1.0
    """Probability with which it applies to a matching request."""
    delay_s: float = 0.0
    is_executed: bool = False
    """Whether the server executes the request before an error response replaces its own."""

    def matches(self, operation: Operation, path: str) -> bool:
        return (not self.operations or operation in self.operations) and re.search(self.path, path) is not None


@dataclass(frozen=True, slots=True)
class ProxyReport:
    """The requests that a proxy has received and the faults that it has injected, since the last reset."""

    requests: Counter[str] = field(default_factory=Counter)
    """Number of requests by operation."""
    injected: Counter[str] = field(default_factory=Counter)
    """Number of faults by kind."""
    times_s: dict[str, list[float]] = field(default_factory=dict)
    """Arrival times of the requests by operation, in seconds of the proxy's monotonic clock."""


class FaultProxyProcess:
    """A proxy process, controlled by its parent."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = f"http://{HOST}:{self._receive()['port']}"

    def inject(self, *faults: Fault) -> None:
        """Replace the rules, and reset the report."""
        self._call({"faults": [asdict(fault) for fault in faults]})

    def read_report(self) -> ProxyReport:
        found = self._call({"report": True})
        return ProxyReport(Counter(found["requests"]), Counter(found["injected"]), found["times_s"])

    def _call(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the S3 fault proxy exited with code {self._process.wait()}"
        return json.loads(line)


@contextmanager
def run_s3_fault_proxy(upstream: str, *, seed: int = 1, port: int = 0) -> Iterator[FaultProxyProcess]:
    """Run a proxy without faults in front of the S3 server with this endpoint."""
    command = [sys.executable, "-P", __file__, "--upstream", upstream, "--seed", str(seed), "--port", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield FaultProxyProcess(process)
        finally:
            process.kill()


# In the proxy's process


@dataclass(slots=True)
class _Rule:
    """A fault with its counters."""

    fault: Fault
    skipped: int = 0
    applied: int = 0

    def applies(self, operation: Operation, path: str, rng: random.Random) -> bool:
        """Return whether the fault applies to this request, and count it."""
        fault = self.fault
        if not fault.matches(operation, path) or (fault.count is not None and self.applied >= fault.count):
            return False
        if self.skipped < fault.skip:
            self.skipped += 1
            return False
        if fault.probability < 1.0 and rng.random() >= fault.probability:
            return False
        self.applied += 1
        return True


@dataclass(frozen=True, slots=True)
class _Response:
    head: h11.Response
    body: bytes


class FaultProxy:
    """The server of a proxy process."""

    def __init__(self, upstream: str, seed: int) -> None:
        parts = urlsplit(upstream)
        assert parts.hostname is not None
        assert parts.port is not None
        self._upstream = parts.hostname, parts.port
        self._rng = random.Random(seed)
        self._rules: list[_Rule] = []
        self._requests: Counter[str] = Counter()
        self._injected: Counter[str] = Counter()
        self._times_s: dict[str, list[float]] = {}

    def execute(self, command: dict[str, Any]) -> dict[str, Any]:
        """Execute a command of the parent process, and return its response."""
        if "faults" in command:
            self._rules = [
                _Rule(
                    Fault(
                        **each
                        | {
                            "kind": FaultKind(each["kind"]),
                            "operations": [Operation(name) for name in each["operations"]],
                        }
                    )
                )
                for each in command["faults"]
            ]
            self._requests.clear()
            self._injected.clear()
            self._times_s.clear()
        return {"requests": self._requests, "injected": self._injected, "times_s": self._times_s}

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until either side closes it."""
        connection = h11.Connection(h11.SERVER)
        try:
            with suppress(OSError, h11.RemoteProtocolError):
                while (received := await _read_request(connection, reader)) is not None:
                    if not await self._answer(connection, writer, *received) or connection.our_state is not h11.DONE:
                        break
                    connection.start_next_cycle()
        finally:
            writer.close()

    async def _answer(
        self, connection: h11.Connection, writer: asyncio.StreamWriter, request: h11.Request, body: bytes
    ) -> bool:
        """Answer one request; return False if the connection must be closed."""
        target = request.target.decode()
        is_conditional = any(name in (b"if-none-match", b"if-match") for name, _ in request.headers)
        operation = classify_request(request.method.decode(), target, is_conditional=is_conditional)
        self._requests[operation] += 1
        self._times_s.setdefault(operation, []).append(round(asyncio.get_running_loop().time(), 3))
        fault = self._choose_fault(operation, urlsplit(target).path)
        if fault is None:
            return _send(connection, writer, await self._forward(request, body))
        self._injected[fault.kind] += 1
        if fault.kind is FaultKind.LOST_REQUEST:
            return False
        if fault.kind in ERROR_RESPONSES:
            if fault.is_executed:
                await self._forward(request, body)
            return _send(
                connection, writer, _build_error_response(fault.kind, has_body=operation is not Operation.HEAD)
            )
        response = await self._forward(request, body)
        await asyncio.sleep(fault.delay_s)
        if fault.kind is FaultKind.LOST_RESPONSE:
            return False
        if fault.kind is FaultKind.TRUNCATED_BODY:
            writer.write(connection.send(response.head) or b"")
            writer.write(response.body[: len(response.body) // 2])
            await writer.drain()
            return False
        return _send(connection, writer, response)

    def _choose_fault(self, operation: Operation, path: str) -> Fault | None:
        return next((rule.fault for rule in self._rules if rule.applies(operation, path, self._rng)), None)

    async def _forward(self, request: h11.Request, body: bytes) -> _Response:
        """Send a request to the S3 server on a connection of its own, and return the response.

        Raises:
            OSError, h11.RemoteProtocolError: The server is not reachable, or closed the connection.
        """
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            connection = h11.Connection(h11.CLIENT)
            writer.write(connection.send(request) or b"")
            if body:
                writer.write(connection.send(h11.Data(body)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                return await _read_response(connection, reader)
        finally:
            writer.close()


def _build_error_response(kind: FaultKind, *, has_body: bool) -> _Response:
    status, code = ERROR_RESPONSES[kind]
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>injected fault</Message></Error>'.encode()
    if not has_body:
        body = b""
    headers = [("content-type", "application/xml"), ("content-length", str(len(body)))]
    return _Response(h11.Response(status_code=status, headers=headers), body)


def _send(connection: h11.Connection, writer: asyncio.StreamWriter, response: _Response) -> bool:
    writer.write(connection.send(response.head) or b"")
    if response.body:
        writer.write(connection.send(h11.Data(response.body)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    return True


async def _read_event(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(READ_BYTES))
    return event


async def _read_request(connection: h11.Connection, reader: asyncio.StreamReader) -> tuple[h11.Request, bytes] | None:
    """Return the next request with its body, or None if the client has closed the connection."""
    head = await _read_event(connection, reader)
    if not isinstance(head, h11.Request):
        return None
    return head, await _read_body(connection, reader)


async def _read_response(connection: h11.Connection, reader: asyncio.StreamReader) -> _Response:
    head = await _read_event(connection, reader)
    while isinstance(head, h11.InformationalResponse):
        head = await _read_event(connection, reader)
    assert isinstance(head, h11.Response)
    body = await _read_body(connection, reader)
    # The whole body is known, so that it is not sent in chunks. A response to HEAD keeps the length of the object.
    headers = [(name, value) for name, value in head.headers if name not in (b"transfer-encoding", b"connection")]
    if not any(name == b"content-length" for name, _ in headers) and head.status_code not in (204, 304):
        headers.append((b"content-length", str(len(body)).encode()))
    return _Response(h11.Response(status_code=head.status_code, headers=headers), body)


async def _read_body(connection: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while isinstance(event := await _read_event(connection, reader), h11.Data):
        chunks.append(bytes(event.data))
    return b"".join(chunks)


async def _run(upstream: str, seed: int, port: int) -> None:
    proxy = FaultProxy(upstream, seed)
    server = await asyncio.start_server(proxy.serve_connection, HOST, port, reuse_address=True)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    commands = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        print(json.dumps(proxy.execute(json.loads(line))), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", required=True, help="endpoint of the S3 server, such as http://127.0.0.1:8333")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    asyncio.run(_run(arguments.upstream, arguments.seed, arguments.port))


if __name__ == "__main__":
    main()
