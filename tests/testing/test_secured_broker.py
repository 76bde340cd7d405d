"""SecuredBroker: TLS, SASL authentication and ACLs."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from chronik.client.access.settings import BootstrapAccess, parse_security
from chronik.client.cluster import ClusterClient
from chronik.client.errors import BrokerUnreachable, LoginFailed
from chronik.testing.secured import SecuredBroker
from tests.cli.command_line import run_chronik

SECONDS = 60


def settings_file(folder: Path, broker: SecuredBroker, user: str, **others: str) -> str:
    file = folder / f"{user}.properties"
    given = broker.settings(user) | {name.replace("_", "."): value for name, value in others.items()}
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return str(file)


@pytest.mark.chronik_users(alice="wonderland", bob="builder")
def test_users_have_only_granted_permissions(chronik_secured_broker: SecuredBroker, tmp_path: Path) -> None:
    broker = chronik_secured_broker
    broker.create_topic("orders")
    broker.allow("alice", "Write", topic="orders")
    broker.allow("bob", "Read", topic="orders")
    broker.allow("bob", "Read", group="reports")

    errors: list[KafkaError | None] = []
    producer = Producer(broker.settings("alice"))
    producer.produce("orders", b"one", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    assert errors == [None]
    unauthorized = Producer(broker.settings("bob"))
    unauthorized.produce("orders", b"two", on_delivery=lambda error, _: errors.append(error))
    assert unauthorized.flush(SECONDS) == 0
    assert errors[1] is not None
    assert errors[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    consumer = Consumer(broker.settings("bob", "PLAIN") | {"group.id": "reports", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert message.value() == b"one"
    consumer.close()
    assert [record.value for record in broker.records("orders")] == [b"one"]

    listed = run_chronik(
        "topics", "list", "--client-config", settings_file(tmp_path, broker, "alice"), bootstrap=broker.bootstrap
    )
    assert listed.code == 0, listed.err
    assert "orders" in listed.out


@pytest.mark.chronik_users(alice="wonderland")
def test_connection_error_distinguishes_address_tls_and_password(
    chronik_secured_broker: SecuredBroker, tmp_path: Path
) -> None:
    broker = chronik_secured_broker
    right = broker.settings("alice")

    def connection_error(**changes: str) -> str:
        security = parse_security(right | {name.replace("_", "."): value for name, value in changes.items()})
        with (
            pytest.raises((BrokerUnreachable, LoginFailed)) as failed,
            ClusterClient(BootstrapAccess(broker.bootstrap, security)) as c,
        ):
            c.metadata([])
        return str(failed.value)

    assert "rejected SCRAM-SHA-256 login of alice" in connection_error(sasl_password="wrong")
    assert "rejected PLAIN login of alice" in connection_error(sasl_password="wrong", sasl_mechanism="PLAIN")
    assert "TLS with" in connection_error(ssl_ca_location="/etc/ssl/certs/ca-certificates.crt")
    assert "the broker's certificate was rejected" in connection_error(
        ssl_ca_location="/etc/ssl/certs/ca-certificates.crt"
    )
    assert "does not respond like a Kafka broker" in connection_error(security_protocol="SASL_PLAINTEXT")
    assert "does not support SASL OAUTHBEARER; supported:" in connection_error(
        sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url=f"file://{broker.ca_file}"
    )
    with (
        pytest.raises(BrokerUnreachable, match=r"no broker at 127\.0\.0\.1:1"),
        ClusterClient(BootstrapAccess("127.0.0.1:1", parse_security(right))) as unreachable,
    ):
        unreachable.metadata([])

    wrong = settings_file(tmp_path, broker, "alice", sasl_password="wrong")
    result = run_chronik("topics", "list", "--client-config", wrong, bootstrap=broker.bootstrap)
    assert result.code == 1
    assert "rejected SCRAM-SHA-256 login of alice" in result.err
    assert result.err.count("\n") == 1
    assert "wrong" not in result.err


def test_tls_client_fails_on_plaintext_broker() -> None:
    with SecuredBroker(tls=False, acls=False, users={"alice": "wonderland"}) as broker:
        security = parse_security(broker.settings("alice") | {"security.protocol": "SASL_SSL"})
        with (
            pytest.raises(BrokerUnreachable, match=f"TLS with {broker.bootstrap} failed"),
            ClusterClient(BootstrapAccess(broker.bootstrap, security)) as cluster,
        ):
            cluster.metadata([])
        with broker.cluster("alice") as cluster:
            assert len(cluster.metadata([]).brokers) == 1


def test_users_persist_across_restart() -> None:
    with SecuredBroker(users={"alice": "wonderland"}) as broker:
        broker.restart()
        with broker.cluster("alice") as cluster:
            assert len(cluster.metadata([]).brokers) == 1
