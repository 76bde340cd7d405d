"""Request log: requests are logged on arrival at debug level, and failures name the client."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from chronik.protocol.messages.list_offsets import ListOffsetsRequest
from chronik.request_reply import ConnectedClient, UnsentByteCounter
from chronik.scheduler import Scheduler
from chronik.testing.plugin import BrokerFactory
from tests.cluster.replication_helpers import wait_for
from tests.raw import RawClient

LONG_MS = 60_000


def test_waiting_request_is_logged_at_debug_level(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(log_level="debug")
    broker.create_topic("quiet")
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=[FetchTopic(topic="quiet", partitions=[partition])])
    logged = "api=Fetch version=11 "
    with RawClient(broker.bootstrap) as client:
        threading.Thread(target=lambda: client.request(request, 11, FetchResponse), daemon=True).start()
        wait_for("the request to be logged", lambda: logged in broker.log)
        [line] = [line for line in broker.log.splitlines() if logged in line]
        assert "request received: " in line, "the request is already answered"
        assert "connection " in line
        assert "127.0.0.1:" in line
        broker.stop()  # completes the waiting fetch


def test_failed_request_is_logged_with_its_client(caplog: pytest.LogCaptureFixture) -> None:
    store = SimpleNamespace(is_shared=False)
    # without the other services, every request fails
    services = SimpleNamespace(authorizer=None, store=store, outbox=UnsentByteCounter(), scheduler=Scheduler())
    router = Router(cast(Services, services), lambda error: None)
    header = RequestHeader(ListOffsetsRequest.__schema__.api_key, 4, 7, "a-client")
    frame = bytearray(encode_request(header, ListOffsetsRequest())[4:])
    with caplog.at_level(logging.ERROR, "chronik.api"):
        assert router.dispatch(frame, ConnectedClient("10.0.0.9", 4711, 12)) is not None
    [record] = caplog.records
    assert record.getMessage().startswith(
        "request failed: api=ListOffsets version=4 client=connection 12 (a-client, 10.0.0.9:4711): "
    )
    assert record.exc_info is not None
