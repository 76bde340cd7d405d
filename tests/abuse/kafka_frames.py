"""Attacks with malformed frames, many requests, and idle connections."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.messages.api_versions import ApiVersionsRequest
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.protocol.schema import Request
from tests.abuse.attack import Attack, AttackTarget

LENGTHS: Final = (0, -1, 1, 2**31 - 1, -(2**31))
SOFTWARE: Final = ApiVersionsRequest(client_software_name="abuse", client_software_version="1")
EVERYTHING: Final = MetadataRequest(topics=None)
VERSIONS: Final[dict[type[Request], int]] = {ApiVersionsRequest: 3, MetadataRequest: 12}


def frame(request: Request, correlation_id: int = 1, client_id: str = "abuse") -> bytes:
    version = VERSIONS[type(request)]
    return encode_request(RequestHeader(request.__schema__.api_key, version, correlation_id, client_id), request)


def frame_lengths(target: AttackTarget) -> None:
    for _ in range(target.count(20, 400)):
        for length in LENGTHS:
            with target.connect() as client:
                client.send_bytes(struct.pack(">i", length) + bytes(64))


def repeat_request(request: Request, few: int, full: int) -> Callable[[AttackTarget], None]:
    def strike(target: AttackTarget) -> None:
        with target.connect() as client:
            for _ in range(target.count(few, full)):
                client.send(request, VERSIONS[type(request)])
                assert client.read_frame() is not None

    return strike


def idle_connections(target: AttackTarget) -> None:
    for _ in range(target.count(100, 3_000)):
        target.keep_open(target.connect())


def half_open(target: AttackTarget) -> None:
    """Send an incomplete length, or a length without a frame."""
    for number in range(target.count(100, 2_000)):
        client = target.connect()
        client.send_bytes(b"\0\0\0" if number % 2 else b"\0\0\0\x20")
        target.keep_open(client)


def open_and_close(target: AttackTarget) -> None:
    """Open and close connections immediately, half of them with a reset."""
    for number in range(target.count(200, 10_000)):
        with target.connect() as client:
            if number % 2:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def pipelined_unread(target: AttackTarget) -> None:
    """Send 10,000 requests on each of four connections and read no responses."""
    count = target.count(500, 10_000)
    for request in (SOFTWARE, EVERYTHING, SOFTWARE, EVERYTHING):
        client = target.connect()
        client.socket.setblocking(False)
        target.keep_open(client)
        unsent = memoryview(frame(request) * count)
        deadline = time.monotonic() + 2.0
        while unsent and time.monotonic() < deadline:
            try:
                sent = client.socket.send(unsent)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            except ConnectionError:  # closed by the broker, which is acceptable
                break
            target.meter.add(sent)
            unsent = unsent[sent:]


def same_correlation_id(target: AttackTarget) -> None:
    with target.connect() as client:
        for _ in range(target.count(20, 500)):
            client.send_bytes(frame(SOFTWARE, 7) * 10)
            for _ in range(10):
                response = client.read_frame()
                assert response is not None
                assert response[:4] == struct.pack(">i", 7)


def many_topics(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic(f"t{number}", 10, 1) for number in range(target.count(10, 300))])


def slow_reader(target: AttackTarget) -> None:
    """Request 300 topics a hundred times on twenty connections, and read one byte per second."""
    clients = [target.connect() for _ in range(20)]
    for client in clients:
        client.send_bytes(frame(EVERYTHING) * target.count(5, 100))
        target.keep_open(client)
    for _ in range(target.count(1, 5)):
        for client in clients:
            assert client.socket.recv(1)
        time.sleep(1.0)


def giant_client_ids(target: AttackTarget) -> None:
    for number in range(target.count(10, 300)):
        with target.connect() as client:
            client.send_bytes(frame(SOFTWARE, 1, "c" * 32_000 + str(number)))
            assert client.read_frame() is not None


def giant_software_names(target: AttackTarget) -> None:
    for number in range(target.count(10, 300)):
        with target.connect() as client:
            name = "-" * 30_000 + "\x1b[31m" + str(number)
            client.send(ApiVersionsRequest(client_software_name=name, client_software_version="\n" * 30_000), 3)
            assert client.read_frame() is not None


def unknown_apis(target: AttackTarget) -> None:
    for number in range(target.count(50, 2_000)):
        with target.connect() as client:
            client.send_frame(struct.pack(">hhih", target.random.randrange(-32768, 32767), number % 20, 1, -1))


def one_byte_at_a_time(target: AttackTarget) -> None:
    data = frame(MetadataRequest(topics=[MetadataRequestTopic(name="nothing")]))
    with target.connect() as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(target.count(2, 100)):
            for byte in data:
                client.send_bytes(bytes([byte]))
            assert client.read_frame() is not None


ATTACKS: Final = (
    Attack("frame-lengths", "frames that claim 0, -1, 1, 2^31-1 and -2^31 bytes", frame_lengths, quick=True),
    Attack("api-versions-in-a-loop", "20,000 ApiVersions on one connection", repeat_request(SOFTWARE, 200, 20_000)),
    Attack("metadata-in-a-loop", "Metadata of 300 topics, 500 times", repeat_request(EVERYTHING, 20, 500), many_topics),
    Attack("idle-connections", "3,000 silent connections", idle_connections, quick=True),
    Attack("half-open", "2,000 connections with an incomplete frame", half_open),
    Attack(
        "connections-that-end", "10,000 connections that are closed or reset immediately", open_and_close, quick=True
    ),
    Attack(
        "pipelined-unread", "40,000 requests on four connections, no response is read", pipelined_unread, quick=True
    ),
    Attack("same-correlation-id", "5,000 requests with one correlation id", same_correlation_id),
    Attack("slow-reader", "2,000 responses to twenty clients that read one byte per second", slow_reader, many_topics),
    Attack("giant-client-ids", "300 client ids of 32 kB", giant_client_ids),
    Attack("giant-software-names", "300 software names of 30 kB, with escape codes", giant_software_names, quick=True),
    Attack("unknown-apis", "2,000 requests with unknown API keys", unknown_apis),
    Attack("one-byte-at-a-time", "100 requests, one byte per packet", one_byte_at_a_time),
)
