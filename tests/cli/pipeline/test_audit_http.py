"""`chronik pipeline audit --http`: token and certificates for HTTP requests."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path

import pytest

from chronik.cli.arguments import InvalidInput
from chronik.cli.pipeline.audit import TOKEN_VARIABLE, _parse_http_access
from chronik.config import Address
from chronik.console.http_client import HttpAccess
from tests.tls.certificates import certificate_authority, replace_file


def parsed_arguments(*http: str, client_config: Path | None = None) -> argparse.Namespace:
    return argparse.Namespace(http=list(http), client_config=client_config)


def test_http_addresses_are_parsed_without_token_and_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert _parse_http_access(parsed_arguments("a:1,b:2", "c:3")) == (
        [Address("a", 1), Address("b", 2), Address("c", 3)],
        HttpAccess(),
    )


def test_http_token_is_read_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "correct-horse")
    assert _parse_http_access(parsed_arguments("a:1")) == ([Address("a", 1)], HttpAccess("correct-horse"))


def test_trusted_certificates_are_read_from_client_config(tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(
        f"ssl.truststore.location={replace_file(tmp_path / 'ca.pem', certificate_authority().certificate_pem)}\n"
    )
    addresses, way = _parse_http_access(parsed_arguments("https://a:1", "https://b:2", client_config=settings))
    assert addresses == [Address("a", 1), Address("b", 2)]
    assert way.tls is not None
    assert way.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(way.tls.get_ca_certs()) == 1, "only the given CA is trusted"


def test_mixed_http_and_https_addresses_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="https"):
        _parse_http_access(parsed_arguments("https://a:1", "b:2"))
