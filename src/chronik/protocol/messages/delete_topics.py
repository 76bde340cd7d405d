"""DeleteTopics: delete topics by name, from version 6 on also by id.

Version 5 adds error messages.
"""

from __future__ import annotations

from chronik.protocol.schema import Request, Response, Struct, array, int16, int32, mirror_request_field, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


class DeleteTopicsRequest(Request):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Struct):
    name: str | None = mirror_request_field("name", string("0+", nullable="6+"))
    topic_id: bytes = mirror_request_field("topic_id", uuid("6+"))
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None)


class DeleteTopicsResponse(Response):
    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = mirror_request_field("topics", array(DeletableTopicResult, "0+"))
