"""Settings of schema registries in client config files, with the names of Confluent's clients.

The prefix `schema.registry.` separates them from those of Kafka. Logins may also lack it, as in the files of
Confluent's command-line tools. TLS settings without it apply to Kafka and, unless the file has others, to the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from chronik.client.access.settings import SECURITY_SETTINGS, parse_security, read_properties
from chronik.client.registry_discovery import is_private_url
from chronik.errors import ConfigError
from chronik.formats.registry_client import REGISTRY_SETTINGS, RegistrySettings, parse_registry_settings
from chronik.wording import format_spelling_suggestion

PREFIX: Final = "schema.registry."
URL_SETTING: Final = f"{PREFIX}url"

USER_INFO: Final = "basic.auth.user.info"
CREDENTIALS_SOURCE: Final = "basic.auth.credentials.source"
BEARER_TOKEN: Final = "bearer.auth.token"
SASL_INHERIT: Final = "SASL_INHERIT"

_LOGIN: Final = ("basic.auth.", "bearer.auth.")
_CREDENTIALS: Final = (USER_INFO, BEARER_TOKEN, "ssl.certificate.location", "ssl.keystore.location")
_SHARED_TLS_SETTINGS: Final = (
    ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.type"),
    (
        "ssl.certificate.location",
        "ssl.keystore.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.type",
    ),
    ("ssl.endpoint.identification.algorithm",),
)
"""Groups of TLS settings of Kafka that apply to the registry unless the file has one of the group with the prefix."""

_FILE_SETTINGS: Final = frozenset(name for name in REGISTRY_SETTINGS if name.endswith(".location"))


class RegistryConfig(NamedTuple):
    """The settings of a schema registry in a client config file."""

    url: str | None = None
    """`schema.registry.url`: one URL, or a comma-separated list of URLs of the same registry."""
    settings: Mapping[str, str] = MappingProxyType({})
    """Settings without prefix, for `parse_registry_settings`."""
    sasl_login: str | None = None
    """The name and password of the SASL login, if the registry is to use it (`SASL_INHERIT`)."""

    @property
    def has_credentials(self) -> bool:
        """Whether the file has a login, a token or a client certificate for the registry."""
        return any(self.settings.get(name) for name in _CREDENTIALS)

    def build(self, url: str) -> RegistrySettings:
        """Return the settings for the registry with a URL.

        Raises:
            ConfigError: The URL or a setting is invalid.
        """
        return parse_registry_settings(url, self.get_settings(url))

    def get_settings(self, url: str) -> dict[str, str]:
        """Return the settings without prefix for the registry with a URL, with the SASL login if it is inherited.

        Raises:
            ConfigError: The SASL login would be sent in plain text.
        """
        settings = dict(self.settings)
        if self.sasl_login is not None and not settings.get(USER_INFO):
            if not all(map(is_private_url, url.split(","))):
                raise ConfigError(
                    f"{CREDENTIALS_SOURCE} = {SASL_INHERIT}: a password is sent only to https:// and loopback addresses"
                )
            settings[USER_INFO] = self.sasl_login
        return settings

    def complete(self, discovered: RegistrySettings) -> RegistrySettings:
        """Return the settings for the registry that the brokers name, with those of the file.

        Raises:
            ConfigError: A setting is invalid.
        """
        return parse_registry_settings(discovered.url, self.settings).with_defaults_of(discovered)


def read_registry_config(path: Path | str | None) -> RegistryConfig:
    """Read the settings for schema registries from a client config file, if one is given.

    Raises:
        ClientError: The file cannot be read, or a setting of Kafka is invalid.
        ConfigError: A setting of the registry is unknown.
    """
    return RegistryConfig() if path is None else parse_registry_config(read_properties(Path(path)))


def parse_registry_config(properties: Mapping[str, str]) -> RegistryConfig:
    """Return the settings for schema registries among the properties of a client. File names become absolute.

    Raises:
        ClientError: A setting of Kafka is invalid.
        ConfigError: A setting of the registry is unknown.
    """
    own = {name.removeprefix(PREFIX): value for name, value in properties.items() if name.startswith(PREFIX)}
    url = own.pop("url", "").strip() or None
    found = {name: properties[name] for name in REGISTRY_SETTINGS if name.startswith(_LOGIN) and name in properties}
    for group in _SHARED_TLS_SETTINGS:
        if not any(name in own for name in group):
            found |= {name: properties[name] for name in group if name in properties}
    for name, value in own.items():
        if name in REGISTRY_SETTINGS:
            found[name] = value
        elif name.startswith((*_LOGIN, "ssl.")):  # ignoring it could weaken security
            hint = format_spelling_suggestion(name, REGISTRY_SETTINGS)
            known = f"; known settings: {', '.join(REGISTRY_SETTINGS)}"
            raise ConfigError(f"{PREFIX}{name}: unknown setting of schema registries{hint or known}")
    sasl_login = None
    if found.get(CREDENTIALS_SOURCE, "").upper() == SASL_INHERIT:
        del found[CREDENTIALS_SOURCE]
        sasl_login = _get_sasl_login(properties)
    for name in _FILE_SETTINGS & found.keys():
        found[name] = str(Path(found[name]).absolute()) if found[name] else ""
    return RegistryConfig(url, found, sasl_login)


def _get_sasl_login(properties: Mapping[str, str]) -> str:
    security = parse_security({name: value for name, value in properties.items() if name in SECURITY_SETTINGS})
    if not (security.has_login and security.username and security.password):
        raise ConfigError(f"{CREDENTIALS_SOURCE} = {SASL_INHERIT}: expected a SASL login with a name and a password")
    return f"{security.username}:{security.password}"
