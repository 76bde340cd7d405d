"""Settings of single sign-on, from the `oidc_*` keys of the config file."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from chronik.config import NodeConfig
from chronik.errors import ConfigError
from chronik.listeners import is_loopback_address
from chronik.security.principal_rules import PrincipalRules
from chronik.wording import format_install_hint

LOGIN_PATH: Final = "/login/oidc"
"""The path that starts a login."""

CALLBACK_PATH: Final = "/login/oidc/callback"
"""The path to which the provider redirects users. The redirect URL is the console's URL with this path."""

OPENID_SCOPE: Final = "openid"

COOKIE_SECRET_CHARACTERS_MIN: Final = 32


class OidcSettings(msgspec.Struct, frozen=True):
    """The settings of the console as a client of an OpenID Connect provider."""

    issuer: str
    client_id: str
    client_secret: str | None
    cookie_secret: str | None
    redirect_url: str
    scopes: str
    principal_claim: str
    principal_rules: PrincipalRules

    def __repr__(self) -> str:
        """Return the settings without secrets."""
        return f"OidcSettings(issuer={self.issuer!r}, client_id={self.client_id!r})"

    @property
    def console_url(self) -> str:
        """The URL of the console's start page."""
        return self.redirect_url.removesuffix(CALLBACK_PATH) + "/"


def read_oidc_settings(config: NodeConfig) -> OidcSettings | None:
    """Return the settings of single sign-on, or None if it is not configured.

    Raises:
        ConfigError: A setting is missing or invalid, or joserfc is not installed.
    """
    given = {"oidc_issuer": config.oidc_issuer, "oidc_client_id": config.oidc_client_id}
    given["oidc_redirect_url"] = config.oidc_redirect_url
    if not any(given.values()):
        return None
    for key, value in given.items():
        if not value:
            raise ConfigError(f"{key}: missing; single sign-on requires {', '.join(given)}")
    issuer, client_id, redirect_url = config.oidc_issuer, config.oidc_client_id, config.oidc_redirect_url
    assert issuer is not None
    assert client_id is not None
    assert redirect_url is not None
    if not is_secure_url(issuer):
        raise ConfigError(f"oidc_issuer = {issuer!r}: expected a URL that starts with https://")
    parts = urlsplit(redirect_url)
    if not is_secure_url(redirect_url) or parts.path != CALLBACK_PATH or parts.query or parts.fragment:
        raise ConfigError(
            f"oidc_redirect_url = {redirect_url!r}: expected https://, the host of the console and {CALLBACK_PATH}"
        )
    if OPENID_SCOPE not in config.oidc_scopes.split():
        raise ConfigError(f"oidc_scopes = {config.oidc_scopes!r}: expected {OPENID_SCOPE!r} among the scopes")
    if config.oidc_cookie_secret is not None and len(config.oidc_cookie_secret) < COOKIE_SECRET_CHARACTERS_MIN:
        raise ConfigError(
            f"oidc_cookie_secret: expected at least {COOKIE_SECRET_CHARACTERS_MIN} random characters, such as the "
            "output of: openssl rand -hex 32"
        )
    try:
        import joserfc  # noqa: F401 - only checks that it is installed; it is used with the first login
    except ImportError:
        raise ConfigError(f"oidc_issuer: single sign-on requires joserfc: {format_install_hint('oauth')}") from None
    return OidcSettings(
        issuer,
        client_id,
        config.oidc_client_secret,
        config.oidc_cookie_secret,
        redirect_url,
        config.oidc_scopes,
        config.oidc_principal_claim,
        PrincipalRules(
            config.oidc_principal_rules,
            key="oidc_principal_rules",
            subject_kind=f"claim {config.oidc_principal_claim}",
        ),
    )


def is_secure_url(url: str) -> bool:
    """Return whether a URL is valid and uses HTTPS, or HTTP on a loopback address."""
    if not url.isascii() or not url.isprintable() or " " in url:  # urlsplit ignores line breaks, headers do not
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:  # for example an unclosed bracket: "http://["
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback_address(host or "")))
