"""A node that stops answers those who only wait, finishes what is under way, and forgets no deletion."""

from __future__ import annotations

import time

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from chronik.testing.plugin import BrokerFactory
from tests.api import talk
from tests.raw import RawClient

PROMPT_SECONDS = 5.0


def test_a_fetch_that_waits_is_answered_and_holds_nothing_up(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("quiet")
    with RawClient(broker.bootstrap) as client:
        request = talk.fetch_request(("quiet", 0, 0), min_bytes=1, max_wait_ms=60_000)
        client.send(request, 12)
        _be_sure_it_waits(client)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < PROMPT_SECONDS
        assert client.receive(request, 12, FetchResponse).responses[0].partitions[0].error_code == ErrorCode.NONE


def test_a_member_that_waits_for_its_group_is_sent_away_and_holds_nothing_up(
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
        _be_sure_it_waits(client)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < PROMPT_SECONDS
        answer = client.receive(request, 3, JoinGroupResponse)
        assert answer.error_code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def _be_sure_it_waits(client: RawClient) -> None:
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(30)


def test_a_topic_deleted_just_before_the_stop_is_gone_and_not_set_aside(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory()
    names = [f"doomed-{number}" for number in range(50)]
    with RawClient(broker.bootstrap) as client:
        for name in names:
            talk.describe(client, name, create=True)
            talk.produce(client, name, talk.batch(b"v"))
        answers = client.ask(DeleteTopicsRequest(topic_names=names), 5, DeleteTopicsResponse).responses
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    broker.stop()
    assert list((broker.data_dir / "topics").iterdir()) == []
    broker.start()
    assert not (broker.data_dir / "unknown").exists()
