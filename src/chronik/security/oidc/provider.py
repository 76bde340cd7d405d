"""The OpenID Connect provider, as seen by the console: metadata, login URL, and the exchange of codes for users.

The functions that send requests block; they are called in a thread.
"""

from __future__ import annotations

import hmac
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from typing import Final
from urllib.parse import quote_plus, urlencode

import msgspec

from chronik.limits import JWKS_BYTES_MAX
from chronik.principals import ANONYMOUS, USER, Principal
from chronik.security.http_download import download_url, post_form
from chronik.security.oidc.login_state import LoginState
from chronik.security.oidc.outcomes import ProviderError, SignedOnUser, SingleSignOnError
from chronik.security.oidc.settings import OidcSettings, is_secure_url
from chronik.security.principal_rules import NoMatchingRule
from chronik.security.sasl.jwks import JwksCache, KeysLoading, KeysUnavailable
from chronik.security.sasl.outcomes import InvalidToken
from chronik.security.sasl.tokens import JwtValidator, TokenSettings

REQUEST_SECONDS_MAX: Final = 10.0
RESPONSE_BYTES_MAX: Final = 256 * 1024
METADATA_SECONDS: Final = 3600.0
"""Seconds after which the provider's metadata is read again."""
KEY_REFRESH_SECONDS: Final = 3600.0
KEY_RETRY_SECONDS: Final = 1.0
SUBJECT_CHARACTERS_MAX: Final = 200
"""Maximum length of a user name."""
ID_TOKEN_CHARACTERS_MAX: Final = 8 * 1024
"""Maximum length of an ID token that is kept for the logout at the provider."""

METADATA_PATH: Final = "/.well-known/openid-configuration"


class ProviderMetadata(msgspec.Struct, frozen=True):
    """The endpoints of a provider, from its discovery document."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class TokenResponse(msgspec.Struct, frozen=True):
    """The part of the token endpoint's response that the console uses."""

    id_token: str


class OidcProvider:
    """A client of an OpenID Connect provider. Thread-safe."""

    def __init__(
        self, settings: OidcSettings, now_ms: Callable[[], int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._metadata: ProviderMetadata | None = None
        self._read_at = float("-inf")
        self._validator: JwtValidator | None = None

    def build_login_url(self, state: LoginState) -> str:
        """Return the URL of the provider to which the browser is redirected.

        Raises:
            ProviderError: The provider's metadata cannot be read.
        """
        settings = self._settings
        parameters = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": settings.redirect_url,
            "scope": settings.scopes,
            "state": state.state,
            "nonce": state.nonce,
            "code_challenge": state.challenge,
            "code_challenge_method": "S256",
        }
        return _add_parameters(self._get_metadata()[0].authorization_endpoint, parameters)

    def build_logout_url(self, id_token: str) -> str | None:
        """Return the URL that ends the user's session at the provider; None if the provider has no such endpoint."""
        with self._lock:
            endpoint = None if self._metadata is None else self._metadata.end_session_endpoint
        if not endpoint or not is_secure_url(endpoint):
            return None
        settings = self._settings
        parameters = {"client_id": settings.client_id, "post_logout_redirect_uri": settings.console_url}
        if id_token:
            parameters["id_token_hint"] = id_token
        return _add_parameters(endpoint, parameters)

    def log_in(self, state: LoginState, code: str, issuer: str | None) -> SignedOnUser:
        """Exchange the code of the provider's redirect for an ID token, and return the user whom it names.

        Args:
            state: The state with which the login was started.
            code: The authorization code.
            issuer: The `iss` parameter of the redirect.

        Raises:
            SingleSignOnError: The code or the ID token is not valid, or the provider does not respond as expected.
        """
        metadata, validator = self._get_metadata()
        if issuer != metadata.issuer and (
            issuer is not None or metadata.authorization_response_iss_parameter_supported
        ):
            raise SingleSignOnError("the response comes from another provider")
        id_token = self._redeem_code(metadata, state, code)
        claims = self._read_claims(validator, id_token)
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(
            nonce.encode("utf-8", "replace"), state.nonce.encode()
        ):
            raise SingleSignOnError("the ID token belongs to another login")
        if not _is_issued_to(claims, self._settings.client_id):
            raise SingleSignOnError("the ID token was issued to another client")
        kept = id_token if len(id_token) <= ID_TOKEN_CHARACTERS_MAX else ""
        return SignedOnUser(self._map_to_principal(claims), kept)

    def _get_metadata(self) -> tuple[ProviderMetadata, JwtValidator]:
        """Return the provider's metadata and the validator of its tokens. If a reload fails, the old ones are used."""
        with self._lock:
            if self._metadata is None or self._monotonic() - self._read_at > METADATA_SECONDS:
                try:
                    self._load_metadata()
                except ProviderError:
                    if self._metadata is None:
                        raise
                self._read_at = self._monotonic()
            assert self._metadata is not None
            assert self._validator is not None
            return self._metadata, self._validator

    def _load_metadata(self) -> None:
        settings = self._settings
        url = settings.issuer.rstrip("/") + METADATA_PATH
        try:
            data = download_url(url, REQUEST_SECONDS_MAX, RESPONSE_BYTES_MAX)
            metadata = msgspec.json.decode(data, type=ProviderMetadata)
        except (OSError, HTTPException, ValueError) as error:  # msgspec.MsgspecError is a subclass of ValueError
            raise ProviderError(f"the provider's configuration cannot be read from {url}: {error}") from None
        if metadata.issuer != settings.issuer:
            raise ProviderError(f"{url} belongs to the issuer {metadata.issuer!r}: set oidc_issuer to this value")
        for endpoint in (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri):
            if not is_secure_url(endpoint):
                raise ProviderError(f"the provider's endpoint {endpoint!r} does not use https")
        if self._metadata is None or self._metadata.jwks_uri != metadata.jwks_uri:
            keys = JwksCache(
                lambda: download_url(metadata.jwks_uri, REQUEST_SECONDS_MAX, JWKS_BYTES_MAX),
                KEY_REFRESH_SECONDS,
                KEY_RETRY_SECONDS,
            )
            tokens = TokenSettings(issuer=settings.issuer, audiences=frozenset({settings.client_id}))
            self._validator = JwtValidator(tokens, keys, self._now_ms)
        self._metadata = metadata

    def _redeem_code(self, metadata: ProviderMetadata, state: LoginState, code: str) -> str:
        """Return the ID token for an authorization code."""
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_url,
            "code_verifier": state.verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        methods = metadata.token_endpoint_auth_methods_supported
        if settings.client_secret is None:
            form["client_id"] = settings.client_id
        elif "client_secret_basic" not in methods and "client_secret_post" in methods:
            form |= {"client_id": settings.client_id, "client_secret": settings.client_secret}
        else:
            login = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        try:
            status, body = post_form(
                metadata.token_endpoint, urlencode(form).encode(), headers, REQUEST_SECONDS_MAX, RESPONSE_BYTES_MAX
            )
            if status != HTTPStatus.OK:
                raise SingleSignOnError(f"the provider rejected the code: HTTP status {status}{_read_error(body)}")
            return msgspec.json.decode(body, type=TokenResponse).id_token
        except (OSError, HTTPException, ValueError) as error:
            raise ProviderError(f"the provider's token endpoint failed: {error}") from None

    def _read_claims(self, validator: JwtValidator, id_token: str) -> dict[str, object]:
        try:
            try:
                return validator.read_claims(id_token)
            except KeysLoading as loading:
                loading.loaded.result(REQUEST_SECONDS_MAX)
                return validator.read_claims(id_token)
        except InvalidToken as error:
            raise SingleSignOnError(f"the ID token is invalid: {error}") from None
        except (KeysLoading, KeysUnavailable, TimeoutError):
            raise ProviderError("the provider's keys cannot be read") from None

    def _map_to_principal(self, claims: dict[str, object]) -> Principal:
        name = self._settings.principal_claim
        value = claims.get(name)
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise SingleSignOnError(f"the ID token has no claim {name!r} with a user name")
        if name == "email" and claims.get("email_verified", True) not in (True, "true"):
            raise SingleSignOnError("the provider has not verified the user's e-mail address")
        if len(value) > SUBJECT_CHARACTERS_MAX:
            raise SingleSignOnError(f"the claim {name!r} exceeds {SUBJECT_CHARACTERS_MAX} characters")
        try:
            principal = Principal(USER, self._settings.principal_rules.principal_name(value.strip()))
        except NoMatchingRule as error:
            raise SingleSignOnError(str(error)) from None
        if principal == ANONYMOUS:
            raise SingleSignOnError(f"{principal} stands for clients without a login")
        return principal


def _is_issued_to(claims: dict[str, object], client_id: str) -> bool:
    """Return whether a client requested the token. A token for several audiences must name the client (`azp`)."""
    audiences = claims["aud"]
    if isinstance(audiences, list) and len(audiences) > 1:
        return claims.get("azp") == client_id
    return claims.get("azp", client_id) == client_id


def _add_parameters(url: str, parameters: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


def _read_error(body: bytes) -> str:
    """Return the OAuth error code of a response, such as `, invalid_grant`, if it has one."""

    class ErrorResponse(msgspec.Struct):
        error: str

    try:
        code = msgspec.json.decode(body, type=ErrorResponse).error
    except ValueError:
        return ""
    return f", {code}" if code.isascii() and code.replace("_", "").isalnum() else ""
