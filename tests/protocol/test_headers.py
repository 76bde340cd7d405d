from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from kafka.protocol.api_header import RequestHeader as KafkaPythonRequestHeader
from kafka.protocol.api_header import ResponseHeader as KafkaPythonResponseHeader
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from chronik.protocol import codec
from chronik.protocol.apis import API_VERSIONS_KEY, APIS, KAFKA_APIS, Api
from chronik.protocol.codec import REQUESTS, RESPONSES
from tests.protocol.messages.values import MESSAGE_VERSIONS

API_LIST = list(KAFKA_APIS.values())
CLIENT_IDS = (None, "", "rdkafka", "ü" * 300)


def in_frame(frame: bytes) -> memoryview:
    """Return a frame without its size, which must be correct."""
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    return memoryview(frame)[4:]


def header_values(api: Api, version: int) -> dict[str, int]:
    return {"request_api_key": api.key, "request_api_version": version, "correlation_id": -5}


def kio_bytes(entity: Any, **values: object) -> bytes:
    out = io.BytesIO()
    entity_writer(entity)(out, entity(**values))
    return out.getvalue()


@pytest.mark.parametrize("api", API_LIST, ids=lambda api: api.name)
def test_request_headers_match_other_codecs(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for client_id in CLIENT_IDS:
            request = REQUESTS[api.key]()
            header = codec.RequestHeader(api.key, version, -5, client_id)
            frame = in_frame(codec.encode_request(header, request))
            start = bytes(frame).removesuffix(codec.encode(request, version))
            theirs = KafkaPythonRequestHeader(client_id=client_id, **header_values(api, version))
            assert start == theirs.encode(flexible=version >= api.first_flexible)
            assert codec.decode_request(frame) == (header, request)


@pytest.mark.parametrize("api", API_LIST, ids=lambda api: api.name)
def test_response_headers_match_other_codecs(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        response = RESPONSES[api.key]()
        frame = in_frame(b"".join(codec.encode_response(77, version, response)))
        start = bytes(frame).removesuffix(codec.encode(response, version))
        flexible = version >= api.first_flexible and api.key != API_VERSIONS_KEY
        assert start == KafkaPythonResponseHeader(correlation_id=77).encode(flexible=flexible)
        assert codec.decode_response(api.key, version, frame) == (77, response)


@pytest.mark.slow  # kio has a module per version, and loading them takes seconds
@pytest.mark.parametrize("api", API_LIST, ids=lambda api: api.name)
def test_headers_match_kio(api: Api) -> None:
    known = [version for version in range(api.min_version, api.max_version + 1) if _kio_knows(api, version)]
    assert known
    for version in known:
        request, response = REQUESTS[api.key](), RESPONSES[api.key]()
        for client_id in CLIENT_IDS:
            header = codec.RequestHeader(api.key, version, -5, client_id)
            start = bytes(in_frame(codec.encode_request(header, request))).removesuffix(codec.encode(request, version))
            kio_header = load_request_schema(api.key, version).__header_schema__
            assert start == kio_bytes(kio_header, client_id=client_id, **header_values(api, version))
        frame = in_frame(b"".join(codec.encode_response(77, version, response)))
        start = bytes(frame).removesuffix(codec.encode(response, version))
        assert start == kio_bytes(load_response_schema(api.key, version).__header_schema__, correlation_id=77)


def _kio_knows(api: Api, version: int) -> bool:
    from tests.protocol.messages.oracles import Kio

    return Kio().supports(REQUESTS[api.key], version)


def test_api_versions_response_always_has_header_version_0() -> None:
    api = APIS[API_VERSIONS_KEY]
    for version in range(api.max_version + 1):
        frame = b"".join(codec.encode_response(1, version, RESPONSES[api.key]()))
        assert frame[4:] == b"\0\0\0\1" + codec.encode(RESPONSES[api.key](), version)


def test_tagged_fields_in_header_are_skipped() -> None:
    metadata = REQUESTS[3]
    body = codec.encode(metadata(), 12)
    fixed = struct.pack(">hhih", 3, 12, 9, -1)
    header, request = codec.decode_request(memoryview(fixed + b"\x02\x00\x01x\x05\x02yz" + body))
    assert (header.correlation_id, request) == (9, metadata())


def test_header_tests_cover_every_api() -> None:
    assert {pair.cls.__schema__.api_key for pair in MESSAGE_VERSIONS} == set(APIS)
