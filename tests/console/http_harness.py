"""An HTTP listener with a fake status source, and a raw HTTP client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from chronik.config import Address
from chronik.console.connection import HttpLimits
from chronik.console.listener import HttpListener
from chronik.console.status_source import Metric, NodeStats, Sample
from chronik.health.reports import HealthReport

DEADLINE_SECONDS = 60.0


class FakeSource:
    """A status source with fixed values."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.report: HealthReport | None = None
        self.groups: dict[str, dict[str, Any]] = {}
        self.status_value: dict[str, Any] = {"node_id": 1, "role": "leader"}

    def status(self) -> dict[str, Any]:
        return self.status_value

    def group(self, group_id: str) -> dict[str, Any] | None:
        return self.groups.get(group_id)

    def unready_reason(self) -> str | None:
        return self.reason

    async def health(self) -> HealthReport | None:
        return self.report

    def node_stats(self) -> NodeStats:
        return NodeStats(0, 0, 0, 0, 0, None, 0.0, (), ())

    def metrics(self) -> Iterable[Metric]:
        return [Metric("chronik_topics", "gauge", "Topics.", [Sample(7)])]


@dataclass
class RawResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


class RawHttpClient:
    """A raw HTTP client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def get(self, path: str) -> RawResponse:
        self.send(encode_request(path))
        return await self.read_response()

    async def read_response(self, *, to_head: bool = False) -> RawResponse:
        async with asyncio.timeout(DEADLINE_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in lines)}
            body = b"" if to_head else await self._body(headers)
        version, status, _ = line.split(" ", 2)
        assert version == "HTTP/1.1"
        return RawResponse(int(status), headers, body)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self._reader.readexactly(int(headers["content-length"]))
        assert headers["transfer-encoding"] == "chunked"
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += await self._reader.readexactly(size)
            assert await self._reader.readline() == b"\r\n"
        assert await self._reader.readline() == b"\r\n"
        return body

    async def is_closed(self) -> bool:
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                return await self._reader.read(1) == b""
            except ConnectionResetError:
                return True


def encode_request(path: str, method: str = "GET", host: str = "localhost", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


class ConsoleServer:
    """A running HTTP listener and its client connections."""

    def __init__(self, listener: HttpListener, address: Address) -> None:
        self.listener = listener
        self.address = address
        self._peers: list[RawHttpClient] = []

    async def connect(self) -> RawHttpClient:
        peer = RawHttpClient(*await asyncio.open_connection(*self.address))
        self._peers.append(peer)
        return peer

    async def get(self, path: str) -> RawResponse:
        return await (await self.connect()).get(path)

    async def close_connections(self) -> None:
        for peer in self._peers:
            peer.writer.close()


@asynccontextmanager
async def serve_console(
    source: FakeSource, limits: HttpLimits | None = None, token: str | None = None
) -> AsyncIterator[ConsoleServer]:
    listener = HttpListener(Address("127.0.0.1", 0), source, limits, token)
    served = ConsoleServer(listener, await listener.bind())
    await listener.serve()
    try:
        yield served
    finally:
        await served.close_connections()
        await listener.stop()
        assert listener.connection_count == 0
