"""Sessions that end, KIP-368: clients say again who they are while they write, and no record is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.client.cluster import Cluster
from chronik.client.consumer import read_all
from chronik.testing.seen import SEEN_REQUESTS_MAX
from tests.security.sasl.asking import AskingBroker

from .issuing import Issuer
from .running import unique
from .securing import TOKEN_USER, Identity, java_settings, run_java, skip_unless_here

pytestmark = pytest.mark.slow

TOKEN_SECONDS = 8.0
WRITE_SECONDS = 16.0
"""It asks for another token after 80 % of the first, and shows it after 90 %."""


def test_librdkafka_shows_new_tokens_and_loses_nothing(tmp_path: Path) -> None:
    issuer, topic = Issuer(tmp_path), unique("topic")
    configs = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.file.as_uri(),
    }
    with AskingBroker(**configs) as broker:
        assert isinstance(broker, AskingBroker)
        tokens = 0

        def token(_: str) -> tuple[str, float, str, dict[str, str]]:
            nonlocal tokens
            tokens += 1
            return issuer.token(seconds=TOKEN_SECONDS), time.time() + TOKEN_SECONDS, TOKEN_USER, {}

        failures: list[str] = []
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": token,
            "error_cb": lambda error: failures.append(error.str()),
        }
        producer = Producer(settings)
        sent, began = 0, time.monotonic()
        handshakes = set()  # a broker remembers the last requests only, so they are collected meanwhile
        while time.monotonic() - began < WRITE_SECONDS:
            producer.produce(topic, str(sent).encode(), partition=0, on_delivery=_noting(failures))
            sent += 1
            producer.poll(0.05)
            handshakes |= {each for each in broker.last_requests(SEEN_REQUESTS_MAX) if each.api == "SaslHandshake"}
        assert producer.flush(30) == 0
        assert failures == []
        assert tokens >= 3
        assert len(handshakes) > len({each.connection for each in handshakes})
        assert "has expired" not in broker.log
        with Cluster(broker.open_bootstrap) as cluster:
            assert [record.value for record in read_all(cluster, topic)] == [str(n).encode() for n in range(sent)]


def _noting(failures: list[str]) -> Callable[[Any, Any], None]:
    return lambda error, _: failures.append(str(error)) if error is not None else None


@pytest.mark.parametrize("client", ["java-3.9", "java-4"])
def test_java_says_its_password_again(client: str, tmp_path: Path) -> None:
    skip_unless_here(client)
    with AskingBroker(**{"connections.max.reauth.ms": 2000}) as broker:
        assert isinstance(broker, AskingBroker)
        broker.add_user("alice", "alice-secret")
        who = Identity("SCRAM-SHA-512", "alice", "alice-secret")
        settings = java_settings(broker.bootstrap, who, tmp_path)
        assert run_java(client, settings, unique("topic"), 40, 200, folder=tmp_path) == 40
        said = [each for each in broker.last_requests(1000) if each.api == "SaslHandshake"]
        assert len(said) >= 5
        assert "has expired" not in broker.log
