"""A connection to one broker: version negotiation, authentication, and one request at a time."""

from __future__ import annotations

import socket
import struct
import time
from typing import Final, Self, TypeVar, cast

import chronik
from chronik.client.access.settings import PLAINTEXT_SECURITY, ClientSecurity
from chronik.client.errors import (
    ApiNotSupported,
    BrokerUnreachable,
    BrokerUnresponsive,
    ConnectionLost,
    RequestTimedOut,
)
from chronik.config import Address
from chronik.limits import MIB
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, FEATURE_NAME
from chronik.protocol.apis import API_VERSIONS_KEY, APIS, VersionRange
from chronik.protocol.codec import MalformedMessage, RequestHeader, decode_response, encode_request
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest
from chronik.protocol.messages.end_txn import EndTxnRequest
from chronik.protocol.messages.fetch import FetchRequest
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest
from chronik.protocol.messages.offset_commit import OffsetCommitRequest
from chronik.protocol.messages.offset_fetch import OffsetFetchRequest
from chronik.protocol.messages.produce import ProduceRequest
from chronik.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from chronik.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

RESPONSE_BYTES_MAX: Final = 256 * MIB
"""Maximum size in bytes of a response that a client accepts from a broker."""

CONNECT_SECONDS_MAX: Final = 10.0

REAUTHENTICATION_FRACTION: Final = 0.85
"""Fraction of the session lifetime after which the client reauthenticates, before the session expires."""

MAX_VERSIONS: Final[dict[type[Request], int]] = {
    # The last versions before transactions v2, which every broker with transactions supports. Our producers request
    # a new epoch for each transaction themselves, which is what v2 adds.
    ProduceRequest: 11,
    AddPartitionsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
    # The last versions that identify topics by name, as our callers do.
    FetchRequest: 12,
    OffsetCommitRequest: 9,
    DeleteTopicsRequest: 5,
    # The last versions with a single group per request, which are simpler and supported by every broker.
    OffsetFetchRequest: 7,
    FindCoordinatorRequest: 3,
}

_SIZE = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")
_CORRELATION_ID_BYTES = 4


class BrokerConnection:
    """A blocking connection to one broker. Not thread-safe. A missing or invalid response closes the connection."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = "chronik",
        timeout_s: float = 30.0,
        security: ClientSecurity = PLAINTEXT_SECURITY,
    ) -> None:
        """Connect, negotiate API versions, and authenticate if SASL is configured.

        Raises:
            BrokerUnreachable: If there is no Kafka broker at the address.
            LoginFailed: If authentication fails.
        """
        self.address = address
        self.security = security
        self._reauthenticate_at = float("inf")
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._broker_versions: dict[int, VersionRange] = {
            API_VERSIONS_KEY: VersionRange(0, APIS[API_VERSIONS_KEY].max_version)
        }
        self._socket = self._connect()
        try:
            self._negotiate_versions()
        except RequestTimedOut as error:
            raise BrokerUnresponsive(address, timeout_s) from error
        except (ConnectionLost, MalformedMessage) as error:
            self.close()
            hint = "" if security.is_encrypted else "; if this listener uses TLS, set security.protocol"
            raise BrokerUnreachable(f"{address} does not respond like a Kafka broker: {error}{hint}") from error
        self._log_in()

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def negotiated_version(self, request_type: type[Request]) -> int:
        """Return the highest API version that client and broker both support.

        Raise ApiNotSupported if there is none.
        """
        api = APIS[request_type.__schema__.api_key]
        supported = self._broker_versions.get(api.key)
        if supported is not None:
            version = min(api.max_version, supported.last, MAX_VERSIONS.get(request_type, api.max_version))
            if version >= max(api.min_version, supported.first):
                return version
        raise ApiNotSupported(f"{self.address} supports no version of {api.name} that this client supports")

    def request(self, request: Request, response_type: type[R], *, wait_s: float = 0.0) -> R:
        """Send a request and return the response. `wait_s` is the server-side wait time, which extends the timeout.

        Raises:
            ApiNotSupported: If client and broker have no common version of the API.
            ConnectionLost: If the connection closes first, or (RequestTimedOut) the timeout expires.
        """
        if time.monotonic() >= self._reauthenticate_at:
            self._log_in()
        return self._request(request, response_type, wait_s)

    def _request(self, request: Request, response_type: type[R], wait_s: float = 0.0) -> R:
        version = self.negotiated_version(type(request))
        frame = self._exchange(request, version, self._timeout_s + wait_s)
        try:
            _, response = decode_response(request.__schema__.api_key, version, frame)
        except MalformedMessage as error:
            self.close()
            raise ConnectionLost(f"{self.address} sent a malformed response: {error}") from error
        assert isinstance(response, response_type), f"{type(request).__name__} has no response {response_type}"
        return response

    def _log_in(self) -> None:
        """Authenticate the connection with SASL if configured, and schedule the reauthentication.

        It takes place before the session expires.
        """
        if not self.security.has_login:
            return
        from chronik.client.access.sasl_login import authenticate_with_sasl

        try:
            seconds = authenticate_with_sasl(self.security, self.address, self._request)
        except BaseException:
            self.close()
            raise
        self._reauthenticate_at = time.monotonic() + REAUTHENTICATION_FRACTION * seconds

    def _negotiate_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="chronik", client_software_version=chronik.__version__)
        version = self.negotiated_version(ApiVersionsRequest)
        frame = self._exchange(request, version, self._timeout_s)
        # A broker that does not support the version responds with version 0, which starts with the same error code.
        (code,) = _ERROR_CODE.unpack_from(frame, _CORRELATION_ID_BYTES)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        _, decoded = decode_response(API_VERSIONS_KEY, version, frame)
        response = cast(ApiVersionsResponse, decoded)
        if response.error_code and response.error_code != ErrorCode.UNSUPPORTED_VERSION:
            raise KafkaError(ErrorCode(response.error_code))
        self._broker_versions = {
            key.api_key: VersionRange(key.min_version, key.max_version) for key in response.api_keys
        }
        if any(
            feature.name == FEATURE_NAME and feature.max_version >= DYNAMIC_MEMBERSHIP_LEVEL
            for feature in response.supported_features
        ):
            self._broker_versions |= {api.key: api.versions for api in APIS.values() if not api.is_kafka_api}

    def _connect(self) -> socket.socket:
        try:
            plain_socket = socket.create_connection(self.address, timeout=min(CONNECT_SECONDS_MAX, self._timeout_s))
        except OSError as error:
            raise BrokerUnreachable(f"no broker at {self.address}: {error.strerror or error}") from error
        try:
            # TCP self-connect: an unused local port may be chosen as the source port of this very connection.
            is_own_end = plain_socket.getsockname() == plain_socket.getpeername()
            plain_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # the connection was reset already
            plain_socket.close()
            raise BrokerUnreachable(f"no broker at {self.address}: {error.strerror or error}") from error
        if is_own_end:
            plain_socket.close()
            raise BrokerUnreachable(f"no broker at {self.address}: Connection refused")
        if not self.security.is_encrypted:
            return plain_socket
        from chronik.client.access.tls import encrypt_socket

        return encrypt_socket(plain_socket, self.address, self.security)

    def _exchange(self, request: Request, version: int, timeout_s: float) -> memoryview:
        """Send a request frame to the broker, and return the response frame.

        Close the connection on any failure, since it is out of sync then.
        """
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        header = RequestHeader(request.__schema__.api_key, version, self._correlation_id, self._client_id)
        frame = encode_request(header, request)
        deadline = time.monotonic() + timeout_s
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frame)
            (size,) = _SIZE.unpack(self._receive_response(_SIZE.size, deadline))
            if not _CORRELATION_ID_BYTES + _ERROR_CODE.size <= size <= RESPONSE_BYTES_MAX:
                raise ConnectionLost(f"{self.address} announced a response with an invalid size: {size} bytes")
            answer = self._receive_response(size, deadline)
            if _SIZE.unpack_from(answer) != (self._correlation_id,):
                raise ConnectionLost(f"{self.address} sent a response with an unexpected correlation id")
            return answer
        except TimeoutError as error:
            self.close()
            raise RequestTimedOut(f"{self.address} did not respond within {timeout_s:g} s") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address} closed the connection: {error.strerror or error}") from error
        except BaseException:  # including KeyboardInterrupt: the next request would read this request's response
            self.close()
            raise

    def _receive_response(self, size: int, deadline: float) -> memoryview:
        buffer = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            self._socket.settimeout(remaining_s)
            count = self._socket.recv_into(buffer[filled:])
            if count == 0:
                raise ConnectionLost(f"{self.address} closed the connection; see the broker's log")
            filled += count
        return buffer.toreadonly()
