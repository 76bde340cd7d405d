"""Discovery of the schema registry of a cluster, and the settings with which its clients connect to it."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from chronik.client.access.settings import ClientSecurity
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.configs import BROKER_RESOURCE
from chronik.client.errors import ClientError
from chronik.formats.registry_client import RegistrySettings, parse_registry_settings
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

URL_CONFIG: Final = "confluent.schema.registry.url"
"""The broker config with the URL of a node's schema registry."""


def discover_registry(cluster: ClusterClient) -> RegistrySettings | None:
    """Return the registries of the brokers, with the credentials of the cluster's client; None if there are none.

    Raises:
        ClientError, KafkaError: No broker can be reached, or the client may not describe their configs.
    """
    urls = find_registry_urls(cluster)
    return build_registry_settings(",".join(urls), cluster.security) if urls else None


def find_registry_urls(cluster: ClusterClient) -> list[str]:
    """Return the URLs of the brokers' schema registries, as the brokers report them; empty if they report none.

    Raises:
        ClientError, KafkaError: No broker can be reached, or the client may not describe their configs.
    """
    failure: ClientError | KafkaError | None = None
    urls: list[str] = []
    for broker in cluster.retry(lambda: cluster.metadata([])).brokers:
        try:
            found = _fetch_registry_urls(cluster, broker.node_id)
        except (ClientError, KafkaError) as error:
            failure = error
            continue
        urls += (url.strip() for url in found.split(",") if url.strip())
    if not urls and failure is not None:
        raise failure
    return list(dict.fromkeys(urls))


def _fetch_registry_urls(cluster: ClusterClient, node_id: int) -> str:
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[URL_CONFIG]
    )
    # Other brokers do not know the node's config file.
    response = cluster.broker(node_id).request(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    for result in response.results:
        raise_for_code(result.error_code, f"configs of broker {node_id}", result.error_message)
    return next((config.value for result in response.results for config in result.configs if config.value), "")


def build_registry_settings(url: str, security: ClientSecurity) -> RegistrySettings:
    """Return the settings for the registry of a cluster, with the login and the certificates of its Kafka clients.

    A password is sent in plain text only to loopback addresses.

    Raises:
        ClientError: The certificates are inline instead of in files.
    """
    settings: dict[str, str] = {}
    if "https://" in url:
        if security.ca or security.certificate:
            raise ClientError(
                "the schema registry needs certificates in files: set ssl.ca.location instead of PEM text"
            )
        for name, value in (
            ("ssl.ca.location", security.ca_file),
            ("ssl.certificate.location", security.certificate_file),
            ("ssl.key.location", security.key_file),
            ("ssl.key.password", security.key_password),
        ):
            if value:
                settings[name] = value
        settings["ssl.endpoint.identification.algorithm"] = "https" if security.identification else ""
    is_private = all(is_private_url(each) for each in url.split(","))
    if security.has_login and security.username and security.password and is_private:
        settings["basic.auth.user.info"] = f"{security.username}:{security.password}"
    return parse_registry_settings(url, settings)


def is_private_url(url: str) -> bool:
    """Return whether passwords may be sent to the URL: it uses TLS or has a loopback address."""
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return True
    try:
        return ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
