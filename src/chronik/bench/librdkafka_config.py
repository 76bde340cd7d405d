"""librdkafka settings and benchmark topics of the load generators."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from chronik.bench.errors import BenchmarkError
from chronik.client.access.settings import Bootstrap, to_bootstrap_access
from chronik.client.admin import BROKER_DEFAULT, NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.protocol.errors import ErrorCode
from chronik.security.sasl.outcomes import OAUTHBEARER

DEFAULT_TOPIC = "chronik-bench"

BASE_CONFIG = {
    "socket.nagle.disable": "true",
    "log_level": "3",  # errors only: a broker that stops after a measurement is expected
    "broker.address.family": "v4",
}


def build_client_config(bootstrap: Bootstrap, **settings: str) -> dict[str, str]:
    """Return the configuration of a librdkafka client as a dict.

    Keyword names are setting names with `_` instead of `.`.

    Raises:
        BenchmarkError: If librdkafka does not support the authentication mechanism without a callback.
    """
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": str(bootstrap)} | BASE_CONFIG | build_librdkafka_security(bootstrap) | overrides


def build_librdkafka_security(bootstrap: Bootstrap) -> dict[str, str]:
    """Return librdkafka's security settings. Raises BenchmarkError for a mechanism that needs a callback."""
    security = to_bootstrap_access(bootstrap).security
    if not security.is_encrypted and not security.has_login:
        return {}
    if security.has_login and security.mechanism == OAUTHBEARER:
        raise BenchmarkError("sasl.mechanism = OAUTHBEARER is not supported by this measurement; use PLAIN or SCRAM")
    settings = {"security.protocol": security.protocol}
    if security.has_login:
        settings |= {
            "sasl.mechanisms": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    if security.is_encrypted:
        settings |= {
            "ssl.ca.location": security.ca_file,
            "ssl.ca.pem": security.ca,
            "ssl.certificate.location": security.certificate_file,
            "ssl.certificate.pem": security.certificate,
            "ssl.key.location": security.key_file or security.certificate_file,  # one PEM file may contain both
            "ssl.key.pem": security.key,
            "ssl.key.password": security.key_password,
            "ssl.endpoint.identification.algorithm": security.identification or "none",
        }
    return {name: value for name, value in settings.items() if value}


def generate_name(purpose: str) -> str:
    return f"chronik-bench-{purpose}-{uuid.uuid4().hex[:8]}"


def ensure_topic(cluster: ClusterClient, name: str, partitions: int, replication_factor: int = BROKER_DEFAULT) -> int:
    """Create the topic unless it exists, and return its number of partitions."""
    (topic,) = cluster.metadata([name]).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        create_topics(cluster, [NewTopic(name, partitions, replication_factor)])
    return len(cluster.retry(lambda: cluster.partitions(name)))


@contextmanager
def create_temporary_topics(
    cluster: ClusterClient, names: list[str], partitions: int = 1, replication_factor: int = BROKER_DEFAULT
) -> Iterator[None]:
    """Create topics when the context is entered, and delete them when it exits."""
    create_topics(cluster, [NewTopic(name, partitions, replication_factor) for name in names])
    try:
        yield
    finally:
        delete_topics(cluster, names)
