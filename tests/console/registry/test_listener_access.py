"""Access to the schema registry's own listener on a node without users, and the URL that the node reports."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.registry_discovery import find_registry_urls
from chronik.config import load_config
from chronik.errors import ConfigError
from chronik.node.http.registry_url import build_registry_url
from chronik.node.node import Node
from tests.api.authorizing_node import AuthorizingNode
from tests.console.registry.registry_api import RegistryApi
from tests.tls.certificates import certificate_authority, client_context, issue_certificate, replace_file

TOKEN = "battery-staple"
WITHOUT_USERS: dict[str, Any] = {"authorizer.class.name": ""}


@contextmanager
def open_node(
    folder: Path, http: str = "off", registry: str = "127.0.0.1:0", **options: Any
) -> Iterator[tuple[AuthorizingNode, str]]:
    """Start a node, and yield it with the address of its registry's listener, on the loopback interface."""
    node = AuthorizingNode(folder / "data", http, registry=registry, **WITHOUT_USERS, **options)
    try:
        url = node._node.registry_url
        assert url is not None
        yield node, f"127.0.0.1:{url.rpartition(':')[2]}"
    finally:
        node.close()


def test_registry_is_served_without_http_port(tmp_path: Path) -> None:
    with open_node(tmp_path) as (node, address):
        assert node._node.http is None
        assert RegistryApi(address, base_path="").register("a", '"int"') == 1
        with ClusterClient(node.bootstrap) as cluster:
            assert find_registry_urls(cluster) == [f"http://{address}"]


def test_other_address_requires_token_although_http_port_does_not(tmp_path: Path) -> None:
    with open_node(tmp_path, "127.0.0.1:0", "0.0.0.0:0", http_token=None) as (node, address):
        assert RegistryApi(node.http).get("/subjects").status == 200
        assert RegistryApi(address, base_path="").get("/subjects").error_code == 401
        assert RegistryApi(address, base_path="").post("/subjects/a/versions", {"schema": '"int"'}).error_code == 401
        assert RegistryApi(node.http).get("/subjects").json == []


def test_token_gives_access(tmp_path: Path) -> None:
    with open_node(tmp_path, registry="0.0.0.0:0", http_token=TOKEN) as (_, address):
        assert RegistryApi(address, base_path="", authorization=f"Bearer {TOKEN}").get("/subjects").json == []
        assert RegistryApi(address, base_path="", authorization="Bearer wrong").get("/subjects").error_code == 401
        assert RegistryApi(address, base_path="").get("/subjects").error_code == 401


def test_certificate_gives_access_over_tls(tmp_path: Path) -> None:
    keystore = replace_file(tmp_path / "node.pem", issue_certificate("CN=node").keystore_pem)
    truststore = replace_file(tmp_path / "trust.pem", certificate_authority().certificate_pem)
    with open_node(tmp_path, http_keystore=keystore, http_truststore=truststore) as (_, address):

        def get_status(tls: ssl.SSLContext) -> int:
            connection = http.client.HTTPSConnection(address, timeout=60, context=tls)
            try:
                connection.request("GET", "/subjects")
                return connection.getresponse().status
            finally:
                connection.close()

        assert get_status(client_context(tmp_path, "CN=app")) == 200
        assert get_status(client_context(tmp_path)) == 401


def test_registry_port_in_use_fails_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        node = Node(load_config(None, {}, data_dir=tmp_path, kafka="127.0.0.1:0", registry=address))
        with pytest.raises(OSError, match=f"http://{address}: address already in use"):
            asyncio.run(node.start())


@pytest.mark.parametrize(
    ("url", "advertised", "reported"),
    [
        ("http://0.0.0.0:8081", "kafka1.example", "http://kafka1.example:8081"),
        ("https://[::]:6092/registry", "2001:db8::1", "https://[2001:db8::1]:6092/registry"),
        ("http://127.0.0.1:6092/registry", "127.0.0.1", "http://127.0.0.1:6092/registry"),
        ("http://127.0.0.1:6092/registry", "localhost", "http://127.0.0.1:6092/registry"),
        ("http://127.0.0.1:6092/registry", "kafka1.example", ""),
        ("http://[::1]:6092/registry", "10.0.0.1", ""),
        ("http://10.0.0.1:8081", "kafka1.example", "http://10.0.0.1:8081"),
    ],
)
def test_reported_url_is_reachable_for_clients_of_advertised_host(url: str, advertised: str, reported: str) -> None:
    assert build_registry_url(url, advertised) == reported


def test_configured_url_is_reported_instead_of_own(tmp_path: Path) -> None:
    urls = "https://a.example:8081,https://b.example:8081"
    with (
        open_node(tmp_path, **{"confluent.schema.registry.url": urls}) as (node, _),
        ClusterClient(node.bootstrap) as cluster,
    ):
        assert find_registry_urls(cluster) == urls.split(",")


def test_registry_key_is_an_address_or_off() -> None:
    assert load_config(None, {}, registry="127.0.0.1:8081").registry == ("127.0.0.1", 8081)
    assert load_config(None, {"CHRONIK_REGISTRY": "off"}).registry is None
    with pytest.raises(ConfigError, match="registry = 'http://x': expected HOST:PORT"):
        load_config(None, {}, registry="http://x")
