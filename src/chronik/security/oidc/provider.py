"""The OpenID Connect provider, as seen by the console: metadata, login URL, and the exchange of codes for users.

Methods that send requests block, and are called in a thread. The others can be called on the event loop.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from typing import Final, NamedTuple
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

logger = logging.getLogger("chronik.security")

REQUEST_SECONDS_MAX: Final = 10.0
RESPONSE_BYTES_MAX: Final = 256 * 1024
METADATA_SECONDS: Final = 3600.0
"""Seconds after which the provider's metadata is loaded again."""
RELOAD_SECONDS: Final = 60.0
"""Seconds after a failed reload until the next one. In between, the previous metadata is used."""
LOAD_RETRY_SECONDS: Final = 2.0
"""Seconds after a failed first load during which logins fail immediately, so that they do not wait one by one."""
KEY_REFRESH_SECONDS: Final = 3600.0
KEY_RETRY_SECONDS: Final = 1.0
USER_CHARACTERS_MAX: Final = 200
"""Maximum length of the claim with the user name."""
ID_TOKEN_CHARACTERS_MAX: Final = 8 * 1024
"""Maximum length of an ID token that is kept for the logout at the provider."""
ERROR_CHARACTERS_MAX: Final = 64

METADATA_PATH: Final = "/.well-known/openid-configuration"
EMAIL: Final = "email"
INVALID_GRANT: Final = "invalid_grant"


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

    def __repr__(self) -> str:
        return "TokenResponse(…)"


class ErrorResponse(msgspec.Struct, frozen=True):
    """The error response of the token endpoint."""

    error: str = ""


class _LoadedProvider(NamedTuple):
    metadata: ProviderMetadata
    validator: JwtValidator
    reloads_at: float


class OidcProvider:
    """A client of an OpenID Connect provider. Thread-safe."""

    def __init__(
        self, settings: OidcSettings, now_ms: Callable[[], int], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._loading = threading.Lock()
        self._loaded: _LoadedProvider | None = None
        """Replaced as a whole, and read without a lock."""
        self._failure: tuple[float, ProviderError] | None = None
        """The time and the error of the last failed first load."""

    @property
    def is_current(self) -> bool:
        """Whether the metadata is loaded, and not due to be loaded again."""
        loaded = self._loaded
        return loaded is not None and self._monotonic() < loaded.reloads_at

    def load(self) -> None:
        """Load the metadata, unless it is current. If a reload fails, the previous metadata is kept. Blocks.

        Raises:
            ProviderError: The metadata has never been loaded, and cannot be loaded.
        """
        with self._loading:
            if self.is_current:
                return
            previous = self._loaded
            now = self._monotonic()
            if previous is None and self._failure is not None and now < self._failure[0] + LOAD_RETRY_SECONDS:
                raise ProviderError(str(self._failure[1]))
            try:
                self._loaded = self._load(previous)
            except ProviderError as error:
                if previous is None:
                    self._failure = self._monotonic(), error
                    raise
                logger.warning("single sign-on: %s; keeping the previous configuration", error)
                self._loaded = previous._replace(reloads_at=self._monotonic() + RELOAD_SECONDS)

    def build_login_url(self, state: LoginState) -> str:
        """Return the URL of the provider to which the browser is redirected. The metadata must be loaded."""
        assert self._loaded is not None
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
        return _add_parameters(self._loaded.metadata.authorization_endpoint, parameters)

    def build_logout_url(self, id_token: str) -> str | None:
        """Return the URL that ends the user's session at the provider; None if the provider has no such endpoint."""
        endpoint = None if self._loaded is None else self._loaded.metadata.end_session_endpoint
        if not endpoint or not is_secure_url(endpoint):
            return None
        settings = self._settings
        parameters = {"client_id": settings.client_id, "post_logout_redirect_uri": settings.console_url}
        if id_token:
            parameters["id_token_hint"] = id_token
        return _add_parameters(endpoint, parameters)

    def log_in(self, state: LoginState, code: str, issuer: str | None) -> SignedOnUser:
        """Exchange the code of the provider's redirect for an ID token, and return the user whom it names. Blocks.

        Args:
            state: The state with which the login was started.
            code: The authorization code.
            issuer: The `iss` parameter of the redirect.

        Raises:
            SingleSignOnError: The code or the ID token is not valid.
            ProviderError: The provider does not respond as expected.
        """
        self.load()
        assert self._loaded is not None
        metadata, validator, _ = self._loaded
        requires_issuer = metadata.authorization_response_iss_parameter_supported
        if issuer != metadata.issuer and (issuer is not None or requires_issuer):
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

    def _load(self, previous: _LoadedProvider | None) -> _LoadedProvider:
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
        if previous is not None and previous.metadata.jwks_uri == metadata.jwks_uri:
            validator = previous.validator
        else:
            validator = self._create_validator(metadata.jwks_uri)
        return _LoadedProvider(metadata, validator, self._monotonic() + METADATA_SECONDS)

    def _create_validator(self, jwks_url: str) -> JwtValidator:
        keys = JwksCache(
            lambda: download_url(jwks_url, REQUEST_SECONDS_MAX, JWKS_BYTES_MAX), KEY_REFRESH_SECONDS, KEY_RETRY_SECONDS
        )
        settings = self._settings
        tokens = TokenSettings(issuer=settings.issuer, audiences=frozenset({settings.client_id}))
        return JwtValidator(tokens, keys, self._now_ms)

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
            if status == HTTPStatus.OK:
                return msgspec.json.decode(body, type=TokenResponse).id_token
        except (OSError, HTTPException, ValueError) as error:
            raise ProviderError(f"the provider's token endpoint failed: {error}") from None
        error_code = _read_error_code(body)
        if error_code == INVALID_GRANT:
            raise SingleSignOnError("the provider does not accept its code: log in again")
        raise ProviderError(f"the provider's token endpoint returned HTTP status {status}: {error_code}")

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
        if len(value) > USER_CHARACTERS_MAX:
            raise SingleSignOnError(f"the claim {name!r} exceeds {USER_CHARACTERS_MAX} characters")
        user = value.strip()
        if name == EMAIL and claims.get("email_verified") not in (True, "true"):
            raise SingleSignOnError("the provider does not confirm that the e-mail address is verified", user)
        try:
            principal = Principal(USER, self._settings.principal_rules.principal_name(user))
        except NoMatchingRule as error:
            raise SingleSignOnError(str(error), user) from None
        if principal == ANONYMOUS:
            raise SingleSignOnError(f"{principal} stands for clients without a login", user)
        return principal


def _is_issued_to(claims: dict[str, object], client_id: str) -> bool:
    """Return whether a client requested the token. A token for several audiences must name the client (`azp`)."""
    audiences = claims["aud"]
    if isinstance(audiences, list) and len(audiences) > 1:
        return claims.get("azp") == client_id
    return claims.get("azp", client_id) == client_id


def _add_parameters(url: str, parameters: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"


def _read_error_code(body: bytes) -> str:
    """Return the OAuth error code of a response, such as invalid_client."""
    try:
        code = msgspec.json.decode(body, type=ErrorResponse).error
    except ValueError:
        return "no error code"
    return shorten_error_code(code)


def shorten_error_code(code: str) -> str:
    """Return an OAuth error code such as access_denied. Other text, which any site can make up, is not shown."""
    is_code = code.isascii() and code.replace("_", "").isalnum() and len(code) <= ERROR_CHARACTERS_MAX
    return code if is_code else "unknown error"
