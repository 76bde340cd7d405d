"""DescribeGroups: return the state and members of groups.

Version 3 adds authorized operations, 4 static members, 6 error messages and GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from chronik.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    binary,
    boolean,
    int16,
    int32,
    mirror_request_field,
    string,
)


class DescribeGroupsRequest(Request):
    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


class DescribeGroupsGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = mirror_request_field("groups", string("0+"))
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-0x8000_0000)


class DescribeGroupsResponse(Response):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribeGroupsGroup] = mirror_request_field("groups", array(DescribeGroupsGroup, "0+"))
