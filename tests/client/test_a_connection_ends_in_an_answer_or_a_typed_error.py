from __future__ import annotations

import socket
import struct
import threading

import pytest

from chronik.client.access.settings import ClientSecurity
from chronik.client.connection import RESPONSE_BYTES_MAX, Connection
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

from .scripted import framed, scripted_broker, spoken_versions


def metadata_answer(header: RequestHeader) -> bytes:
    response = MetadataResponse(cluster_id=f"spoken in version {header.api_version}")
    return b"".join(encode_response(header.correlation_id, header.api_version, response))


def ask(connection: Connection) -> MetadataResponse:
    return connection.request(MetadataRequest(topics=None), MetadataResponse)


def test_the_highest_version_that_both_sides_speak_is_used() -> None:
    with scripted_broker(metadata_answer, lambda header: framed(header, spoken_versions(Metadata=7))) as address:
        connection = Connection(address)
        assert ask(connection).cluster_id == "spoken in version 7"
        connection.close()


def test_a_broker_that_is_newer_than_the_client_is_spoken_to_in_our_newest_version() -> None:
    with scripted_broker(metadata_answer, lambda header: framed(header, spoken_versions(Metadata=99))) as address:
        connection = Connection(address)
        assert ask(connection).cluster_id == f"spoken in version {MetadataRequest.__schema__.versions.last}"
        connection.close()


def test_versions_that_name_topics_by_id_alone_are_not_used() -> None:
    with scripted_broker(metadata_answer) as address:
        connection = Connection(address)
        assert connection.version_of(FetchRequest) == 12
        connection.close()


def test_an_old_broker_answers_the_version_question_in_version_0_and_is_understood() -> None:
    def old(header: RequestHeader) -> bytes:
        response = spoken_versions(Metadata=4)
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return framed(header, response, version=0)

    with scripted_broker(metadata_answer, old) as address:
        connection = Connection(address)
        assert ask(connection).cluster_id == "spoken in version 4"
        connection.close()


def test_an_api_that_the_broker_does_not_speak_is_a_typed_error() -> None:
    def few(header: RequestHeader) -> bytes:
        old_metadata = ApiVersion(api_key=3, min_version=0, max_version=9)
        future_fetch = ApiVersion(api_key=1, min_version=90, max_version=99)
        return framed(header, ApiVersionsResponse(api_keys=[old_metadata, future_fetch]))

    with scripted_broker(metadata_answer, few) as address:
        connection = Connection(address)
        with pytest.raises(ApiNotSupported, match="ListGroups"):
            connection.request(ListGroupsRequest(), ListGroupsResponse)
        with pytest.raises(ApiNotSupported, match="Fetch"):
            connection.version_of(FetchRequest)
        assert ask(connection).cluster_id == "spoken in version 9"
        connection.close()


def test_nobody_listening_is_a_typed_error_that_names_the_address() -> None:
    reserved = ReservedPorts(1)  # nobody listens there, and nobody else can
    port = reserved.ports[0]
    with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
        Connection(Address("127.0.0.1", port))
    reserved.release()


def test_a_server_that_is_no_kafka_broker_is_a_typed_error() -> None:
    with (
        scripted_broker(metadata_answer, lambda header: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(BrokerUnreachable, match="does not answer as a Kafka broker"),
    ):
        Connection(address)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_broker_that_accepts_and_does_not_answer_is_unresponsive(protocol: str) -> None:
    """As a process that was stopped by SIGSTOP: the kernel accepts connections in its place."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
        with pytest.raises(BrokerUnresponsive) as raised:
            Connection(address, timeout_s=0.1, security=ClientSecurity(protocol=protocol))
    assert str(raised.value) == (
        f"{address} accepts connections, but does not answer within 0.1 s: its process is stopped or overloaded"
    )


def test_a_connection_that_is_closed_instead_of_answered_is_lost() -> None:
    with scripted_broker(lambda header: None) as address:
        connection = Connection(address)
        with pytest.raises(ConnectionLost):
            ask(connection)
        assert connection.closed


@pytest.mark.parametrize(
    "answer",
    [
        lambda header: struct.pack(">i", RESPONSE_BYTES_MAX + 1),
        lambda header: struct.pack(">i", -1),
        lambda header: struct.pack(">iih", 6, header.correlation_id + 1, 0),
        lambda header: struct.pack(">iih", 6, header.correlation_id, 0),
        lambda header: metadata_answer(header)[:-1],
    ],
    ids=["too large", "negative", "of another request", "too short", "cut off"],
)
def test_an_answer_that_cannot_be_read_ends_the_connection(answer: object) -> None:
    with scripted_broker(lambda header: answer(header)) as address:  # type: ignore[operator]
        connection = Connection(address, timeout_s=0.5)
        with pytest.raises(ConnectionLost):
            ask(connection)
        assert connection.closed


def test_an_answer_that_does_not_come_in_time_is_a_typed_error() -> None:
    finished = threading.Event()

    def late(header: RequestHeader) -> None:
        assert finished.wait(30)

    with scripted_broker(late) as address:
        connection = Connection(address, timeout_s=0.2)
        with pytest.raises(RequestTimedOut, match=r"0\.2 s"):
            ask(connection)
        assert connection.closed
        finished.set()
