"""HoldCommits: pause transaction commits briefly, while a backup records the log end offsets.

An API of Chronik, which ApiVersions does not list. With a `hold` id it ends that pause, and returns whether it was
still active.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, boolean, int16, int32, int64, mirror_request_field, string


class HoldCommitsRequest(Request):
    hold: int = int64("0+")


class HoldCommitsResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    hold: int = mirror_request_field("hold", int64("0+"))
    was_in_force: bool = boolean("0+")
