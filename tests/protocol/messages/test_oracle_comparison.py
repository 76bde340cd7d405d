"""Who declares a message wrongly is told which field it is, and what others have in its place."""

from __future__ import annotations

import pytest

from chronik.protocol.schema import Request, Struct, array, int16, int32, string

from .oracles import ORACLES, Oracle

BY_NAME = [oracle for oracle in ORACLES if oracle.name in ("kio", "kafka-python")]


def a_wrong_kind() -> type[Struct]:
    class HeartbeatRequest(Request):
        group_id: str = string("0+")
        generation_id: int = int16("0+")
        member_id: str = string("0+")

    return HeartbeatRequest


def two_in_the_wrong_order() -> type[Struct]:
    class HeartbeatRequest(Request):
        member_id: str = string("0+")
        generation_id: int = int32("0+")
        group_id: str = string("0+")

    return HeartbeatRequest


def text_for_a_part() -> type[Struct]:
    class DeleteRecordsRequest(Request):
        topics: list[str] = array(string, "0+")
        timeout_ms: int = int32("0+")

    return DeleteRecordsRequest


def one_too_few() -> type[Struct]:
    class HeartbeatRequest(Request):
        group_id: str = string("0+")
        generation_id: int = int32("0+")

    return HeartbeatRequest


@pytest.mark.slow
@pytest.mark.parametrize("oracle", BY_NAME, ids=lambda oracle: oracle.name)
@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (a_wrong_kind, r"HeartbeatRequest 0: `generation_id` is int16, .* `generation_id`, int32"),
        (two_in_the_wrong_order, r"HeartbeatRequest 0: `member_id` is string, .* `group_?id`, string"),
        (text_for_a_part, r"DeleteRecordsRequest 0: `topics` is array of string, .* `topics`, array of struct"),
        (one_too_few, r"HeartbeatRequest 0: .*group_id, generation_id; .*group_id, generation_id, member_id"),
    ],
)
def test_comparison_names_field_that_differs_from_oracle(oracle: Oracle, mistake: object, told: str) -> None:
    assert callable(mistake)
    with pytest.raises(AssertionError, match=told):
        oracle.encode(mistake()(), 0)
