"""Credentials of `chronik schemas`: which are sent to which registry."""

from __future__ import annotations

from base64 import b64decode

import pytest

from chronik.cli.schemas.registry_access import TOKEN_VARIABLE, build_access
from chronik.client.errors import ClientError
from chronik.client.registry import parse_registry_url

LOOPBACK, REMOTE, TLS = "http://127.0.0.1:6092/registry", "http://node1.example:8081", "https://node1.example:8081"
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "ada",
    "sasl.password": "pass:word",
}


def get_login(url: str, settings: dict[str, str], *, is_own_cluster: bool = False) -> str | None:
    """Return the user name and password, or the Authorization header of another scheme."""
    given = build_access(url, settings, is_own_cluster=is_own_cluster).authorization
    return b64decode(given[6:]).decode() if given is not None and given.startswith("Basic ") else given


@pytest.mark.parametrize("prefix", ["", "schema.registry."])
def test_credentials_of_config_file_are_sent(prefix: str) -> None:
    assert get_login(REMOTE, {f"{prefix}basic.auth.user.info": "u:p:q"}) == "u:p:q"
    assert get_login(REMOTE, {f"{prefix}bearer.auth.token": "secret"}) == "Bearer secret"


def test_credentials_of_url_take_precedence_and_are_decoded() -> None:
    assert get_login("http://ada:p%40ss@node1.example:8081", {"basic.auth.user.info": "u:p"}) == "ada:p@ss"


def test_sasl_login_is_sent_only_to_own_cluster_or_on_request() -> None:
    assert get_login(LOOPBACK, SASL, is_own_cluster=True) == "ada:pass:word"
    assert get_login(LOOPBACK, SASL) is None
    assert get_login(LOOPBACK, {**SASL, "basic.auth.credentials.source": "SASL_INHERIT"}) == "ada:pass:word"


def test_sasl_login_is_not_sent_in_plain_text_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    assert get_login(REMOTE, SASL, is_own_cluster=True) is None
    inherited = {**SASL, "basic.auth.credentials.source": "SASL_INHERIT"}
    assert get_login(REMOTE, inherited) is None
    assert get_login(TLS, inherited) == "ada:pass:word"


def test_http_token_is_sent_to_own_cluster_without_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    assert get_login(LOOPBACK, {}, is_own_cluster=True) == "Bearer secret"
    assert get_login(LOOPBACK, {}) is None
    assert get_login(LOOPBACK, SASL, is_own_cluster=True) == "ada:pass:word"


def test_credentials_are_not_in_texts() -> None:
    access = build_access("http://ada:secret@127.0.0.1:8081/registry", {"basic.auth.user.info": "u:secret"})
    assert repr(access) == "<registry http://127.0.0.1:8081/registry>"


@pytest.mark.parametrize(
    "url", ["", "node1:8081", "ftp://node1", "http://", "http://a:x", "http://a?b=c", "http://a#b"]
)
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ClientError, match="expected an URL such as"):
        parse_registry_url(url)
