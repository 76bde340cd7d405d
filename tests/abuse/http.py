"""What strangers send to the port that tells how a node is."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster
from chronik.console.ask import ask
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.abuse.attack import Attack, Target

HEAD: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
END: Final = b"\r\n\r\n"
ANSWER_SECONDS_MAX: Final = 20.0


def header(line: bytes) -> Callable[[Target], None]:
    """A request with this header, a few times; it may be answered or refused, but not left."""

    def strike(target: Target) -> None:
        for _ in range(target.count(3, 20)):
            with target.plain(target.http, HEAD + line + END, ANSWER_SECONDS_MAX) as stranger:
                assert stranger.recv(65536).startswith(b"HTTP/1.1 ")

    return strike


def pipelined(target: Target) -> None:
    """Far more than the sockets hold, and nothing is read."""
    asked = target.count(1_000, 20_000)
    for _ in range(8):
        stranger = target.plain(target.http)
        stranger.setblocking(False)
        for page in (b"/status", b"/metrics", b"/nowhere"):
            _push(stranger, target, (b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % page) * asked)
        target.keep(stranger)


def _push(stranger: socket.socket, target: Target, data: bytes) -> None:
    try:
        target.meter.sent(stranger.send(data))
    except BlockingIOError:
        return


def asked_and_read(target: Target) -> None:
    """As fast as one connection goes."""
    with target.plain(target.http) as stranger:
        for _ in range(target.count(10, 200)):
            stranger.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
            target.meter.sent(470)
            answered = 0
            while answered < 10:
                answered += stranger.recv(1 << 20).count(b"HTTP/1.1 200")


def slow_heads(target: Target) -> None:
    for _ in range(target.count(60, 2_000)):
        target.keep(target.plain(target.http, HEAD))
    _still_answers(target)


def connection_flood(target: Target) -> None:
    deadline = time.monotonic() + target.count(1, 5)
    while time.monotonic() < deadline:
        for _ in range(50):
            target.plain(target.http, HEAD).close()
        _still_answers(target)


def _still_answers(target: Target) -> None:
    status, _ = ask(target.http, "/healthz", ANSWER_SECONDS_MAX)
    assert status == 200


def large_group(target: Target) -> None:
    """Offsets with notes of 4 kB: nearly as much as a group may keep."""
    count = target.count(100, LARGE_GROUP_OFFSETS)
    with Cluster(target.victim.bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic("noted", count, 1)])
        for first in range(0, count, 100):
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="x" * 4000)
                for index in range(first, first + 100)
            ]
            topic = OffsetCommitRequestTopic(name="noted", partitions=partitions)
            request = OffsetCommitRequest(group_id="noted", topics=[topic])
            answer = client.retrying(lambda: client.coordinator("noted")).request(request, OffsetCommitResponse)
            assert not any(each.error_code for each in answer.topics[0].partitions)


def large_group_is_shown(target: Target) -> None:
    for _ in range(3):
        status, body = ask(target.http, "/status/groups/noted", ANSWER_SECONDS_MAX)
        target.meter.sent(60)
        assert status == 200
        assert len(body) > 4000 * target.count(100, LARGE_GROUP_OFFSETS)


LARGE_GROUP_OFFSETS: Final = 7_900

ATTACKS: Final = (
    Attack("http-spaces", "a header of 8,000 spaces and a line feed", header(b"x:" + b" " * 8000 + b"\na"), quick=True),
    Attack("http-spaces-and-nul", "a header of 8,000 spaces and a NUL", header(b"x:" + b" " * 8000 + b"\x00")),
    Attack("http-many-headers", "1,600 headers", header(b"x:y\r\n" * 1600 + b"x:y")),
    Attack("http-pipelined", "60,000 requests ahead of their answers on eight connections, nothing is read", pipelined),
    Attack("http-asked-and-read", "2,000 status pages, ten at a time, on one connection", asked_and_read),
    Attack("http-slow-heads", "2,000 connections with half a request each", slow_heads, quick=True),
    Attack("http-connection-flood", "connections that end at once, as fast as they go", connection_flood),
    Attack("http-large-group", "a page of 32 MB about a group, three times", large_group_is_shown, large_group),
)
