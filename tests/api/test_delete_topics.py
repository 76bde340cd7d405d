"""DeleteTopics: validation of topic names and ids."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chronik.api import delete_topics
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.api.rejecting_services import rejecting_services

UNNAMED = DeleteTopicState(name=None)
BY_BOTH = DeleteTopicState(name="both", topic_id=b"i" * 16)
NAME_OR_ID = "Specify either the name or the id of each topic"
TWICE = "The request names the topic more than once"


@pytest.mark.parametrize("topic", [UNNAMED, BY_BOTH])
@pytest.mark.parametrize(("count", "message"), [(1, NAME_OR_ID), (2, TWICE), (3, TWICE)])
def test_duplicate_topic_error_precedes_invalid_name_error(topic: DeleteTopicState, count: int, message: str) -> None:
    request = DeleteTopicsRequest(topics=[topic] * count)
    context: Any = SimpleNamespace(version=6, usage=None)
    (result,) = asyncio.run(delete_topics.handle(rejecting_services(), request, context)).responses
    assert (result.name, result.topic_id) == (topic.name, topic.topic_id)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_delete_topic_enable_is_read_once_per_request(monkeypatch: pytest.MonkeyPatch) -> None:
    node_services = rejecting_services()
    reads: list[str] = []
    monkeypatch.setattr(node_services.configs, "broker_flag", lambda name: not reads.append(name))  # type: ignore[func-returns-value]
    request = DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(1_200)])
    responses = asyncio.run(
        delete_topics.handle(node_services, request, SimpleNamespace(version=1, usage=None))  # type: ignore[arg-type]
    ).responses
    assert {result.error_code for result in responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert reads == ["delete.topic.enable"]
