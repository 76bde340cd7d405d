"""SampleTable: request sample rows of a topic's table from the driver that lands the topic.

An API of Chronik, which ApiVersions does not list. The leader of `__chronik_pipelines` forwards the request to a driver
(AnswerSamples), and responds when the driver has read its table or the timeout expires.
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
    """The rows as JSON: see `chronik.pipeline.tables.formatting`."""
