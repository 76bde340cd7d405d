from __future__ import annotations

from pathlib import Path

import pytest

from chronik.client.access.settings import (
    PLAINTEXT_SECURITY,
    BootstrapAccess,
    ClientSecurity,
    parse_security,
    read_properties,
    to_bootstrap_access,
)
from chronik.client.access.tls import create_ssl_context
from chronik.client.errors import ClientError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a\\"b;c";'


def test_java_client_properties_file_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"# how to get in\nsecurity.protocol = SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={JAAS}\n"
        "ssl.truststore.type=PEM\nssl.truststore.location=/etc/ca.pem\n"
        "ssl.endpoint.identification.algorithm=\nbatch.size=7\nbootstrap.servers=a:1,\\\n  b:2\n"
    )
    settings = read_properties(file)
    assert settings["bootstrap.servers"] == "a:1,b:2"
    security = parse_security(settings)
    assert security == ClientSecurity(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username="alice",
        password='a"b;c',
        ca_file="/etc/ca.pem",
        identification="",
    )
    assert security.has_login
    assert security.is_encrypted


def test_librdkafka_setting_names_are_accepted() -> None:
    properties = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "u"}
    security = parse_security(properties | {"sasl.password": "p"})
    assert (security.protocol, security.mechanism, security.username) == ("SASL_PLAINTEXT", "PLAIN", "u")
    assert not security.is_encrypted


def test_oauth_token_file_is_reread_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    security = parse_security(properties | {"sasl.oauthbearer.token.endpoint.url": f"file://{file}"})
    with pytest.raises(ClientError, match=r"token\.endpoint\.url: No such file"):
        security.read_token()
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert security.read_token() == token


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"security.protocol": "TLS"}, r"security\.protocol = 'TLS': expected PLAINTEXT or SSL or"),
        ({"security.protocol": "SASL_SSL"}, r"sasl\.mechanism = '\(none\)': expected PLAIN or SCRAM-SHA-256"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "expected PLAIN or"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, "set sasl.username"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "expected file:///PATH"),
        ({"ssl.truststore.type": "JKS"}, "expected PEM"),
        ({"ssl.truststor.location": "x"}, r"ssl\.truststor\.location: .* did you mean 'ssl.truststore.location'"),
        ({"ssl.xyz": "x"}, r"ssl\.xyz: unknown client setting; known settings: security.protocol, "),
        ({"securty.protocol": "SASL_SSL"}, r"securty\.protocol: .* did you mean 'security.protocol'"),
        ({"security.Protocol": "SASL_SSL"}, r"security\.Protocol: .* did you mean 'security.protocol'"),
        ({"sals.mechanism": "PLAIN"}, r"sals\.mechanism: .* did you mean 'sasl.mechanism'"),
    ],
)
def test_invalid_setting_is_named_in_error(properties: dict[str, str], expected: str) -> None:
    with pytest.raises(ClientError, match=expected):
        parse_security(properties)


@pytest.mark.parametrize(
    ("text", "expected"), [("security.protocol", "line 1: expected name=value"), (None, "No such")]
)
def test_invalid_client_config_file_raises_error(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ClientError, match=expected):
        read_properties(file)


def test_file_settings_become_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark server has its own working directory and receives the settings of the command line."""
    monkeypatch.chdir(tmp_path)
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": "certs/ca.pem",
        "ssl.key.location": "/etc/key.pem",
    }
    resolved = parse_security(properties).with_absolute_paths()
    assert resolved == ClientSecurity("SSL", ca_file=str(tmp_path / "certs" / "ca.pem"), key_file="/etc/key.pem")
    assert PLAINTEXT_SECURITY.with_absolute_paths() == PLAINTEXT_SECURITY


@pytest.mark.parametrize("setting", ["ssl.truststore.location", "ssl.keystore.location"])
def test_missing_certificate_file_is_named_with_its_setting(setting: str) -> None:
    ca = {"ssl.truststore.location": ""}  # the system's trust store
    security = parse_security(ca | {"security.protocol": "SSL", setting: "certs/gone.pem"})
    with pytest.raises(ClientError) as raised:
        create_ssl_context(security)
    assert str(raised.value) == f"{setting} = certs/gone.pem: No such file or directory"


def test_secrets_do_not_appear_in_repr() -> None:
    security = ClientSecurity(protocol="SASL_SSL", mechanism="PLAIN", username="alice", password="hush", key="PRIVATE")
    for text_form in (repr(security), repr(BootstrapAccess("a:1", security)), str(BootstrapAccess("a:1", security))):
        assert "hush" not in text_form
        assert "PRIVATE" not in text_form
    assert str(BootstrapAccess("a:1", security)) == "a:1"


def test_plain_address_is_accepted_as_access() -> None:
    assert to_bootstrap_access("a:1") == BootstrapAccess("a:1", PLAINTEXT_SECURITY)
    assert to_bootstrap_access(BootstrapAccess("a:1")) == BootstrapAccess("a:1", PLAINTEXT_SECURITY)
