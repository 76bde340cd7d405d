"""DeleteGroups: delete groups without members, with their offsets."""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, mirror_request_field, string


class DeleteGroupsRequest(Request):
    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: str = mirror_request_field("groups_names", string("0+"))
    error_code: int = int16("0+")


class DeleteGroupsResponse(Response):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = mirror_request_field("groups_names", array(DeletableGroupResult, "0+"))
