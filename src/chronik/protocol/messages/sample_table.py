"""SampleTable: some rows of the table that a topic lands in, from the driver that lands it.

Chronik's own, and not told by ApiVersions. It is asked of the leader of `__chronik_pipelines`, where drivers come for
what they are asked (AnswerSamples), and is answered when one has come and read its table, or when the time is up.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, binary, int16, int32, string


class SampleTableRequest(Request):
    pipeline: str = string("0+")
    topic: str = string("0+")
    rows: int = int32("0+")
    timeout_ms: int = int32("0+")


class SampleTableResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    sample: bytes = binary("0+")
    """JSON, as the driver made it: see `chronik.pipeline.tables.sampling`."""
