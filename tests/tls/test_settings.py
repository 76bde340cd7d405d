"""Kafka's `ssl.*` configs: listener overrides, and error messages with key, value and expected value."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.config import load_config
from chronik.errors import ConfigError
from chronik.node.security_setup import create_tls_listeners
from chronik.server.connection import ListenerLimits
from chronik.tls.contexts import ReloadableTlsContext
from chronik.tls.settings import CLIENT_AUTH_NONE, CLIENT_AUTH_REQUIRED, TLS_1_2, TLS_1_3, read_tls_settings
from tests.tls.certificates import certificate_authority, issue_certificate, replace_file


def test_listener_config_overrides_general_config() -> None:
    configs = {
        "ssl.keystore.location": "all.pem",
        "ssl.truststore.location": "ca.pem",
        "ssl.client.auth": "required",
        "listener.name.inside.ssl.keystore.location": "inside.pem",
        "listener.name.inside.ssl.client.auth": "none",
    }
    inside, outside = (read_tls_settings(name, "SSL", configs) for name in ("INSIDE", "OUTSIDE"))
    assert (inside.chain.path, inside.client_auth) == ("inside.pem", CLIENT_AUTH_NONE)
    assert (outside.chain.path, outside.client_auth) == ("all.pem", CLIENT_AUTH_REQUIRED)
    assert inside.files == ("inside.pem", "ca.pem")


def test_sasl_listener_requires_client_certificate_only_by_own_config() -> None:
    configs = {"ssl.keystore.location": "a", "ssl.truststore.location": "b", "ssl.client.auth": "required"}
    assert read_tls_settings("X", "SASL_SSL", configs).client_auth == CLIENT_AUTH_NONE
    own = configs | {"listener.name.x.ssl.client.auth": "required"}
    assert read_tls_settings("X", "SASL_SSL", own).client_auth == CLIENT_AUTH_REQUIRED


def test_tls_versions_follow_config_and_cipher_suites() -> None:
    store = {"ssl.keystore.location": "a"}
    assert read_tls_settings("X", "SSL", store).versions == (TLS_1_2, TLS_1_3)
    assert read_tls_settings("X", "SSL", store | {"ssl.enabled.protocols": "TLSv1.3"}).versions == (TLS_1_3,)
    ciphers = {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    assert read_tls_settings("X", "SSL", store | ciphers).versions == (TLS_1_2,)


FILE = {"ssl.keystore.location": "node.pem"}


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, "listener X uses TLS: expected ssl.keystore.location"),
        (FILE | {"ssl.keystore.type": "JKS"}, "ssl.keystore.type = 'JKS': expected PEM"),
        (FILE | {"ssl.truststore.type": "PKCS12"}, "ssl.truststore.type = 'PKCS12': expected PEM"),
        (
            FILE | {"ssl.keystore.key": "k"},
            "ssl.keystore.location = 'node.pem': expected no ssl.keystore.key",
        ),
        ({"ssl.keystore.key": "k"}, "expected ssl.keystore.location"),
        (FILE | {"ssl.client.auth": "maybe"}, "ssl.client.auth = 'maybe': expected none or requested or required"),
        (FILE | {"ssl.client.auth": "required"}, "expected ssl.truststore.location with the CAs"),
        (FILE | {"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols = 'TLSv1.1': expected TLSv1.2 or TLSv1.3"),
        (FILE | {"ssl.cipher.suites": "RC4"}, "RC4 is not supported"),
        (FILE | {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "Python's ssl cannot select among these"),
        (
            FILE | {"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"},
            "ssl.truststore.location = 'a': expected no ssl.truststore.certificates",
        ),
        (
            FILE | {"listener.name.x.ssl.client.auth": "maybe"},
            "listener.name.x.ssl.client.auth = 'maybe': expected none or",
        ),
    ],
)
def test_invalid_tls_config_is_rejected_in_one_line(configs: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_tls_settings("X", "SSL", configs)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unsuitable_certificate_files_are_rejected_at_start(tmp_path: Path) -> None:
    def config_error(content: bytes | None, **more: str) -> str:
        path = tmp_path / "node.pem"
        path.unlink(missing_ok=True)
        if content is not None:
            replace_file(path, content)
        broker = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(path)}
        with pytest.raises(ConfigError) as raised:
            create_tls_listeners(load_config(None, {}, broker=broker | more), ListenerLimits())
        assert str(path) in str(raised.value) or more
        return str(raised.value)

    ours, other = issue_certificate("CN=node"), issue_certificate("CN=other")
    assert "expected a readable file (No such file" in config_error(None)
    assert "expected a PRIVATE KEY and a CERTIFICATE in PEM" in config_error(b"nonsense")
    assert "expected a key and a certificate that match" in config_error(ours.key + other.certificate)
    trust = {"ssl.truststore.location": replace_file(tmp_path / "ca.pem", b"nonsense")}
    assert "expected at least one CERTIFICATE in PEM" in config_error(ours.keystore_pem, **trust)
    rules = {"ssl.principal.mapping.rules": "nonsense"}
    assert "expected DEFAULT or RULE:" in config_error(ours.keystore_pem, **rules)


def test_inline_keys_are_accepted_and_never_shown() -> None:
    ours = issue_certificate("CN=node")
    configs = {
        "ssl.keystore.key": ours.key.decode(),
        "ssl.keystore.certificate.chain": ours.certificate.decode(),
        "ssl.truststore.certificates": certificate_authority().certificate_pem.decode(),
        "ssl.key.password": "very secret",
    }
    settings = read_tls_settings("X", "SSL", configs)
    ReloadableTlsContext("listener X", settings)
    assert settings.files == ()
    assert "PRIVATE" not in repr(settings)
    assert "very secret" not in repr(settings)
    with pytest.raises(ConfigError) as raised:
        ReloadableTlsContext(
            "listener X", read_tls_settings("X", "SSL", configs | {"ssl.keystore.key": "PRIVATE nonsense"})
        )
    assert "PRIVATE nonsense" not in str(raised.value)
    assert "[hidden]" in str(raised.value)


def test_encrypted_private_key_is_loaded_with_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    ours = issue_certificate("CN=node")
    key = serialization.load_pem_private_key(ours.key, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open sesame"),
    )
    configs = {"ssl.keystore.location": replace_file(tmp_path / "node.pem", encrypted + ours.certificate)}
    ReloadableTlsContext("listener X", read_tls_settings("X", "SSL", configs | {"ssl.key.password": "open sesame"}))
    for wrong in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(ConfigError, match=r"expected a key that ssl\.key\.password decrypts"):
            ReloadableTlsContext("listener X", read_tls_settings("X", "SSL", configs | wrong))


def test_node_without_tls_has_no_tls_listeners() -> None:
    assert create_tls_listeners(load_config(None, {}, kafka="127.0.0.1:0"), ListenerLimits()) is None
