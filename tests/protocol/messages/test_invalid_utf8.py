from __future__ import annotations

import struct

import pytest

from chronik.protocol import codec
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.protocol.messages.produce import ProduceRequest, TopicProduceData
from chronik.protocol.wire import INVALID_UTF8_BYTES_MAX, MalformedMessage

REPLACED = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("version", [0, 9])
def test_invalid_utf8_in_string_is_replaced(version: int) -> None:
    data = codec.encode(MetadataRequest(topics=[MetadataRequestTopic(name="abc")]), version)
    message = codec.decode(MetadataRequest, version, data.replace(b"abc", "aäc".encode("latin-1")))
    assert message.topics == [MetadataRequestTopic(name=f"a{REPLACED}c")]


def test_invalid_utf8_in_message_with_records_is_replaced() -> None:
    data = codec.encode(ProduceRequest(topic_data=[TopicProduceData(name="abc")]), 9)
    message = codec.decode(ProduceRequest, 9, data.replace(b"abc", b"\xc3(c"))
    assert [topic.name for topic in message.topic_data] == [f"{REPLACED}(c"]


def test_invalid_utf8_in_client_id_is_replaced() -> None:
    header, _ = codec.decode_request(memoryview(struct.pack(">hhih", 18, 0, 1, 3) + "Zä1".encode("latin-1")))
    assert header.client_id == f"Z{REPLACED}1"


def test_long_string_with_invalid_utf8_is_rejected() -> None:
    def sent(size: int) -> bytes:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="x" * size)])
        return codec.encode(request, 0).replace(b"x", b"\xff")

    message = codec.decode(MetadataRequest, 0, sent(INVALID_UTF8_BYTES_MAX))
    assert codec.decode(MetadataRequest, 0, codec.encode(message, 0)) == message
    with pytest.raises(MalformedMessage, match="not valid UTF-8"):
        codec.decode(MetadataRequest, 0, sent(INVALID_UTF8_BYTES_MAX + 1))


def test_valid_utf8_is_unchanged() -> None:
    text = "ä\N{GRINNING FACE}\0" + REPLACED
    for version in (0, 9):
        data = codec.encode(MetadataRequest(topics=[MetadataRequestTopic(name=text)]), version)
        assert codec.decode(MetadataRequest, version, data).topics == [MetadataRequestTopic(name=text)]
