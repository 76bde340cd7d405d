"""Splitting of keys and values into schema id or GUID, message indexes and payload."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from chronik.formats.codec import UndecodableValueError
from chronik.formats.framing import (
    KEY_HEADER,
    VALUE_HEADER,
    FramedValue,
    FrameGroup,
    UnframedValueError,
    encode_message_indexes,
    find_schema_header,
    split_frame,
    split_frames,
    split_message_groups,
    split_message_indexes,
)
from chronik.pipeline.records.columns import HEADERS_TYPE

GUID = UUID("89791762-2336-186f-9674-299b90a8e2e5")
ID_FRAME = b"\x00\x00\x00\x01\x02"
GUID_FRAME = b"\x01" + GUID.bytes


def test_frame_with_id_has_id_and_payload() -> None:
    assert split_frame(ID_FRAME + b"abc") == FramedValue(258, b"abc")


def test_frame_with_guid_has_guid_and_payload() -> None:
    assert split_frame(GUID_FRAME + b"abc") == FramedValue(GUID, b"abc")


def test_frame_with_largest_id_is_unsigned() -> None:
    assert split_frame(b"\x00\xff\xff\xff\xff").schema == 2**32 - 1


def test_header_takes_precedence_over_prefix() -> None:
    assert split_frame(ID_FRAME + b"abc", GUID_FRAME + b"\x00") == FramedValue(GUID, ID_FRAME + b"abc", b"\x00")


@pytest.mark.parametrize("value", [b"", b"\x00", ID_FRAME[:4], GUID_FRAME[:16], b"\x02" + ID_FRAME, b"{}"])
def test_value_without_schema_is_rejected(value: bytes) -> None:
    with pytest.raises(UnframedValueError, match="value does not start with a schema id"):
        split_frame(value)
    with pytest.raises(UnframedValueError, match="schema header does not start with a schema id"):
        split_frame(ID_FRAME, value)


def test_last_schema_header_counts() -> None:
    headers = [(VALUE_HEADER, b"1"), (KEY_HEADER, b"2"), (VALUE_HEADER, b"3"), ("other", b"4")]
    assert find_schema_header(headers, is_key=False) == b"3"
    assert find_schema_header(headers, is_key=True) == b"2"
    assert find_schema_header([], is_key=True) is None


@pytest.mark.parametrize("indexes", [(0,), (1,), (2, 0), (0, 0), (5, 300, 70_000)])
def test_message_indexes_round_trip(indexes: tuple[int, ...]) -> None:
    assert split_message_indexes(encode_message_indexes(indexes) + b"abc") == (indexes, b"abc")


def test_message_indexes_without_shorthand_are_accepted() -> None:
    assert split_message_indexes(b"\x02\x00abc") == ((0,), b"abc")


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x02\x01", b"\x01", b"\x80" * 11, b"\x82\x01" + b"\x00" * 65])
def test_invalid_message_indexes_are_rejected(data: bytes) -> None:
    with pytest.raises(UndecodableValueError, match="message ind"):
        split_message_indexes(data)


def test_65_message_indexes_are_rejected_and_64_accepted() -> None:
    assert len(split_message_indexes(encode_message_indexes([0] * 64))[0]) == 64
    with pytest.raises(UndecodableValueError, match="has 65 message indexes"):
        split_message_indexes(encode_message_indexes([0] * 65))


def simplify(groups: list[FrameGroup]) -> dict[object, tuple[list[int], list[bytes], bytes | None]]:
    return {each.schema: (each.rows.tolist(), each.payloads.to_pylist(), each.indexes) for each in groups}


@pytest.mark.parametrize("data_type", [pa.binary(), pa.large_binary()])
def test_frames_of_array_are_grouped_by_schema(data_type: pa.DataType) -> None:
    values = [b"skipped", ID_FRAME + b"a", None, GUID_FRAME + b"b", b"bad", b"\x00\0\0\0\x07c", ID_FRAME, b""]
    found = split_frames(pa.array(values, data_type)[1:])
    assert simplify(found.groups) == {
        258: ([0, 5], [b"a", b""], None),
        7: ([4], [b"c"], None),
        GUID: ([2], [b"b"], None),
    }
    assert found.errors == dict.fromkeys((3, 6), "the value does not start with a schema id")


def test_frames_of_empty_array_are_none() -> None:
    assert split_frames(pa.array([], pa.binary())) == ([], {})
    assert split_frames(pa.array([None], pa.binary())) == ([], {})


def test_frames_with_headers_are_grouped_by_header() -> None:
    headers: list[list[dict[str, object]] | None] = [
        [{"key": VALUE_HEADER, "value": GUID_FRAME + b"\x02"}],
        None,
        [{"key": KEY_HEADER, "value": GUID_FRAME}],
        [{"key": VALUE_HEADER, "value": b"bad"}],
        [{"key": "other", "value": None}, {"key": VALUE_HEADER, "value": ID_FRAME}],
        [{"key": VALUE_HEADER, "value": ID_FRAME}],
    ]
    values = pa.array([b"a", ID_FRAME + b"b", ID_FRAME + b"c", b"d", b"e", None], pa.binary())
    found = split_frames(values, pa.array(headers, HEADERS_TYPE))
    by_header = [each for each in found.groups if each.indexes is not None]
    assert simplify(by_header) == {GUID: ([0], [b"a"], b"\x02"), 258: ([4], [b"e"], b"")}
    assert simplify(found.groups[2:]) == {258: ([1, 2], [b"b", b"c"], None)}
    assert found.errors == {3: "the schema header does not start with a schema id"}


def test_frames_of_slice_with_headers_refer_to_its_rows() -> None:
    headers = pa.array([[{"key": KEY_HEADER, "value": ID_FRAME}]] * 3, HEADERS_TYPE)[1:]
    found = split_frames(pa.array([b"a", b"b", b"c"], pa.binary())[1:], headers, is_key=True)
    assert simplify(found.groups) == {258: ([0, 1], [b"b", b"c"], b"")}


def test_message_groups_split_indexes_of_each_payload() -> None:
    payloads = [b"\x00a", b"\x02\x02b", b"\x00", b"", b"\x02\x02c"]
    (group,) = split_frames(pa.array([ID_FRAME + each for each in payloads], pa.binary())).groups
    groups, errors = split_message_groups(group)
    assert {each.indexes: (each.rows.tolist(), each.payloads.to_pylist()) for each in groups} == {
        (0,): ([0, 2], [b"a", b""]),
        (1,): ([1, 4], [b"b", b"c"]),
    }
    assert errors == {3: "the message indexes of the value are incomplete"}


def test_message_groups_of_first_type_are_split_in_bulk() -> None:
    (group,) = split_frames(pa.array([ID_FRAME + b"\x00a", ID_FRAME + b"\x00"], pa.binary())).groups
    groups, errors = split_message_groups(group)
    assert [(each.indexes, each.rows.tolist(), each.payloads.to_pylist()) for each in groups] == [
        ((0,), [0, 1], [b"a", b""])
    ]
    assert not errors


def test_message_groups_take_indexes_from_header() -> None:
    for indexes, expected in ((b"\x02\x04", (2,)), (b"", (0,))):
        headers = pa.array([[{"key": VALUE_HEADER, "value": ID_FRAME + indexes}]], HEADERS_TYPE)
        (group,) = split_frames(pa.array([b"a"], pa.binary()), headers).groups
        groups, errors = split_message_groups(group)
        assert [(each.indexes, each.payloads.to_pylist()) for each in groups] == [(expected, [b"a"])]
        assert not errors
