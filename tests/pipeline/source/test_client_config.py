"""The option `clientConfig` of the source and the sink: a client config file instead of options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.client.access.settings import BootstrapAccess
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.client_config import add_client_config
from chronik.pipeline.source.options import parse_bootstrap_servers, parse_source_options, resolve_source_types
from pyspark_chronik import DefaultSource
from tests.formats.http_registry import HttpRegistry

FILE = """
bootstrap.servers=node1:9092
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.username=ada
sasl.password=secret
ssl.ca.location=/certificates/ca.pem
acks=all
schema.registry.basic.auth.user.info=ada:secret
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return path


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    started = HttpRegistry()
    yield started
    started.stop()


def test_settings_of_file_are_used(path: Path) -> None:
    options = DefaultSource({"clientConfig": str(path), "subscribe": "orders"}).options
    parse_source_options(options, streaming=False)
    access = parse_bootstrap_servers(options)
    assert isinstance(access, BootstrapAccess)
    assert (access.servers, access.security.username, access.security.password) == ("node1:9092", "ada", "secret")
    assert access.security.ca_file == "/certificates/ca.pem"


def test_option_takes_precedence_over_file(path: Path) -> None:
    given = {"CLIENTCONFIG": str(path), "kafka.bootstrap.servers": "node2:9092", "kafka.sasl.username": "bob"}
    access = parse_bootstrap_servers(add_client_config({**given, "subscribe": "orders"}))
    assert isinstance(access, BootstrapAccess)
    assert (access.servers, access.security.username) == ("node2:9092", "bob")


@pytest.mark.parametrize("is_url_in_file", [False, True])
def test_registry_of_file_is_used_with_its_login(path: Path, registry: HttpRegistry, is_url_in_file: bool) -> None:
    registry.add("orders-value", '"string"')
    options = {"clientConfig": str(path), "subscribe": "orders", "valueFormat": "avro"}
    if is_url_in_file:
        path.write_text(f"{FILE}schema.registry.url={registry.url}\n")
    else:
        options["schema.registry.url"] = registry.url
    typed = resolve_source_types(DefaultSource(options).options)
    assert typed is not None
    assert str(typed.columns[0].arrow_field.type) == "string"
    assert registry.headers[-1]["Authorization"] == "Basic YWRhOnNlY3JldA=="


def test_invalid_file_is_reported_in_one_line(path: Path) -> None:
    path.write_text("schema.registry.ssl.cipher.suites=x")
    with pytest.raises(OptionError, match=r"clientConfig: schema\.registry\.ssl\.cipher\.suites: unknown setting"):
        add_client_config({"clientConfig": str(path)})
    with pytest.raises(OptionError, match=r"clientConfig: client config /missing: No such file"):
        add_client_config({"clientConfig": "/missing"})
