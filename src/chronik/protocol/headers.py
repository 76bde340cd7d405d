"""Request headers (versions 1 and 2) and response headers (versions 0 and 1).

Flexible message versions use the newer header version, which adds tagged fields. Two exceptions are Kafka's own: the
client id stays a non-compact string, and the ApiVersions response always has header version 0, because the client does
not know yet which versions the broker supports.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from chronik.protocol.apis import API_VERSIONS_KEY, APIS
from chronik.protocol.schema import StructSchema
from chronik.protocol.wire import (
    REPLACE_INVALID_UTF8,
    REQUEST_ELEMENTS_MAX,
    MalformedMessage,
    UnknownApi,
    UnsupportedVersion,
    length_error,
    read_tag_count,
    skip_tags,
)

_FIXED: Final = struct.Struct(">hhih")  # api key, api version, correlation id, client id length
_NO_CLIENT_ID: Final = -1


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Decode a request header, and return it with the position of the message.

    Raises:
        UnknownApi: The API key is unknown.
        UnsupportedVersion: The API version is not supported.
        MalformedMessage: The header is malformed.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
        api = APIS.get(api_key)
        if api is None:
            raise UnknownApi(api_key, api_version, correlation_id)
        if not api.versions.first <= api_version <= api.versions.last:
            raise UnsupportedVersion(api_key, api_version, correlation_id)
        client_id, position = _decode_client_id(frame, length)
        if api_version >= api.flexible.first:
            position = _skip_tags(frame, position)
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _decode_client_id(frame: memoryview, length: int) -> tuple[str | None, int]:
    if length == _NO_CLIENT_ID:
        return None, _FIXED.size
    end = _FIXED.size + length
    if not _FIXED.size <= end <= len(frame):
        raise length_error("client_id", length, len(frame) - _FIXED.size)
    return str(frame[_FIXED.size : end], "utf-8", REPLACE_INVALID_UTF8), end


def _skip_tags(frame: memoryview, position: int) -> int:
    if frame[position] == 0:
        return position + 1
    count, position, _ = read_tag_count(frame, position, len(frame), REQUEST_ELEMENTS_MAX)
    return skip_tags(frame, position, len(frame), count)


def encode_request_header(out: bytearray, header: RequestHeader, flexible: bool) -> None:
    """Append an encoded request header to `out`."""
    client_id = None if header.client_id is None else header.client_id.encode()
    length = _NO_CLIENT_ID if client_id is None else len(client_id)
    out += _FIXED.pack(header.api_key, header.api_version, header.correlation_id, length)
    if client_id is not None:
        out += client_id
    if flexible:
        out.append(0)


def is_response_header_flexible(schema: StructSchema, api_version: int) -> bool:
    """Return whether the response header of a message version has tagged fields."""
    return schema.flexible.covers(api_version) and schema.api_key != API_VERSIONS_KEY


def decode_response_header(schema: StructSchema, api_version: int, frame: memoryview) -> tuple[int, int]:
    """Decode a response header, and return the correlation id and the position of the message."""
    try:
        (correlation_id,) = struct.unpack_from(">i", frame)
        position = 4
        if is_response_header_flexible(schema, api_version):
            position = _skip_tags(frame, position)
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"response header: {error}") from error
    return correlation_id, position
