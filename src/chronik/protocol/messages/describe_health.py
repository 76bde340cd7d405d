"""DescribeHealth: return the problems of the cluster.

An API of Chronik, which ApiVersions does not list. Kafka has no equivalent.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, binary, int16, int32, string


class DescribeHealthRequest(Request):
    pass


class DescribeHealthResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    health: bytes = binary("0+")
    """The problems as JSON: see `chronik.health.reports.HealthReport.to_json`."""
