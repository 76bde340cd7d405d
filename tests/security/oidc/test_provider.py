"""The provider's metadata: loading, reloading, failures, and methods that must not block."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.config import load_config
from chronik.security.oidc.login_state import create_login_state
from chronik.security.oidc.outcomes import ProviderError
from chronik.security.oidc.provider import LOAD_RETRY_SECONDS, METADATA_SECONDS, RELOAD_SECONDS, OidcProvider
from chronik.security.oidc.settings import CALLBACK_PATH, OidcSettings, is_secure_url, read_oidc_settings
from tests.security.oidc.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider

SECONDS_MAX = 60


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[IdentityProvider]:
    with IdentityProvider() as started:
        yield started


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(issuer: IdentityProvider, clock: Clock) -> OidcProvider:
    return OidcProvider(read_settings(issuer.issuer), lambda: int(time.time() * 1000), clock)


def read_settings(issuer: str) -> OidcSettings:
    config: dict[str, Any] = {
        "oidc_issuer": issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_redirect_url": f"https://console.example{CALLBACK_PATH}",
    }
    settings = read_oidc_settings(load_config(None, {}, **config))
    assert settings is not None
    return settings


def test_metadata_is_reloaded_after_an_hour(provider: OidcProvider, issuer: IdentityProvider, clock: Clock) -> None:
    assert not provider.is_current
    provider.load()
    assert provider.is_current
    issuer.metadata = {"authorization_endpoint": f"{issuer.issuer}/moved"}
    clock.now += METADATA_SECONDS
    assert not provider.is_current
    provider.load()
    assert provider.build_login_url(create_login_state()).startswith(f"{issuer.issuer}/moved?")


def test_failed_reload_is_logged_and_repeated_after_a_minute(
    provider: OidcProvider, issuer: IdentityProvider, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    provider.load()
    issuer.metadata = {"issuer": "https://other.example"}
    clock.now += METADATA_SECONDS
    with caplog.at_level(logging.WARNING):
        provider.load()
    assert "keeping the previous configuration" in caplog.text
    assert provider.build_login_url(create_login_state()).startswith(f"{issuer.issuer}/authorize?")
    assert provider.is_current
    issuer.metadata = {"authorization_endpoint": f"{issuer.issuer}/moved"}
    clock.now += RELOAD_SECONDS
    provider.load()
    assert provider.build_login_url(create_login_state()).startswith(f"{issuer.issuer}/moved?")


def test_waiting_logins_share_a_failed_load(clock: Clock) -> None:
    with IdentityProvider() as issuer:
        issuer.metadata = {"issuer": "https://other.example"}
        provider = OidcProvider(read_settings(issuer.issuer), lambda: 0, clock)
        with pytest.raises(ProviderError):
            provider.load()
        issuer.reset()
        with pytest.raises(ProviderError, match="belongs to the issuer"):
            provider.load()
        clock.now += LOAD_RETRY_SECONDS
        provider.load()


def test_logout_does_not_wait_for_a_reload(provider: OidcProvider, issuer: IdentityProvider, clock: Clock) -> None:
    provider.load()
    clock.now += METADATA_SECONDS
    asked, released = threading.Event(), threading.Event()
    document = issuer.discovery_document

    def respond_slowly() -> dict[str, object]:
        asked.set()
        released.wait(SECONDS_MAX)
        return document()

    issuer.discovery_document = respond_slowly  # type: ignore[method-assign]
    reload = threading.Thread(target=provider.load)
    reload.start()
    try:
        assert asked.wait(SECONDS_MAX)
        assert (provider.build_logout_url("") or "").startswith(f"{issuer.issuer}/logout?")
        assert provider.build_login_url(create_login_state())
        assert reload.is_alive()
    finally:
        released.set()
        reload.join()


def test_urls_must_be_encrypted_and_valid() -> None:
    for url in ("https://a.example", "https://a.example:8443/b?c", "http://localhost:1", "http://127.0.0.1:1/x"):
        assert is_secure_url(url)
    for url in (
        "http://a.example",
        "ftp://a.example",
        "https://",
        "",
        "https://[",
        "https://a.example/\r\nX: y",
        "https://ä.example",
        "https://a example",
        "http://localhost.example",
    ):
        assert not is_secure_url(url)


def test_secrets_are_not_in_representations(provider: OidcProvider) -> None:
    state = create_login_state()
    shown = f"{read_settings('https://a.example')!r} {state!r}"
    assert CLIENT_SECRET not in shown
    assert state.verifier not in shown
    assert state.state not in shown
