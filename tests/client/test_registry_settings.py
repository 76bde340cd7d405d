"""Settings of schema registries in client config files: names, precedence, and what is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.client.registry_settings import parse_registry_config, read_registry_config
from chronik.errors import ConfigError
from chronik.formats.registry_client import RegistrySettings

REMOTE, TLS, LOOPBACK = "http://node1.example:8081", "https://node1.example:8081", "http://127.0.0.1:8081"
SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ada",
    "sasl.password": "pass:word",
    "basic.auth.credentials.source": "SASL_INHERIT",
}


def test_file_of_confluents_clients_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        """
        bootstrap.servers=pkc-1.example:9092
        security.protocol=SASL_SSL
        ssl.ca.location=/kafka/ca.pem
        ssl.certificate.location=/kafka/own.pem
        schema.registry.url=https://a.example, https://b.example
        schema.registry.basic.auth.credentials.source=USER_INFO
        schema.registry.basic.auth.user.info=key:secret
        schema.registry.ssl.truststore.location=/registry/ca.pem
        schema.registry.request.timeout.ms=5000
        """
    )
    config = read_registry_config(path)
    assert config.url == "https://a.example, https://b.example"
    assert config.build(config.url) == RegistrySettings(
        config.url, "key:secret", ca_file="/registry/ca.pem", certificate_file="/kafka/own.pem"
    )


def test_setting_with_prefix_takes_precedence() -> None:
    config = parse_registry_config(
        {
            "basic.auth.user.info": "kafka:p",
            "schema.registry.basic.auth.user.info": "registry:p",
            "ssl.ca.location": "/kafka/ca.pem",
            "ssl.keystore.location": "/kafka/own.pem",
            "ssl.key.password": "kafka",
            "schema.registry.ssl.certificate.location": "/registry/own.pem",
        }
    )
    assert config.build(TLS) == RegistrySettings(
        TLS, "registry:p", ca_file="/kafka/ca.pem", certificate_file="/registry/own.pem"
    ), "a certificate is not combined with the key or the password of another one"


def test_names_of_files_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = parse_registry_config({"schema.registry.ssl.ca.location": "ca.pem"})
    assert config.build(TLS).ca_file == str(tmp_path / "ca.pem")


def test_sasl_login_is_inherited_on_request_but_not_sent_in_plain_text() -> None:
    config = parse_registry_config(SASL)
    assert config.build(TLS).login == config.build(LOOPBACK).login == "ada:pass:word"
    with pytest.raises(ConfigError, match=r"SASL_INHERIT: a password is sent only to https:// and loopback addresses"):
        config.build(REMOTE)
    assert parse_registry_config({**SASL, "basic.auth.credentials.source": "URL"}).build(TLS).login == ""


def test_sasl_login_cannot_be_inherited_without_password() -> None:
    with pytest.raises(ConfigError, match="SASL_INHERIT: expected a SASL login with a name and a password"):
        parse_registry_config({"schema.registry.basic.auth.credentials.source": "SASL_INHERIT"})


def test_settings_of_file_complete_those_of_the_brokers() -> None:
    discovered = RegistrySettings(TLS, "ada:p", ca_file="/kafka/ca.pem")
    config = parse_registry_config({"schema.registry.bearer.auth.token": "t"})
    assert config.has_credentials
    assert config.complete(discovered) == RegistrySettings(TLS, token="t", ca_file="/kafka/ca.pem")
    assert not parse_registry_config({"ssl.ca.location": "/kafka/ca.pem"}).has_credentials


@pytest.mark.parametrize("name", ["ssl.cipher.suites", "basic.auth.user", "bearer.auth.issuer.endpoint.url"])
def test_unknown_setting_that_concerns_security_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"schema\.registry\.{name}: unknown setting of schema registries"):
        parse_registry_config({f"schema.registry.{name}": "x"})


def test_without_file_there_are_no_settings() -> None:
    assert read_registry_config(None) == (None, {}, None)
