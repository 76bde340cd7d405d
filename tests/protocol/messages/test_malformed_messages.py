"""Decoders return a message or raise one of three typed errors, in bounded time and memory, for any bytes."""

from __future__ import annotations

import random
import re
import struct
import time
import tracemalloc

import pytest

from chronik.protocol import codec, wire
from chronik.protocol.codec import REQUESTS, UnknownApi, UnsupportedVersion
from chronik.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from chronik.protocol.messages.fetch import FetchRequest
from chronik.protocol.messages.join_group import JoinGroupRequest
from chronik.protocol.messages.list_groups import ListGroupsRequest
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from chronik.protocol.schema import Request
from chronik.protocol.wire import INVALID_UTF8_BYTES_MAX, MalformedMessage, read_varint, write_varint

from .fuzz_decoder import fuzz
from .values import BY_MESSAGE, MessageVersion, format_versions, generate

SECONDS_MAX = 1.0

REPLACED = "\N{REPLACEMENT CHARACTER}"


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def assert_rejected(cls: type, version: int, data: bytes, match: str = "") -> None:
    try:
        decoded: object = codec.decode(cls, version, data)
    except MalformedMessage as error:
        told = str(error)
    else:
        pytest.fail(f"{data.hex()} was decoded as version {version} of {decoded!r}")
    assert re.search(match, told)


@pytest.mark.parametrize("pairs", BY_MESSAGE, ids=format_versions)
def test_truncated_or_extended_message_is_rejected(pairs: list[MessageVersion]) -> None:
    for pair in pairs:
        data = codec.encode(generate(*pair, "highest", "cut"), pair.version)
        rng = random.Random(str(pair))
        ends = set(range(min(len(data), 40))) | {len(data) - 1} | {rng.randrange(len(data) + 1) for _ in range(40)}
        for end in ends - {len(data), -1}:
            assert_rejected(*pair, data[:end])
        if not issubclass(pair.cls, Request):
            assert_rejected(*pair, data + b"\0", "1 trailing bytes")


def test_trailing_bytes_of_request_are_ignored() -> None:
    """A client, librdkafka 2.16, sends an array count of four bytes instead of one when it requests all topics."""
    request = codec.decode(MetadataRequest, 13, bytes.fromhex("00000000010000"))
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


class TestLengths:
    @pytest.mark.parametrize("length", [-2, -32768, 1, 32767])
    def test_invalid_string_length_is_rejected(self, length: int) -> None:
        assert_rejected(ProduceRequest, 3, struct.pack(">hhii", length, 1, 1, 0))

    def test_null_in_non_nullable_field_is_rejected(self) -> None:
        assert_rejected(JoinGroupRequest, 0, struct.pack(">h", -1) + bytes(50), "group_id: length -1")
        assert_rejected(JoinGroupRequest, 6, bytes(50), "group_id: length -1")
        assert_rejected(FetchRequest, 4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, -1), "topics: -1 elements")
        assert_rejected(FetchRequest, 12, bytes(26), "topics: -1 elements")

    @pytest.mark.parametrize("length", [-2, -(2**31), 1, 2**31 - 1])
    def test_invalid_records_length_is_rejected(self, length: int) -> None:
        before = struct.pack(">hihi", 1, 1000, 0, 0)[:6] + struct.pack(">ihsii", 1, 1, b"t", 1, 0)
        assert_rejected(ProduceRequest, 0, before + struct.pack(">i", length), "records")

    def test_compact_string_is_limited_to_32767_bytes(self) -> None:
        def with_topic(size: int) -> bytes:
            return b"\x02" + varint(size + 1) + b"x" * size + b"\0" + b"\1\0\0\0"

        message = codec.decode(MetadataRequest, 9, with_topic(32767))
        assert message.topics == [MetadataRequestTopic(name="x" * 32767)]
        assert_rejected(MetadataRequest, 9, with_topic(32768), "length 32769")


class TestVarints:
    @pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**28, 2**31 - 1])
    def test_varint_round_trips(self, value: int) -> None:
        assert read_varint(varint(value) + b"\xff", 0) == (value, len(varint(value)))

    @pytest.mark.parametrize("data", [varint(2**31), varint(2**35 - 1), b"\x80" * 5 + b"\0", b"\xff" * 100])
    def test_varint_beyond_31_bits_is_rejected(self, data: bytes) -> None:
        with pytest.raises(MalformedMessage):
            read_varint(data, 0)


class TestCounts:
    @pytest.mark.parametrize("count", [2, 1000, 2**31 - 1, -2, -(2**31)])
    def test_count_beyond_remaining_bytes_is_rejected_before_allocation(self, count: int) -> None:
        assert_rejected(MetadataRequest, 1, struct.pack(">ih", count, 0), "elements do not fit into 2 bytes")

    def test_element_budget_applies_to_whole_message(self) -> None:
        def two_filters(first: int, second: int) -> bytes:
            return b"".join(varint(count + 1) + b"\1" * count for count in (first, second)) + b"\0"

        most = wire.REQUEST_ELEMENTS_MAX
        message = codec.decode(ListGroupsRequest, 5, two_filters(most - 10, 10))
        assert len(message.states_filter) + len(message.types_filter) == most
        assert_rejected(ListGroupsRequest, 5, two_filters(most - 10, 11), "too many array elements")

    def test_huge_frame_of_tiny_elements_is_rejected_cheaply(self) -> None:
        count = 50_000_000
        frame = varint(count + 1) + bytes(2 * count)
        started = time.thread_time()
        tracemalloc.start()
        try:
            assert_rejected(DescribeTopicPartitionsRequest, 0, frame, "too many array elements")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert time.thread_time() - started < SECONDS_MAX
        assert peak < len(frame) + 1_000_000  # one copy of the frame is allowed, because strings are sliced from bytes

    def test_maximum_number_of_elements_is_decoded_in_time(self) -> None:
        count = wire.REQUEST_ELEMENTS_MAX
        frame = varint(count + 1) + b"\1\0" * count + struct.pack(">ib", 10, -1) + b"\0"
        started = time.thread_time()
        assert len(codec.decode(DescribeTopicPartitionsRequest, 0, frame).topics) == count
        assert time.thread_time() - started < SECONDS_MAX


class TestTaggedFields:
    EMPTY = codec.encode(MetadataRequest(), 12)[:-1]

    def test_unknown_tagged_fields_are_skipped(self) -> None:
        data = self.EMPTY + b"\2" + b"\0\3abc" + b"\x80\1\0"
        assert codec.decode(MetadataRequest, 12, data) == MetadataRequest()

    @pytest.mark.parametrize("tags", [b"\2\0\0\0\0", b"\2\5\0\4\0"])
    def test_repeated_or_descending_tags_are_rejected(self, tags: bytes) -> None:
        assert_rejected(MetadataRequest, 12, self.EMPTY + tags, "follows tag")

    def test_repeated_known_tags_are_rejected(self) -> None:
        empty = codec.encode(FetchRequest(), 12)[:-1]
        assert codec.decode(FetchRequest, 12, empty + b"\1\0\2\2x"[:4] + b"x").cluster_id == "x"
        assert_rejected(FetchRequest, 12, empty + b"\2" + b"\0\2\2x" * 2, "follows tag")

    def test_known_tagged_field_must_match_its_length(self) -> None:
        empty = codec.encode(FetchRequest(), 12)[:-1]
        assert_rejected(FetchRequest, 12, empty + b"\1\0\3\2xy", "another size")
        assert_rejected(FetchRequest, 12, empty + b"\1\0\1\2xy", "another size")

    def test_tagged_field_length_beyond_end_is_rejected(self) -> None:
        assert_rejected(MetadataRequest, 12, self.EMPTY + b"\1\0\5abc", "tag 0: length 5")

    @pytest.mark.parametrize("count", [wire.REQUEST_ELEMENTS_MAX + 1, 20_000_000])
    def test_tagged_fields_beyond_budget_are_rejected(self, count: int) -> None:
        header = struct.pack(">hhih", 3, 12, 1, -1)
        started = time.thread_time()
        assert_rejected(MetadataRequest, 12, self.EMPTY + varint(count) + bytes(2 * count), "too many array elements")
        with pytest.raises(MalformedMessage, match="too many array elements"):
            codec.decode_request(memoryview(header + varint(count) + bytes(2 * count)))
        assert time.thread_time() - started < SECONDS_MAX

    def test_maximum_number_of_tagged_fields_is_skipped_in_time(self) -> None:
        count = wire.REQUEST_ELEMENTS_MAX
        tags = b"".join(varint(tag) + b"\0" for tag in range(count))
        started = time.thread_time()
        assert codec.decode(MetadataRequest, 12, self.EMPTY + varint(count) + tags) == MetadataRequest()
        assert time.thread_time() - started < SECONDS_MAX


class TestHeaders:
    def test_unknown_api_error_has_correlation_id(self) -> None:
        with pytest.raises(UnknownApi) as caught:
            codec.decode_request(memoryview(struct.pack(">hhih", 9999, 3, 42, -1)))
        assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (9999, 3, 42)

    @pytest.mark.parametrize("version", [-1, 5, 99, 32767])
    def test_unsupported_version_error_has_correlation_id(self, version: int) -> None:
        with pytest.raises(UnsupportedVersion) as caught:
            codec.decode_request(memoryview(struct.pack(">hhih", 18, version, 42, -1)))
        assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (18, version, 42)

    @pytest.mark.parametrize(
        "frame",
        [b"", b"\0", struct.pack(">hhi", 18, 0, 1), *(struct.pack(">hhih", 18, 0, 1, length) for length in (5, -2))],
    )
    def test_truncated_header_is_rejected(self, frame: bytes) -> None:
        with pytest.raises(MalformedMessage):
            codec.decode_request(memoryview(frame))

    def test_flexible_header_without_tagged_fields_is_rejected(self) -> None:
        with pytest.raises(MalformedMessage):
            codec.decode_request(memoryview(struct.pack(">hhih", 18, 3, 1, -1)))


def test_any_non_zero_byte_is_decoded_as_true() -> None:
    data = codec.encode(MetadataRequest(allow_auto_topic_creation=True), 4)
    assert codec.decode(MetadataRequest, 4, data[:-1] + b"\x7f").allow_auto_topic_creation is True


def test_decoded_records_are_slices_of_frame() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"abc")])])
    frame = bytearray(codec.encode_request(codec.RequestHeader(0, 9, 1, None), request)[4:])
    _, decoded = codec.decode_request(memoryview(frame))
    assert isinstance(decoded, ProduceRequest)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"abc")] = ord("X")
    assert bytes(records) == b"Xbc"


def test_invalid_presence_byte_of_nullable_struct_is_rejected() -> None:
    data = codec.encode(REQUESTS[75](), 0)
    assert data[-2] == 255
    assert_rejected(REQUESTS[75], 0, data[:-2] + b"\2" + data[-1:], "neither null nor present")


def test_fuzzed_frames_decode_or_raise_typed_errors() -> None:
    outcomes = fuzz(seed=20260, count=10_000)
    assert outcomes.total() == 10_000
    assert set(outcomes) == {"decoded", "MalformedMessage", "UnknownApi", "UnsupportedVersion"}
    assert min(outcomes["decoded"], outcomes["MalformedMessage"]) > 1000


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
