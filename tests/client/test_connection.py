from __future__ import annotations

import socket
import struct
import threading

import pytest

from chronik.client.access.settings import ClientSecurity
from chronik.client.connection import RESPONSE_BYTES_MAX, BrokerConnection
from chronik.client.errors import (
    ApiNotSupported,
    BrokerUnreachable,
    BrokerUnresponsive,
    ConnectionLost,
    RequestTimedOut,
)
from chronik.config import Address
from chronik.protocol.codec import RequestHeader, encode_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from chronik.protocol.messages.fetch import FetchRequest
from chronik.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing.ports import ReservedPorts

from .scripted_broker import build_api_versions, encode_frame, scripted_broker


def encode_metadata_response(header: RequestHeader) -> bytes:
    response = MetadataResponse(cluster_id=f"encoded with version {header.api_version}")
    return b"".join(encode_response(header.correlation_id, header.api_version, response))


def request_metadata(connection: BrokerConnection) -> MetadataResponse:
    return connection.request(MetadataRequest(topics=None), MetadataResponse)


def test_connection_uses_highest_common_version() -> None:
    with scripted_broker(
        encode_metadata_response, lambda header: encode_frame(header, build_api_versions(Metadata=7))
    ) as address:
        connection = BrokerConnection(address)
        assert request_metadata(connection).cluster_id == "encoded with version 7"
        connection.close()


def test_connection_to_newer_broker_uses_newest_client_version() -> None:
    with scripted_broker(
        encode_metadata_response, lambda header: encode_frame(header, build_api_versions(Metadata=99))
    ) as address:
        connection = BrokerConnection(address)
        assert (
            request_metadata(connection).cluster_id
            == f"encoded with version {MetadataRequest.__schema__.versions.last}"
        )
        connection.close()


def test_connection_avoids_versions_with_topic_ids_only() -> None:
    with scripted_broker(encode_metadata_response) as address:
        connection = BrokerConnection(address)
        assert connection.negotiated_version(FetchRequest) == 12
        connection.close()


def test_connection_accepts_version_0_api_versions_response_of_old_broker() -> None:
    def old_broker_versions(header: RequestHeader) -> bytes:
        response = build_api_versions(Metadata=4)
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return encode_frame(header, response, version=0)

    with scripted_broker(encode_metadata_response, old_broker_versions) as address:
        connection = BrokerConnection(address)
        assert request_metadata(connection).cluster_id == "encoded with version 4"
        connection.close()


def test_unsupported_api_raises_api_not_supported() -> None:
    def limited_versions(header: RequestHeader) -> bytes:
        old_metadata = ApiVersion(api_key=3, min_version=0, max_version=9)
        future_fetch = ApiVersion(api_key=1, min_version=90, max_version=99)
        return encode_frame(header, ApiVersionsResponse(api_keys=[old_metadata, future_fetch]))

    with scripted_broker(encode_metadata_response, limited_versions) as address:
        connection = BrokerConnection(address)
        with pytest.raises(ApiNotSupported, match="ListGroups"):
            connection.request(ListGroupsRequest(), ListGroupsResponse)
        with pytest.raises(ApiNotSupported, match="Fetch"):
            connection.negotiated_version(FetchRequest)
        assert request_metadata(connection).cluster_id == "encoded with version 9"
        connection.close()


def test_refused_connection_raises_broker_unreachable_with_address() -> None:
    reserved = ReservedPorts(1)  # nothing listens there, and no other process can
    port = reserved.ports[0]
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
        BrokerConnection(Address("127.0.0.1", port))
    reserved.release()


def test_reset_after_connect_raises_broker_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        monkeypatch.setattr(socket, "create_connection", lambda *_, **__: client)
        with pytest.raises(BrokerUnreachable, match="no broker at"):
            BrokerConnection(Address(*listener.getsockname()))


def test_non_kafka_server_raises_broker_unreachable() -> None:
    with (
        scripted_broker(encode_metadata_response, lambda header: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(BrokerUnreachable, match="does not respond like a Kafka broker"),
    ):
        BrokerConnection(address)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_silent_broker_raises_broker_unresponsive(protocol: str) -> None:
    """Simulate a process stopped by SIGSTOP, whose kernel still accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
        with pytest.raises(BrokerUnresponsive) as raised:
            BrokerConnection(address, timeout_s=0.1, security=ClientSecurity(protocol=protocol))
    assert str(raised.value) == (
        f"{address} accepts connections but did not respond within 0.1 s: its process is stopped or overloaded"
    )


def test_connection_closed_before_response_raises_connection_lost() -> None:
    with scripted_broker(lambda header: None) as address:
        connection = BrokerConnection(address)
        with pytest.raises(ConnectionLost):
            request_metadata(connection)
        assert connection.is_closed


@pytest.mark.parametrize(
    "answer",
    [
        lambda header: struct.pack(">i", RESPONSE_BYTES_MAX + 1),
        lambda header: struct.pack(">i", -1),
        lambda header: struct.pack(">iih", 6, header.correlation_id + 1, 0),
        lambda header: struct.pack(">iih", 6, header.correlation_id, 0),
        lambda header: encode_metadata_response(header)[:-1],
    ],
    ids=["too large", "negative", "of another request", "too short", "cut off"],
)
def test_invalid_response_closes_connection(answer: object) -> None:
    with scripted_broker(lambda header: answer(header)) as address:  # type: ignore[operator]
        connection = BrokerConnection(address, timeout_s=0.5)
        with pytest.raises(ConnectionLost):
            request_metadata(connection)
        assert connection.is_closed


def test_late_response_raises_request_timed_out() -> None:
    finished = threading.Event()

    def never_respond(header: RequestHeader) -> None:
        assert finished.wait(30)

    with scripted_broker(never_respond) as address:
        connection = BrokerConnection(address, timeout_s=0.2)
        with pytest.raises(RequestTimedOut, match=r"0\.2 s"):
            request_metadata(connection)
        assert connection.is_closed
        finished.set()
