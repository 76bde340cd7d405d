"""DeleteTopics: which of its refusals is told, and that the node is asked once whether topics may be deleted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from chronik.api import delete_topics
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.api.refusing import services

NOWHERE = DeleteTopicState(name=None)
BY_BOTH = DeleteTopicState(name="both", topic_id=b"i" * 16)
MISNAMED = "Specify either the name or the id of each topic"
TWICE = "The request names the topic more than once"


@pytest.mark.parametrize("topic", [NOWHERE, BY_BOTH])
@pytest.mark.parametrize(("times", "told"), [(1, MISNAMED), (2, TWICE), (3, TWICE)])
def test_whoever_names_a_topic_wrongly_and_twice_is_told_that_it_was_twice(
    topic: DeleteTopicState, times: int, told: str
) -> None:
    request = DeleteTopicsRequest(topics=[topic] * times)
    (result,) = asyncio.run(delete_topics.handle(services(), request, SimpleNamespace(version=6, usage=None))).responses  # type: ignore[arg-type]
    assert (result.name, result.topic_id) == (topic.name, topic.topic_id)
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, told)


def test_whether_topics_may_be_deleted_is_asked_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = services()
    asked: list[str] = []
    monkeypatch.setattr(parts.configs, "broker_flag", lambda name: not asked.append(name))  # type: ignore[func-returns-value]
    request = DeleteTopicsRequest(topic_names=[f"t{number}" for number in range(1_200)])
    responses = asyncio.run(delete_topics.handle(parts, request, SimpleNamespace(version=1, usage=None))).responses  # type: ignore[arg-type]
    assert {result.error_code for result in responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert asked == ["delete.topic.enable"]
