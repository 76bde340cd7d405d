"""Fetch sessions and quotas: a throttled first fetch does not leave an unused session behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.broker.requests.fetch_sessions import FetchSessions
from chronik.protocol.messages.fetch import FetchResponse
from tests.api import talk
from tests.api.guarded import GuardedNode, ask, errors
from tests.api.limiting import set_quota
from tests.raw import RawClient

RATE = 10_000
VERSION = 11


@pytest.fixture
def node(tmp_path: Path) -> Iterator[GuardedNode]:
    node = GuardedNode(tmp_path / "data", **{"super.users": "User:ANONYMOUS"})
    yield node
    node.close()


@pytest.fixture
def sessions(node: GuardedNode) -> FetchSessions:
    return node.services.fetch_sessions


def connect(node: GuardedNode, client_id: str = "limited") -> RawClient:
    client = RawClient(node.bootstrap)
    client.client_id = client_id
    return client


def prepare(operator: RawClient) -> None:
    for name in ("empty", "full"):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        assert not errors(ask(operator, "CreateTopics", 7, topics=[topic]))
    talk.produce(operator, "full", talk.batch(bytes(3 * RATE)))
    set_quota(operator, {"client_id": "limited"}, consumer_byte_rate=RATE)


@pytest.mark.parametrize("is_continued", [False, True])
def test_throttled_waiting_fetch_closes_only_new_sessions(
    node: GuardedNode, sessions: FetchSessions, is_continued: bool
) -> None:
    with connect(node, "operator") as operator, connect(node) as waiting, connect(node) as other:
        prepare(operator)
        session = (0, 0)
        if is_continued:
            first = waiting.ask(talk.fetch_request(("empty", 0, 0), session=session), VERSION, FetchResponse)
            session = (first.session_id, 1)
        request = talk.fetch_request(("empty", 0, 0), min_bytes=1, max_wait_ms=30_000, session=session)
        waiting.send(request, VERSION)
        node.until(
            lambda: len(sessions) == 1 and all(each.epoch == session[1] + 1 for each in sessions._sessions.values())
        )
        assert other.ask(talk.fetch_request(("full", 0, 0)), VERSION, FetchResponse).responses
        talk.produce(operator, "empty", talk.batch(b"x"))
        answer = waiting.receive(request, VERSION, FetchResponse)
        assert answer.throttle_time_ms > 0
        assert (answer.responses, answer.session_id) == ([], session[0])
        assert len(sessions) == is_continued, "only a session that the client already knows is kept"
