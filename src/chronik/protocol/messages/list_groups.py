"""ListGroups: list the groups of a broker.

Version 4 filters by state, version 5 by type.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListGroupsGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Response):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    groups: list[ListGroupsGroup] = array(ListGroupsGroup, "0+")
