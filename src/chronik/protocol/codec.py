"""Encoding and decoding of frames, headers and messages; the public interface of the message codec.

Frames are decoded without their size prefix and encoded with it. A frame that is not exactly one message raises
MalformedMessage, except that a request may have trailing bytes: librdkafka 2.16 sends some, and Kafka ignores them. A
message that cannot be encoded raises UnencodableMessage with the name of the field.

Flexible message versions use the newer version of the request header (2) and response header (1), which adds tagged
fields. Two exceptions are Kafka's own: the client id stays a non-compact string, and the ApiVersions response always
has header version 0, because the client does not know yet which versions the broker supports.

Message classes are imported from the module that is named after the API when a message of the API is first used, so
that a node starts faster and a client loads only the messages it sends. `chronik.api.routing.handlers` imports the
remaining modules soon after the start.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, TypeVar, cast

import msgspec

from chronik.errors import check_invariant
from chronik.protocol.apis import API_VERSIONS_KEY, APIS
from chronik.protocol.compiler import (
    Encoder,
    compile_decoder,
    compile_element_encoder,
    compile_encoder,
    find_invalid_field,
)
from chronik.protocol.schema import BytesLike, Request, Response, Struct, StructSchema
from chronik.protocol.wire import (
    REPLACE_INVALID_UTF8,
    REQUEST_ELEMENTS_MAX,
    RESPONSE_ELEMENTS_MAX,
    MalformedMessage,
    UnencodableMessage,
    UnknownApi,
    UnsupportedField,
    UnsupportedVersion,
    build_length_error,
    read_tag_count,
    skip_tags,
)

_FIXED: Final = struct.Struct(">hhih")  # api key, api version, correlation id, client id length
_NO_CLIENT_ID: Final = -1

M = TypeVar("M", bound=Struct)

__all__ = [
    "MalformedMessage",
    "RequestHeader",
    "UnencodableMessage",
    "UnknownApi",
    "UnsupportedField",
    "UnsupportedVersion",
    "decode",
    "decode_request",
    "decode_request_body",
    "decode_request_header",
    "decode_response",
    "encode",
    "encode_element",
    "encode_request",
    "encode_response",
]

FRAME_BYTES_MAX: Final = 0x7FFF_FFFF  # the size prefix of a frame is an int32
_SIZE: Final = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Decode the header of a request frame. Return the header and the position at which the body starts.

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
            position = _skip_header_tags(frame, position)
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _decode_client_id(frame: memoryview, length: int) -> tuple[str | None, int]:
    if length == _NO_CLIENT_ID:
        return None, _FIXED.size
    end = _FIXED.size + length
    if not _FIXED.size <= end <= len(frame):
        raise build_length_error("client_id", length, len(frame) - _FIXED.size)
    return str(frame[_FIXED.size : end], "utf-8", REPLACE_INVALID_UTF8), end


def _skip_header_tags(frame: memoryview, position: int) -> int:
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
    """Return whether the response header contains tagged fields in this version of the message."""
    return schema.flexible.covers(api_version) and schema.api_key != API_VERSIONS_KEY


def decode_response_header(schema: StructSchema, api_version: int, frame: memoryview) -> tuple[int, int]:
    """Decode the header of a response frame. Return the correlation id and the position at which the body starts."""
    try:
        (correlation_id,) = struct.unpack_from(">i", frame)
        position = 4
        if is_response_header_flexible(schema, api_version):
            position = _skip_header_tags(frame, position)
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"response header: {error}") from error
    return correlation_id, position


class _LazyMessageClasses(dict[int, type[M]]):
    """A mapping from API keys to message classes, which are imported on first access."""

    def __init__(self, kind: type[M]) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, key: int) -> type[M]:
        api = APIS[key]
        declared = vars(import_module(f"chronik.protocol.messages.{api.module}"))
        message: type[M] = declared[f"{api.name}{self._kind.__name__}"]
        check_invariant(issubclass(message, self._kind), f"{message.__name__} is no {self._kind.__name__}")
        self[key] = message
        return message


REQUESTS: Final[Mapping[int, type[Request]]] = _LazyMessageClasses(Request)
RESPONSES: Final[Mapping[int, type[Response]]] = _LazyMessageClasses(Response)


def decode_request(frame: memoryview) -> tuple[RequestHeader, Request]:
    """Decode a request frame.

    Raises:
        UnknownApi: The API key is unknown.
        UnsupportedVersion: The API version is not supported.
        MalformedMessage: The frame is malformed.
    """
    header, position = decode_request_header(frame)
    return header, decode_request_body(header, frame, position)


def decode_request_body(header: RequestHeader, frame: memoryview, position: int) -> Request:
    """Decode the body of a request after `decode_request_header` has decoded its header."""
    return _decode_message(REQUESTS[header.api_key], header.api_version, frame, position, REQUEST_ELEMENTS_MAX)


def encode_response(correlation_id: int, api_version: int, response: Response) -> list[BytesLike]:
    """Encode a response frame as a list of buffers for `transport.writelines`, without copying large records."""
    out = bytearray(_SIZE_AND_CORRELATION_ID.pack(0, correlation_id))
    if is_response_header_flexible(response.__schema__, api_version):
        out.append(0)
    return _finish_frame(_encode_message(response, api_version, out))


def encode_request(header: RequestHeader, request: Request) -> bytes:
    """Encode a request frame.

    Raises:
        UnsupportedField: The request sets a field that its version does not have.
    """
    out = bytearray(_SIZE.size)
    encode_request_header(out, header, request.__schema__.flexible.covers(header.api_version))
    return b"".join(_finish_frame(_encode_message(request, header.api_version, out)))


def decode_response(api_key: int, api_version: int, frame: memoryview) -> tuple[int, Response]:
    """Decode a response frame, given the API key and version. Return the correlation id and the response."""
    cls = RESPONSES[api_key]
    correlation_id, position = decode_response_header(cls.__schema__, api_version, frame)
    return correlation_id, _decode_message(cls, api_version, frame, position, RESPONSE_ELEMENTS_MAX)


def encode(message: Struct, version: int) -> bytes:
    """Encode a message without a header or frame."""
    return b"".join(_encode_message(message, version, bytearray()))


def encode_element(message: type[Response], element: Struct, version: int) -> bytes:
    """Encode an element of a response's array in advance. The response may contain these bytes as the element."""
    encode_into = compile_element_encoder(message, type(element), version)
    return b"".join(_encode_with_encoder(encode_into, element, version, bytearray()))


def decode(cls: type[M], version: int, data: BytesLike) -> M:
    """Decode a message without a header or frame. Its records refer to `data` instead of being copied."""
    budget = REQUEST_ELEMENTS_MAX if issubclass(cls, Request) else RESPONSE_ELEMENTS_MAX
    return _decode_message(cls, version, memoryview(data), 0, budget)


def _decode_message(cls: type[M], version: int, frame: memoryview, position: int, budget: int) -> M:
    try:
        message, end = compile_decoder(cls, version)(frame, position, budget)
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from error
    if end != len(frame) and not issubclass(cls, Request):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(frame) - end} trailing bytes")
    return cast(M, message)


def _encode_message(message: Struct, version: int, out: bytearray) -> list[BytesLike]:
    return _encode_with_encoder(compile_encoder(type(message), version), message, version, out)


def _encode_with_encoder(encode_into: Encoder, message: Struct, version: int, out: bytearray) -> list[BytesLike]:
    chunks: list[BytesLike] = []
    try:
        chunks.append(encode_into(message, out, chunks))
    except (TypeError, AttributeError, ValueError, struct.error, UnencodableMessage) as error:
        if isinstance(error, UnsupportedField):
            raise
        fault = find_invalid_field(message, version)
        raise UnencodableMessage(fault or f"{type(message).__name__} v{version}: {error}") from error
    return chunks


def _finish_frame(chunks: list[Any]) -> list[BytesLike]:
    size = sum(map(len, chunks)) - _SIZE.size
    if size > FRAME_BYTES_MAX:
        raise UnencodableMessage(f"a frame of {size} bytes exceeds the limit of {FRAME_BYTES_MAX} bytes")
    _SIZE.pack_into(chunks[0], 0, size)
    return chunks
