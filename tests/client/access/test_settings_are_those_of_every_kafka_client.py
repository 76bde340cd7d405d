from __future__ import annotations

from pathlib import Path

import pytest

from chronik.client.access.settings import OPEN, Access, ClientSecurity, access_of, parse_security, read_settings
from chronik.client.access.tls import context_of
from chronik.client.errors import ClientError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a\\"b;c";'


def test_a_file_of_javas_client_is_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"# how to get in\nsecurity.protocol = SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={JAAS}\n"
        "ssl.truststore.type=PEM\nssl.truststore.location=/etc/ca.pem\n"
        "ssl.endpoint.identification.algorithm=\nbatch.size=7\nbootstrap.servers=a:1,\\\n  b:2\n"
    )
    settings = read_settings(file)
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


def test_the_names_of_librdkafka_are_known_too() -> None:
    given = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "u"}
    security = parse_security(given | {"sasl.password": "p"})
    assert (security.protocol, security.mechanism, security.username) == ("SASL_PLAINTEXT", "PLAIN", "u")
    assert not security.is_encrypted


def test_a_token_is_read_from_its_file_whenever_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    security = parse_security(given | {"sasl.oauthbearer.token.endpoint.url": f"file://{file}"})
    with pytest.raises(ClientError, match=r"token\.endpoint\.url: No such file"):
        security.token()
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert security.token() == token


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"security.protocol": "TLS"}, r"security\.protocol = 'TLS': expected PLAINTEXT or SSL or"),
        ({"security.protocol": "SASL_SSL"}, r"sasl\.mechanism = '\(none\)': expected PLAIN or SCRAM-SHA-256"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "expected PLAIN or"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, "expected sasl.username"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "expected file:///PATH"),
        ({"ssl.truststore.type": "JKS"}, "expected PEM"),
        ({"ssl.truststor.location": "x"}, r"ssl\.truststor\.location: .* did you mean 'ssl.truststore.location'"),
        ({"ssl.xyz": "x"}, r"ssl\.xyz: this client knows no such setting; it knows security.protocol, "),
        ({"securty.protocol": "SASL_SSL"}, r"securty\.protocol: .* did you mean 'security.protocol'"),
        ({"security.Protocol": "SASL_SSL"}, r"security\.Protocol: .* did you mean 'security.protocol'"),
        ({"sals.mechanism": "PLAIN"}, r"sals\.mechanism: .* did you mean 'sasl.mechanism'"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ClientError, match=expected):
        parse_security(given)


@pytest.mark.parametrize(
    ("text", "expected"), [("security.protocol", "line 1: expected name=value"), (None, "No such")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ClientError, match=expected):
        read_settings(file)


def test_files_are_found_from_another_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that stays runs in a folder of its own, and is given what the command line was given."""
    monkeypatch.chdir(tmp_path)
    given = {"security.protocol": "SSL", "ssl.truststore.location": "certs/ca.pem", "ssl.key.location": "/etc/key.pem"}
    whole = parse_security(given).with_whole_paths()
    assert whole == ClientSecurity("SSL", ca_file=str(tmp_path / "certs" / "ca.pem"), key_file="/etc/key.pem")
    assert OPEN.with_whole_paths() == OPEN


@pytest.mark.parametrize("setting", ["ssl.truststore.location", "ssl.keystore.location"])
def test_a_file_that_is_not_there_is_named_with_its_setting(setting: str) -> None:
    ca = {"ssl.truststore.location": ""}  # what the system trusts
    security = parse_security(ca | {"security.protocol": "SSL", setting: "certs/gone.pem"})
    with pytest.raises(ClientError) as refused:
        context_of(security)
    assert str(refused.value) == f"{setting} = certs/gone.pem: No such file or directory"


def test_secrets_are_in_no_representation() -> None:
    security = ClientSecurity(protocol="SASL_SSL", mechanism="PLAIN", username="alice", password="hush", key="PRIVATE")
    for shown in (repr(security), repr(Access("a:1", security)), str(Access("a:1", security))):
        assert "hush" not in shown
        assert "PRIVATE" not in shown
    assert str(Access("a:1", security)) == "a:1"


def test_whoever_needs_only_an_address_gives_only_that() -> None:
    assert access_of("a:1") == Access("a:1", OPEN)
    assert access_of(Access("a:1")) == Access("a:1", OPEN)
