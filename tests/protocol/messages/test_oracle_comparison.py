"""A wrong message declaration is reported with the field and its counterpart in another codec."""

from __future__ import annotations

import pytest

from chronik.protocol.schema import Request, Struct, array, int16, int32, string

from .oracles import ORACLES, Oracle

BY_NAME = [oracle for oracle in ORACLES if oracle.name in ("kio", "kafka-python")]


def wrong_kind() -> type[Struct]:
    class HeartbeatRequest(Request):
        group_id: str = string("0+")
        generation_id: int = int16("0+")
        member_id: str = string("0+")

    return HeartbeatRequest


def wrong_order() -> type[Struct]:
    class HeartbeatRequest(Request):
        member_id: str = string("0+")
        generation_id: int = int32("0+")
        group_id: str = string("0+")

    return HeartbeatRequest


def string_instead_of_struct() -> type[Struct]:
    class DeleteRecordsRequest(Request):
        topics: list[str] = array(string, "0+")
        timeout_ms: int = int32("0+")

    return DeleteRecordsRequest


def missing_field() -> type[Struct]:
    class HeartbeatRequest(Request):
        group_id: str = string("0+")
        generation_id: int = int32("0+")

    return HeartbeatRequest


@pytest.mark.slow
@pytest.mark.parametrize("oracle", BY_NAME, ids=lambda oracle: oracle.name)
@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (wrong_kind, r"HeartbeatRequest 0: `generation_id` is int16, .* `generation_id`, int32"),
        (wrong_order, r"HeartbeatRequest 0: `member_id` is string, .* `group_?id`, string"),
        (
            string_instead_of_struct,
            r"DeleteRecordsRequest 0: `topics` is array of string, .* `topics`, array of struct",
        ),
        (missing_field, r"HeartbeatRequest 0: .*group_id, generation_id; .*group_id, generation_id, member_id"),
    ],
)
def test_comparison_names_field_that_differs_from_oracle(oracle: Oracle, mistake: object, told: str) -> None:
    assert callable(mistake)
    with pytest.raises(AssertionError, match=told):
        oracle.encode(mistake()(), 0)
