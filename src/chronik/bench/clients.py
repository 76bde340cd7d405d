"""What the load generators ask of librdkafka, and the topics that they use."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from chronik.bench.errors import BenchFailed
from chronik.client.access.settings import Bootstrap, access_of
from chronik.client.admin import BROKER_DEFAULT, NewTopic, create_topics, delete_topics
from chronik.client.cluster import Cluster
from chronik.protocol.errors import ErrorCode
from chronik.security.sasl.outcomes import OAUTHBEARER

DEFAULT_TOPIC = "chronik-bench"

LIBRDKAFKA = {
    "socket.nagle.disable": "true",
    "log_level": "3",  # errors: a broker that goes away at the end of a measurement is none
    "broker.address.family": "v4",
}


def client_config(bootstrap: Bootstrap, **settings: str) -> dict[str, str]:
    """Return the settings of a librdkafka client. `settings` have librdkafka's names, with underscores for the dots.

    Raises BenchFailed if librdkafka cannot log in this way."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": str(bootstrap)} | LIBRDKAFKA | librdkafka_security(bootstrap) | named


def librdkafka_security(bootstrap: Bootstrap) -> dict[str, str]:
    """Return the security settings by librdkafka's names. Raises BenchFailed for a mechanism that needs a callback."""
    security = access_of(bootstrap).security
    if not security.is_encrypted and not security.has_login:
        return {}
    if security.has_login and security.mechanism == OAUTHBEARER:
        raise BenchFailed("sasl.mechanism = OAUTHBEARER: expected PLAIN or SCRAM for this measurement")
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
            "ssl.key.location": security.key_file or security.certificate_file,  # one PEM file may have both
            "ssl.key.pem": security.key,
            "ssl.key.password": security.key_password,
            "ssl.endpoint.identification.algorithm": security.identification or "none",
        }
    return {name: value for name, value in settings.items() if value}


def unique_name(what: str) -> str:
    return f"chronik-bench-{what}-{uuid.uuid4().hex[:8]}"


def ensure_topic(cluster: Cluster, name: str, partitions: int, replication_factor: int = BROKER_DEFAULT) -> int:
    """Creates the topic unless it is there; returns how many partitions it has."""
    (topic,) = cluster.metadata([name]).topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        create_topics(cluster, [NewTopic(name, partitions, replication_factor)])
    return len(cluster.retrying(lambda: cluster.partitions(name)))


@contextmanager
def temporary_topics(
    cluster: Cluster, names: list[str], partitions: int = 1, replication_factor: int = BROKER_DEFAULT
) -> Iterator[None]:
    """Creates topics by one request, and deletes them at the end."""
    create_topics(cluster, [NewTopic(name, partitions, replication_factor) for name in names])
    try:
        yield
    finally:
        delete_topics(cluster, names)
