"""Expiry of a SASL session while a fetch of the client waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from chronik.protocol.messages.metadata import MetadataRequest
from tests.raw import RawClient
from tests.security.sasl.sasl_broker import SaslBroker, authenticate

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery staple"
SESSION_SECONDS = 2.0


@pytest.fixture(scope="module")
def broker() -> Iterator[SaslBroker]:
    with SaslBroker(**{"connections.max.reauth.ms": int(1000 * SESSION_SECONDS)}) as running:
        assert isinstance(running, SaslBroker)
        running.add_user("alice", PASSWORD)
        yield running


def test_waiting_fetch_completes_when_session_expires(broker: SaslBroker) -> None:
    with RawClient(broker.open_bootstrap) as admin:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        admin.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5, CreateTopicsResponse)
    with RawClient(broker.bootstrap) as client:
        began = time.monotonic()
        assert authenticate(client, "SCRAM-SHA-256", "alice", PASSWORD).session_lifetime_ms > 0
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])], session_epoch=-1
        )
        answer = client.request(request, 11, FetchResponse)
        assert SESSION_SECONDS - 0.5 < time.monotonic() - began < SESSION_SECONDS + 1.0
        assert not answer.responses[0].partitions[0].records
        client.send(MetadataRequest(topics=[]), 1)
        assert client.wait_for_close(), "it did not re-authenticate"
