"""Security APIs on a broker without an authorizer: admin clients receive the same errors as from Kafka."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, KafkaAdminClient
from kafka.admin import ResourcePatternFilter as PatternFilter
from kafka.admin import ResourceType as PythonResourceType
from kafka.errors import SecurityDisabledError

CALL_SECONDS = 30


@pytest.fixture
def librdkafka(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def test_librdkafka_delete_acls_reports_security_disabled(librdkafka: AdminClient) -> None:
    """Deleting reports the error. When describing, librdkafka ignores it, also with Apache Kafka."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert librdkafka.describe_acls(everything, request_timeout=CALL_SECONDS).result() == []
    (deleted,) = librdkafka.delete_acls([everything], request_timeout=CALL_SECONDS).values()
    with pytest.raises(KafkaException) as raised:
        deleted.result()
    assert raised.value.args[0].code() == KafkaError.SECURITY_DISABLED


def test_librdkafka_describes_no_scram_credentials(librdkafka: AdminClient) -> None:
    assert librdkafka.describe_user_scram_credentials(request_timeout=CALL_SECONDS).result() == {}
    (described,) = librdkafka.describe_user_scram_credentials(["alice"], request_timeout=CALL_SECONDS).values()
    with pytest.raises(KafkaException) as missing:
        described.result()
    assert missing.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_kafka_python_detects_current_broker_version(bootstrap: str) -> None:
    pattern = PatternFilter(PythonResourceType.ANY, None, ACLResourcePatternType.ANY)
    everything = ACLFilter(None, "*", ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert str(admin.get_broker_version_data(1)) == "<BrokerVersionData 4.3>"
        assert admin.describe_features()["metadata.version"]["finalized"] == (30, 30)
        assert admin.describe_user_scram_credentials() == {}
        with pytest.raises(SecurityDisabledError):
            admin.describe_acls(everything)
    finally:
        admin.close()
