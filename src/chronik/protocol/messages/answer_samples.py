"""AnswerSamples: send a driver's responses to sample requests (SampleTable), and wait for the next requests.

An API of Chronik, which ApiVersions does not list. The leader of `__chronik_pipelines` handles it.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, binary, int16, int32, string, uuid


class SampleResponseEntry(Struct):
    id: bytes = uuid("0+")
    sample: bytes = binary("0+")


class AnswerSamplesRequest(Request):
    pipeline: str = string("0+")
    max_wait_ms: int = int32("0+")
    answers: list[SampleResponseEntry] = array(SampleResponseEntry, "0+")


class SampleRequestEntry(Struct):
    id: bytes = uuid("0+")
    topic: str = string("0+")
    rows: int = int32("0+")


class AnswerSamplesResponse(Response):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    asked: list[SampleRequestEntry] = array(SampleRequestEntry, "0+")
