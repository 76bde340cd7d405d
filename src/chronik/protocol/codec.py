"""Encoding and decoding of frames and messages; the public interface of the message codec.

Frames are decoded without their size prefix and encoded with it. A frame that is not exactly one message raises
MalformedMessage, except that a request may have trailing bytes: librdkafka 2.16 sends some, and Kafka ignores them. A
message that cannot be encoded raises UnencodableMessage with the name of the field.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeVar, cast

from chronik.protocol.compiler.compile import Encoder, compile_decoder, compile_element_encoder, compile_encoder
from chronik.protocol.compiler.validation import find_invalid_field
from chronik.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    is_response_header_flexible,
)
from chronik.protocol.message_types import REQUESTS, RESPONSES
from chronik.protocol.schema import BytesLike, Request, Response, Struct
from chronik.protocol.wire import (
    REQUEST_ELEMENTS_MAX,
    RESPONSE_ELEMENTS_MAX,
    MalformedMessage,
    UnencodableMessage,
    UnknownApi,
    UnsupportedField,
    UnsupportedVersion,
)

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

M = TypeVar("M", bound=Struct)

FRAME_BYTES_MAX: Final = 0x7FFF_FFFF  # the size prefix of a frame is an int32
_SIZE: Final = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")


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
    """Decode the body of a request whose header was decoded with `decode_request_header`."""
    return _decode(REQUESTS[header.api_key], header.api_version, frame, position, REQUEST_ELEMENTS_MAX)


def encode_response(correlation_id: int, api_version: int, response: Response) -> list[BytesLike]:
    """Encode a response frame as buffers for `transport.writelines`. Large records are referenced, not copied."""
    out = bytearray(_SIZE_AND_CORRELATION_ID.pack(0, correlation_id))
    if is_response_header_flexible(response.__schema__, api_version):
        out.append(0)
    return _finish_frame(_encode(response, api_version, out))


def encode_request(header: RequestHeader, request: Request) -> bytes:
    """Encode a request frame.

    Raises:
        UnsupportedField: The request sets a field that its version does not have.
    """
    out = bytearray(_SIZE.size)
    encode_request_header(out, header, request.__schema__.flexible.covers(header.api_version))
    return b"".join(_finish_frame(_encode(request, header.api_version, out)))


def decode_response(api_key: int, api_version: int, frame: memoryview) -> tuple[int, Response]:
    """Decode the response to a request of this API key and version, and return it with its correlation id."""
    cls = RESPONSES[api_key]
    correlation_id, position = decode_response_header(cls.__schema__, api_version, frame)
    return correlation_id, _decode(cls, api_version, frame, position, RESPONSE_ELEMENTS_MAX)


def encode(message: Struct, version: int) -> bytes:
    """Encode a message without frame and header."""
    return b"".join(_encode(message, version, bytearray()))


def encode_element(message: type[Response], element: Struct, version: int) -> bytes:
    """Encode an element of a top-level array of a response; the bytes may be used in place of the element."""
    encode_into = compile_element_encoder(message, type(element), version)
    return b"".join(_encode_with(encode_into, element, version, bytearray()))


def decode(cls: type[M], version: int, data: BytesLike) -> M:
    """Decode a message without frame and header. Its records are slices of `data`."""
    budget = REQUEST_ELEMENTS_MAX if issubclass(cls, Request) else RESPONSE_ELEMENTS_MAX
    return _decode(cls, version, memoryview(data), 0, budget)


def _decode(cls: type[M], version: int, frame: memoryview, position: int, budget: int) -> M:
    try:
        message, end = compile_decoder(cls, version)(frame, position, budget)
    except (IndexError, struct.error) as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from error
    if end != len(frame) and not issubclass(cls, Request):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(frame) - end} trailing bytes")
    return cast(M, message)


def _encode(message: Struct, version: int, out: bytearray) -> list[BytesLike]:
    return _encode_with(compile_encoder(type(message), version), message, version, out)


def _encode_with(encode_into: Encoder, message: Struct, version: int, out: bytearray) -> list[BytesLike]:
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
