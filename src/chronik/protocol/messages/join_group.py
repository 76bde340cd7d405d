"""JoinGroup: join a group of the classic protocol, and wait for the rebalance.

Version 1 adds a rebalance timeout, 4 MEMBER_ID_REQUIRED for new members, 5 static members, 7 the protocol type, 8
reasons, 9 lets the leader skip the assignment.
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


class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = binary("0+")


class JoinGroupRequest(Request):
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = binary("0+")


class JoinGroupResponse(Response):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = mirror_request_field("member_id", string("0+"))
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")
