"""The registry of `consume`, `produce` and the pipeline: a registry with TLS, from the client config file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chronik.admin.users import create_first_user_command
from chronik.cli.pipeline.registry_argument import parse_registry_argument
from chronik.cli.records import consume
from chronik.cli.records.value_registry import open_value_registry
from chronik.cli.schemas.registry_access import open_registry
from chronik.errors import ChronikError
from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.registry_client import RegistryUnavailableError
from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import AuthorizingNode
from tests.tls.certificates import certificate_authority, issue_certificate, replace_file

PASSWORD = "correct horse"
SCHEMA = WriterSchema(ValueFormat.AVRO, '"string"')


class SecuredRegistry:
    """A node whose registry has TLS, and a client config file."""

    def __init__(self, folder: Path, **configs: str) -> None:
        self._config = folder / "client.properties"
        self.ca = replace_file(folder / "ca.pem", certificate_authority().certificate_pem)
        self.certificate = replace_file(folder / "client.pem", issue_certificate("CN=client").keystore_pem)
        keystore = replace_file(folder / "node.pem", issue_certificate("CN=node").keystore_pem)
        self.node = AuthorizingNode(
            folder / "data",
            http_keystore=str(keystore),
            http_truststore=str(self.ca),
            registry="127.0.0.1:0",
            **configs,
        )
        assert self.node._node.registry_url is not None
        self.url = self.node._node.registry_url

    def parse(self, words: str = "", **settings: str) -> argparse.Namespace:
        """Return the arguments of `consume` with a client config file that has these settings, with _ for points."""
        lines = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self._config.write_text("\n".join(lines))
        parser = argparse.ArgumentParser()
        consume.add_arguments(parser)
        given = f"orders --client-config {self._config} -b {self.node.bootstrap} --timeout 5 {words}"
        return parser.parse_args(given.split())


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredRegistry]:
    started = SecuredRegistry(tmp_path_factory.mktemp("registry"), **{"super.users": "User:root"})
    started.node.propose(create_first_user_command("root", PASSWORD))
    started.node.allow(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)  # the Kafka client is anonymous
    yield started
    started.node.close()


def register(arguments: argparse.Namespace) -> int:
    with closing(open_value_registry(arguments)) as client:
        return client.register("orders-value", SCHEMA)


def test_login_and_ca_of_file_are_used(secured: SecuredRegistry) -> None:
    settings = {
        "schema_registry_ssl_ca_location": str(secured.ca),
        "schema_registry_basic_auth_user_info": f"root:{PASSWORD}",
    }
    for arguments in (
        secured.parse(f"--registry {secured.url}", **settings),
        secured.parse(**settings, schema_registry_url=secured.url),
        secured.parse(**settings),
    ):
        assert register(arguments) == 1
        with open_registry(arguments) as admin:
            assert admin.get("subjects") == ["orders-value"]
        found = parse_registry_argument(arguments)
        assert found is not None
        assert (found.url, found.login, found.ca_file) == (secured.url, f"root:{PASSWORD}", str(secured.ca))


def test_client_certificate_of_file_is_used(tmp_path: Path) -> None:
    started = SecuredRegistry(tmp_path, **{"authorizer.class.name": ""})
    try:
        tls = {"schema_registry_url": started.url, "schema_registry_ssl_truststore_location": str(started.ca)}
        with pytest.raises(ChronikError, match="HTTP status 401"):
            register(started.parse(**tls))
        tls |= {"schema_registry_ssl_keystore_location": str(started.certificate)}
        assert register(started.parse(**tls)) == 1
    finally:
        started.node.close()


def test_missing_credentials_are_reported_in_one_line(secured: SecuredRegistry) -> None:
    with pytest.raises(ChronikError, match=r"HTTP status 401") as rejected:
        register(secured.parse(schema_registry_url=secured.url, ssl_ca_location=str(secured.ca)))
    assert "\n" not in str(rejected.value)


def test_certificate_of_unknown_authority_is_rejected(secured: SecuredRegistry) -> None:
    with pytest.raises(RegistryUnavailableError, match="certificate verify failed"):
        register(secured.parse(schema_registry_url=secured.url))
