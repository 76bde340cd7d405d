"""Metadata requests are answered in the event-loop iteration in which they arrive, without a task."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from chronik import scheduler
from chronik.config import load_config
from chronik.node.node import Node
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, decode_response, encode_request
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.request_reply import ConnectedClient, Reply

METADATA = 3
SIZE_BYTES = 4


def frame(version: int, request: MetadataRequest) -> bytearray:
    return bytearray(encode_request(RequestHeader(METADATA, version, 7, "test"), request)[SIZE_BYTES:])


def decoded(version: int, reply: Reply[Any]) -> MetadataResponse:
    assert reply.is_ready, "the reply was not ready immediately"
    _, response = decode_response(METADATA, version, memoryview(b"".join(reply.frame or ()))[SIZE_BYTES:])
    assert isinstance(response, MetadataResponse)
    return response


def test_metadata_without_topic_creation_is_answered_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "ITERATION_SECONDS_MAX", 60.0)  # the codec is compiled on first use

    async def scenario() -> None:
        node = Node(load_config(None, {}, data_dir=str(tmp_path / "data"), kafka="127.0.0.1:0"))
        await node.start()
        try:
            await check(node)
        finally:
            await node.stop()

    async def check(node: Node) -> None:
        router, peer = node.router, ConnectedClient("127.0.0.1", 1, 1)
        assert router is not None
        known, unknown = MetadataRequestTopic(name="known"), MetadataRequestTopic(name="unknown")
        created = router.dispatch(frame(12, MetadataRequest(topics=[known])), peer)
        assert not created.is_ready  # the topic is created first
        await created.wait_for_frame()
        for version in range(APIS[METADATA].max_version + 1):
            answer = decoded(version, router.dispatch(frame(version, MetadataRequest(topics=[known])), peer))
            assert [(topic.name, topic.error_code) for topic in answer.topics] == [("known", ErrorCode.NONE)]
            everything = MetadataRequest(topics=None if version else [])
            answer = decoded(version, router.dispatch(frame(version, everything), peer))
            assert "known" in [topic.name for topic in answer.topics]
        no_creation = MetadataRequest(topics=[unknown], allow_auto_topic_creation=False)
        answer = decoded(12, router.dispatch(frame(12, no_creation), peer))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    asyncio.run(scenario())
