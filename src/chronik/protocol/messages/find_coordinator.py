"""FindCoordinator: return the coordinator of a group or a transactional id.

Version 1 adds the key type, version 4 several keys per request.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int8, int16, int32, mirror_request_field, string


class FindCoordinatorRequest(Request):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class FoundCoordinator(Struct):
    key: str = mirror_request_field("coordinator_keys", string("4+"))
    node_id: int = int32("4+", default=-1)
    host: str = string("4+")
    port: int = int32("4+", default=-1)
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+")


class FindCoordinatorResponse(Response):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3", default=-1)
    host: str = string("0-3")
    port: int = int32("0-3", default=-1)
    coordinators: list[FoundCoordinator] = mirror_request_field("coordinator_keys", array(FoundCoordinator, "4+"))
