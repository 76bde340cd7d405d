"""SCRAM users: created, described and deleted by Kafka's tools and by librdkafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from chronik.protocol.errors import ErrorCode
from tests.raw import RawClient
from tests.security.sasl.sasl_broker import SaslBroker, authenticate

from .kafka_tools import ToolFailed, run_tool

pytestmark = pytest.mark.slow

USERS = ("--entity-type", "users", "--entity-name")


@pytest.fixture(scope="module")
def broker() -> Iterator[SaslBroker]:
    with SaslBroker() as running:
        assert isinstance(running, SaslBroker)
        yield running


def is_authenticated(broker: SaslBroker, mechanism: str, user: str, password: str) -> bool:
    with RawClient(broker.bootstrap) as client:
        return authenticate(client, mechanism, user, password).error_code == ErrorCode.NONE


def test_kafka_configs_creates_describes_and_deletes_users(broker: SaslBroker) -> None:
    there = broker.open_bootstrap
    both = "SCRAM-SHA-256=[iterations=8192,password=alice-secret],SCRAM-SHA-512=[password=alice-other]"
    run_tool("kafka-configs", there, "--alter", *USERS, "alice", "--add-config", both)
    assert is_authenticated(broker, "SCRAM-SHA-256", "alice", "alice-secret")
    assert is_authenticated(broker, "SCRAM-SHA-512", "alice", "alice-other")
    described_configs = run_tool("kafka-configs", there, "--describe", *USERS, "alice")
    assert "SCRAM-SHA-256=iterations=8192" in described_configs
    assert "SCRAM-SHA-512=iterations=4096" in described_configs
    assert "alice" in run_tool("kafka-configs", there, "--describe", "--entity-type", "users")
    too_few_iterations = "SCRAM-SHA-256=[iterations=4095,password=x]"
    with pytest.raises(ToolFailed):
        run_tool("kafka-configs", there, "--alter", *USERS, "alice", "--add-config", too_few_iterations)
    deleted_mechanisms = "SCRAM-SHA-256,SCRAM-SHA-512"
    run_tool("kafka-configs", there, "--alter", *USERS, "alice", "--delete-config", deleted_mechanisms)
    assert not is_authenticated(broker, "SCRAM-SHA-256", "alice", "alice-secret")
    with pytest.raises(ToolFailed, match="does not exist"):
        run_tool("kafka-configs", there, "--alter", *USERS, "alice", "--delete-config", "SCRAM-SHA-256")


def test_librdkafka_creates_describes_and_deletes_users(broker: SaslBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.open_bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000)

    def alter(change: object) -> None:
        (future,) = admin.alter_user_scram_credentials([change]).values()
        future.result()

    alter(UserScramCredentialUpsertion("bob", info, b"bobs-secret"))
    assert is_authenticated(broker, "SCRAM-SHA-256", "bob", "bobs-secret")
    assert is_authenticated(broker, "PLAIN", "bob", "bobs-secret")
    (described,) = admin.describe_user_scram_credentials(["bob"]).values()
    described_configs = described.result().scram_credential_infos
    assert [(each.mechanism, each.iterations) for each in described_configs] == [(ScramMechanism.SCRAM_SHA_256, 5000)]
    for iterations, expected_message in ((4095, "Too few iterations"), (16385, "Too many iterations")):
        wrong = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
        with pytest.raises(KafkaException, match=expected_message):
            alter(UserScramCredentialUpsertion("bob", wrong, b"x"))
    alter(UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256))
    with pytest.raises(KafkaException) as missing:
        alter(UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256))
    assert missing.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
