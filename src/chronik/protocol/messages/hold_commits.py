"""HoldCommits: keeps transactions from being committed for a moment, while a backup notes where logs end.

Chronik's own, and not told by ApiVersions. With a `hold` it ends that one, and says whether it was still in force.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, boolean, int16, int32, int64, mirror, string


class HoldCommitsRequest(Request):
    hold: int = int64("0+")


class HoldCommitsResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    hold: int = mirror("hold", int64("0+"))
    was_in_force: bool = boolean("0+")
