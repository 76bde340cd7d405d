"""Heartbeat: keep a group member alive, and notify it of rebalances.

Version 3 adds static members.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Response):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
