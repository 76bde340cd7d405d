from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from chronik.client.connection import BrokerConnection
from chronik.config import Address
from chronik.console.http_client import fetch_group, fetch_status, fetch_unready_reason, http_get
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from chronik.testing.ports import HOST, ReservedPorts
from tests.api.quota_requests import set_quota
from tests.raw import RawClient

TIMEOUT_S = 20.0


@pytest.fixture
def http() -> Iterator[Address]:
    reserved = ReservedPorts(1)
    yield Address(HOST, reserved.ports[0])
    reserved.release()


def request_count(http: Address, api: str) -> int:
    status, body = http_get(http, "/metrics", TIMEOUT_S)
    assert status == 200
    (found,) = re.findall(rf'^chronik_requests_total{{api="{api}"}} (\d+)$', body.decode(), re.MULTILINE)
    return int(found)


def request_metadata(broker: Broker) -> None:
    connection = BrokerConnection(Address(HOST, broker.port), timeout_s=TIMEOUT_S)
    connection.request(MetadataRequest(topics=[]), MetadataResponse)
    connection.close()


def test_standalone_node_reports_status(chronik_broker_factory: BrokerFactory, http: Address) -> None:
    broker = chronik_broker_factory(http=str(http))
    broker.create_topic("orders")
    status = fetch_status(http, TIMEOUT_S)
    assert (status["node_id"], status["pid"], status["role"]) == (1, broker.pid, "alone")
    assert [(each["id"], each["port"], each["status"]) for each in status["brokers"]] == [(1, broker.port, "online")]
    assert status["topics"] >= 1
    assert status["recent_hashes"][-1] == [status["applied_index"], status["state_hash"]]
    assert fetch_unready_reason(http, TIMEOUT_S) is None
    broker.restart()
    again = fetch_status(http, TIMEOUT_S)
    assert again["applied_index"] > status["applied_index"]
    assert again["pid"] != status["pid"]


def test_requests_are_counted_by_api(chronik_broker_factory: BrokerFactory, http: Address) -> None:
    broker = chronik_broker_factory(http=str(http))
    before = request_count(http, "Metadata")
    for _ in range(3):
        request_metadata(broker)
    assert request_count(http, "Metadata") == before + 3


def test_group_page_shows_committed_offsets(chronik_broker_factory: BrokerFactory, http: Address) -> None:
    broker = chronik_broker_factory(http=str(http))
    broker.create_topic("orders", partitions=2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "a/readers"})
    committed = [TopicPartition("orders", 0, 0), TopicPartition("orders", 1, 0, metadata="a note")]
    consumer.commit(offsets=committed, asynchronous=False)
    consumer.close()
    group = fetch_group(http, "a/readers", TIMEOUT_S)
    assert group is not None
    shown = [(each["topic"], each["partition"], each["offset"], each["metadata"]) for each in group["offsets"]]
    # librdkafka includes the terminating NUL of the C string in the metadata; the node stores it unchanged.
    assert shown == [("orders", 0, 0, ""), ("orders", 1, 0, "a note\0")]
    assert all(each["commit_time_ms"] > 0 for each in group["offsets"])
    assert fetch_group(http, "nobody", TIMEOUT_S) is None


def test_throttled_requests_are_counted_by_quota(chronik_broker_factory: BrokerFactory, http: Address) -> None:
    def throttled() -> int:
        _, body = http_get(http, "/metrics", TIMEOUT_S)
        pattern = r'^chronik_throttled_requests_total{quota="request"} (\d+)$'
        (found,) = re.findall(pattern, body.decode(), re.MULTILINE)
        return int(found)

    broker = chronik_broker_factory(http=str(http))
    assert throttled() == 0
    with RawClient(broker.bootstrap) as client:
        set_quota(client, {"client_id": "raw"}, request_percentage=1e-6)
        client.request(MetadataRequest(topics=[]), 9, MetadataResponse)
    assert throttled() >= 1
