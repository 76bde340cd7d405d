"""Requests with generated values in every API version: each gets a response, and no handler raises an exception."""

from __future__ import annotations

import pytest

from chronik.api.routing.handlers import HANDLERS
from chronik.protocol.apis import APIS, Api
from chronik.protocol.codec import REQUESTS, RESPONSES, encode_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch import FetchRequest
from chronik.protocol.messages.join_group import JoinGroupRequest
from chronik.protocol.messages.produce import ProduceRequest
from chronik.protocol.messages.sync_group import SyncGroupRequest
from chronik.protocol.schema import Request
from chronik.testing.plugin import BrokerFactory
from tests.protocol.messages.values import generate
from tests.raw import RawClient

STYLES = ("default", "empty", "lowest", "highest", "mixed", "mixed", "mixed", "mixed")
WAIT_MS_MAX = 10
PAIRS = [(api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]


def requests(api_key: int, version: int) -> list[Request]:
    return [generate(REQUESTS[api_key], version, style, (api_key, version, n)) for n, style in enumerate(STYLES)]


def without_waiting(request: Request) -> Request:
    """Shorten the timeouts of a request that would wait for an event that never happens."""
    if isinstance(request, FetchRequest):
        request.max_wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    if isinstance(request, JoinGroupRequest):
        request.session_timeout_ms = 1
    if isinstance(request, SyncGroupRequest):
        request.member_id = "nobody"
    if isinstance(request, ProduceRequest):
        request.acks = request.acks or 1
    return request


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_failure_response_can_be_encoded_in_every_version(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        for request in requests(api.key, version):
            response = HANDLERS[api.key].failure(without_waiting(request), ErrorCode.UNKNOWN_SERVER_ERROR)
            assert encode_response(1, version, response), version


def test_every_generated_request_gets_a_response(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with RawClient(broker.bootstrap) as client:
        for api, version in PAIRS:
            for request in requests(api.key, version):
                client.request(without_waiting(request), version, RESPONSES[api.key])
    broken = [line for line in broker.log.splitlines() if " ERROR " in line or " CRITICAL " in line]
    assert not broken, "\n".join(broken)
