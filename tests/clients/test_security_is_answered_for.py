"""Real admin clients that ask for ACLs, credentials and features: they hear what they hear of a Kafka without them."""

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


def test_librdkafka_is_told_that_there_is_no_authorizer(librdkafka: AdminClient) -> None:
    """When it deletes. When it describes it takes the error for an empty list, Apache Kafka's too."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert librdkafka.describe_acls(everything, request_timeout=CALL_SECONDS).result() == []
    (deleted,) = librdkafka.delete_acls([everything], request_timeout=CALL_SECONDS).values()
    with pytest.raises(KafkaException) as refused:
        deleted.result()
    assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED


def test_librdkafka_finds_no_scram_credentials(librdkafka: AdminClient) -> None:
    assert librdkafka.describe_user_scram_credentials(request_timeout=CALL_SECONDS).result() == {}
    (asked,) = librdkafka.describe_user_scram_credentials(["alice"], request_timeout=CALL_SECONDS).values()
    with pytest.raises(KafkaException) as missing:
        asked.result()
    assert missing.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_kafka_python_takes_the_broker_for_one_of_its_time(bootstrap: str) -> None:
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
