"""Fetch sessions and quotas: a throttled first fetch does not leave an unused session behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.broker.requests.fetch_sessions import FetchSessionCache
from chronik.protocol.messages.fetch import FetchResponse
from tests.api import request_builders
from tests.api.authorizing_node import AuthorizingNode, error_codes_in, send_request
from tests.api.quota_requests import set_quota
from tests.raw import RawClient

RATE = 10_000
VERSION = 11


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path / "data", **{"super.users": "User:ANONYMOUS"})
    yield node
    node.close()


@pytest.fixture
def sessions(node: AuthorizingNode) -> FetchSessionCache:
    return node.services.fetch_sessions


def connect(node: AuthorizingNode, client_id: str = "limited") -> RawClient:
    client = RawClient(node.bootstrap)
    client.client_id = client_id
    return client


def prepare(operator: RawClient) -> None:
    for name in ("empty", "full"):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        assert not error_codes_in(send_request(operator, "CreateTopics", 7, topics=[topic]))
    request_builders.produce(operator, "full", request_builders.batch(bytes(3 * RATE)))
    set_quota(operator, {"client_id": "limited"}, consumer_byte_rate=RATE)


@pytest.mark.parametrize("is_continued", [False, True])
def test_throttled_waiting_fetch_closes_only_new_sessions(
    node: AuthorizingNode, sessions: FetchSessionCache, is_continued: bool
) -> None:
    with connect(node, "operator") as operator, connect(node) as waiting, connect(node) as other:
        prepare(operator)
        session = (0, 0)
        if is_continued:
            first = waiting.request(
                request_builders.fetch_request(("empty", 0, 0), session=session), VERSION, FetchResponse
            )
            session = (first.session_id, 1)
        request = request_builders.fetch_request(("empty", 0, 0), min_bytes=1, max_wait_ms=30_000, session=session)
        waiting.send(request, VERSION)
        node.wait_until(
            lambda: len(sessions) == 1 and all(each.epoch == session[1] + 1 for each in sessions._sessions.values())
        )
        assert other.request(request_builders.fetch_request(("full", 0, 0)), VERSION, FetchResponse).responses
        request_builders.produce(operator, "empty", request_builders.batch(b"x"))
        answer = waiting.receive(request, VERSION, FetchResponse)
        assert answer.throttle_time_ms > 0
        assert (answer.responses, answer.session_id) == ([], session[0])
        assert len(sessions) == is_continued, "only a session that the client already knows is kept"
