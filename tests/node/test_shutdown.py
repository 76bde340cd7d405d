"""Shutdown: waiting requests are answered, pending ones are finished, and deletions are not lost."""

from __future__ import annotations

import time

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.raw import RawClient

PROMPT_SECONDS = 5.0


def test_waiting_fetch_is_answered_and_does_not_delay_shutdown(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("quiet")
    with RawClient(broker.bootstrap) as client:
        request = request_builders.fetch_request(("quiet", 0, 0), min_bytes=1, max_wait_ms=60_000)
        client.send(request, 12)
        _assert_no_response_yet(client)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < PROMPT_SECONDS
        assert client.receive(request, 12, FetchResponse).responses[0].partitions[0].error_code == ErrorCode.NONE


def test_waiting_join_group_is_answered_and_does_not_delay_shutdown(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory(broker={"group.initial.rebalance.delay.ms": 60_000})
    with RawClient(broker.bootstrap) as client:
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client.send(request, 3)
        _assert_no_response_yet(client)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < PROMPT_SECONDS
        answer = client.receive(request, 3, JoinGroupResponse)
        assert answer.error_code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def _assert_no_response_yet(client: RawClient) -> None:
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(30)


def test_topic_deleted_before_shutdown_is_removed_not_quarantined(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory()
    names = [f"doomed-{number}" for number in range(50)]
    with RawClient(broker.bootstrap) as client:
        for name in names:
            request_builders.describe_topic(client, name, create=True)
            request_builders.produce(client, name, request_builders.batch(b"v"))
        answers = client.request(DeleteTopicsRequest(topic_names=names), 5, DeleteTopicsResponse).responses
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    broker.stop()
    assert list((broker.data_dir / "topics").iterdir()) == []
    broker.start()
    assert not (broker.data_dir / "unknown").exists()
