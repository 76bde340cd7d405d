"""Attacks of unauthenticated clients on the HTTP port."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.console.http_client import http_get
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.abuse.attack import Attack, AttackTarget

HEAD: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
END: Final = b"\r\n\r\n"
ANSWER_SECONDS_MAX: Final = 20.0


def header(line: bytes) -> Callable[[AttackTarget], None]:
    """Return an attack that sends a request with this header. Each request must get a response."""

    def strike(target: AttackTarget) -> None:
        for _ in range(target.count(3, 20)):
            with target.open_socket(target.http, HEAD + line + END, ANSWER_SECONDS_MAX) as client:
                assert client.recv(65536).startswith(b"HTTP/1.1 ")

    return strike


def pipelined(target: AttackTarget) -> None:
    """Pipeline more requests than the socket buffers hold, and read nothing."""
    count = target.count(1_000, 20_000)
    for _ in range(8):
        client = target.open_socket(target.http)
        client.setblocking(False)
        for page in (b"/status", b"/metrics", b"/nowhere"):
            _push(client, target, (b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % page) * count)
        target.keep_open(client)


def _push(client: socket.socket, target: AttackTarget, data: bytes) -> None:
    try:
        target.meter.add(client.send(data))
    except BlockingIOError:
        return


def request_status_pages(target: AttackTarget) -> None:
    """Request the status page as fast as one connection allows."""
    with target.open_socket(target.http) as client:
        for _ in range(target.count(10, 200)):
            client.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
            target.meter.add(470)
            responses = 0
            while responses < 10:
                responses += client.recv(1 << 20).count(b"HTTP/1.1 200")


def slow_heads(target: AttackTarget) -> None:
    for _ in range(target.count(60, 2_000)):
        target.keep_open(target.open_socket(target.http, HEAD))
    _check_health(target)


def connection_flood(target: AttackTarget) -> None:
    deadline = time.monotonic() + target.count(1, 5)
    while time.monotonic() < deadline:
        for _ in range(50):
            target.open_socket(target.http, HEAD).close()
        _check_health(target)


def _check_health(target: AttackTarget) -> None:
    status, _ = http_get(target.http, "/healthz", ANSWER_SECONDS_MAX)
    assert status == 200


def large_group(target: AttackTarget) -> None:
    """Commit offsets with metadata of 4 kB, close to the limit of a group."""
    count = target.count(100, LARGE_GROUP_OFFSETS)
    with ClusterClient(target.victim.bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic("noted", count, 1)])
        for first in range(0, count, 100):
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="x" * 4000)
                for index in range(first, first + 100)
            ]
            topic = OffsetCommitRequestTopic(name="noted", partitions=partitions)
            request = OffsetCommitRequest(group_id="noted", topics=[topic])
            answer = client.retry(lambda: client.coordinator("noted")).request(request, OffsetCommitResponse)
            assert not any(each.error_code for each in answer.topics[0].partitions)


def request_group_page(target: AttackTarget) -> None:
    for _ in range(3):
        status, body = http_get(target.http, "/status/groups/noted", ANSWER_SECONDS_MAX)
        target.meter.add(60)
        assert status == 200
        assert len(body) > 4000 * target.count(100, LARGE_GROUP_OFFSETS)


LARGE_GROUP_OFFSETS: Final = 7_900

ATTACKS: Final = (
    Attack("http-spaces", "a header of 8,000 spaces and a line feed", header(b"x:" + b" " * 8000 + b"\na"), quick=True),
    Attack("http-spaces-and-nul", "a header of 8,000 spaces and a NUL", header(b"x:" + b" " * 8000 + b"\x00")),
    Attack("http-many-headers", "1,600 headers", header(b"x:y\r\n" * 1600 + b"x:y")),
    Attack("http-pipelined", "60,000 pipelined requests on eight connections, no response is read", pipelined),
    Attack("http-status-pages", "2,000 status pages, ten at a time, on one connection", request_status_pages),
    Attack("http-slow-heads", "2,000 connections with half a request each", slow_heads, quick=True),
    Attack("http-connection-flood", "connections that are closed immediately, as fast as possible", connection_flood),
    Attack("http-large-group", "a group page of 32 MB, three times", request_group_page, large_group),
)
