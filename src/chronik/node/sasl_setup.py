"""Creation of a node's SASL components. A node without a SASL listener does not import them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from chronik.api.routing.authentication_gate import AuthenticationGate
from chronik.api.shared.context import Services
from chronik.configs.resolver import ConfigResolver
from chronik.errors import ConfigError
from chronik.request_reply import Dispatch
from chronik.security.sasl.authenticator import Authenticator, ScramUsers
from chronik.security.sasl.jwks import JwksCache, create_key_reader
from chronik.security.sasl.outcomes import MECHANISMS, OAUTHBEARER
from chronik.security.sasl.tokens import JwtValidator, TokenSettings
from chronik.wording import format_install_hint

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
MAX_REAUTHENTICATION: Final = "connections.max.reauth.ms"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


def create_sasl_gate(services: Services, dispatch: Dispatch, names: Sequence[str]) -> AuthenticationGate:
    """Return the SASL authentication gate for the named listeners.

    Raises:
        ConfigError: A SASL config is invalid.
    """
    configs, static = services.configs, services.config.broker
    enabled = {name: partial(_read_enabled_mechanisms, configs, static, name) for name in names}
    for name, mechanisms in enabled.items():
        for mechanism in mechanisms():
            _read_session_lifetime_ms_max(configs, static, name, mechanism)
    has_tokens = any(OAUTHBEARER in mechanisms() for mechanisms in enabled.values())
    authenticator = services.authenticator = Authenticator(
        ScramUsers(lambda: services.store.image),
        services.clock,
        partial(configs.broker_int, "connection.failed.authentication.delay.ms"),
        _create_token_validator(services) if has_tokens else None,
    )
    sessions = {
        name: partial(
            authenticator.create_session, enabled[name], partial(_read_session_lifetime_ms_max, configs, static, name)
        )
        for name in names
    }
    return AuthenticationGate(dispatch, authenticator, sessions)


def _create_token_validator(services: Services) -> JwtValidator:
    text: Callable[[str], str | None] = services.configs.find_broker_value
    number = services.configs.broker_int
    url = text(JWKS_URL)
    if not url:
        raise ConfigError(
            f"broker: {JWKS_URL}: expected the URL of the token keys (JWKS), because {OAUTHBEARER} is enabled"
        )
    try:
        import joserfc  # noqa: F401 - only checks that it is installed; it is used with the first token
    except ImportError:
        raise ConfigError(f"{OAUTHBEARER} requires joserfc: {format_install_hint('oauth')}") from None
    keys = JwksCache(
        create_key_reader(url),
        number("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
    )
    settings = TokenSettings(
        issuer=text("sasl.oauthbearer.expected.issuer") or None,
        audiences=frozenset(_split_by_comma(text("sasl.oauthbearer.expected.audience") or "")),
        skew_seconds=number("sasl.oauthbearer.clock.skew.seconds"),
        sub_claim=text("sasl.oauthbearer.sub.claim.name") or "sub",
        scope_claim=text("sasl.oauthbearer.scope.claim.name") or "scope",
    )
    return JwtValidator(settings, keys, services.clock.now_ms)


def _read_enabled_mechanisms(configs: ConfigResolver, static: Mapping[str, str], listener: str) -> tuple[str, ...]:
    """Return the SASL mechanisms enabled on a listener; raise ConfigError if one is unknown or there are none."""
    listener_key = _format_listener_key(listener, ENABLED_MECHANISMS)
    value = static.get(listener_key)
    mechanisms_named = tuple(_split_by_comma(configs.broker_value(ENABLED_MECHANISMS) if value is None else value))
    if not mechanisms_named or not set(mechanisms_named) <= set(MECHANISMS):
        key = ENABLED_MECHANISMS if value is None else listener_key
        raise ConfigError(
            f"broker: {key} = {','.join(mechanisms_named)!r}: expected one or more of {', '.join(MECHANISMS)}"
        )
    return mechanisms_named


def _read_session_lifetime_ms_max(
    configs: ConfigResolver, static: Mapping[str, str], listener: str, mechanism: str
) -> int:
    """Return the maximum session lifetime of a listener's mechanism; raise ConfigError if the config is invalid."""
    for name in (f"{mechanism.lower()}.{MAX_REAUTHENTICATION}", MAX_REAUTHENTICATION):
        listener_key = _format_listener_key(listener, name)
        value = static.get(listener_key, "")
        if value.isdecimal():
            return int(value)
        if value:
            raise ConfigError(
                f"broker: {listener_key} = {value!r}: expected a whole number of milliseconds, 0 for no limit"
            )
    return configs.broker_int(MAX_REAUTHENTICATION)


def _format_listener_key(listener: str, key: str) -> str:
    return f"listener.name.{listener.lower()}.{key}"


def _split_by_comma(value: str) -> list[str]:
    return [each.strip() for each in value.split(",") if each.strip()]
