"""Connection settings of a client, under the names that Kafka clients use.

The names of the Java client and those of librdkafka are accepted, so that a file that works for one of them works here.
Certificates and keys are PEM, in files or inline. No `repr` contains a password or a token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from chronik.client.errors import ClientError
from chronik.escaping import truncate_text
from chronik.wording import find_closest_name, format_spelling_suggestion

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_JAAS_OPTION: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_FILE_URL: Final = "file://"
_VALUE_CHARACTERS_MAX: Final = 200

_FIELD_BY_SETTING: Final = {
    "security.protocol": "protocol",
    "sasl.mechanism": "mechanism",
    "sasl.mechanisms": "mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.jaas.config": "jaas",
    "sasl.oauthbearer.token.endpoint.url": "token_file",
    "ssl.truststore.location": "ca_file",
    "ssl.ca.location": "ca_file",
    "ssl.truststore.certificates": "ca",
    "ssl.ca.pem": "ca",
    "ssl.keystore.location": "certificate_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.keystore.certificate.chain": "certificate",
    "ssl.certificate.pem": "certificate",
    "ssl.key.location": "key_file",
    "ssl.keystore.key": "key",
    "ssl.key.pem": "key",
    "ssl.key.password": "key_password",
    "ssl.endpoint.identification.algorithm": "identification",
    "ssl.truststore.type": "store_type",
    "ssl.keystore.type": "store_type",
}
"""The ClientSecurity field for each client setting of Kafka.

Settings unrelated to security, such as timeouts, are ignored.
"""

SECURITY_SETTINGS: Final = frozenset(_FIELD_BY_SETTING)
"""Names of the settings that `parse_security` evaluates."""

_MISSPELLING_SIMILARITY_MIN: Final = 0.85
"""Minimum similarity of an unknown setting to a known one that makes it a misspelling."""

_FILE_FIELDS: Final = ("token_file", "ca_file", "certificate_file", "key_file")


class ClientSecurity(msgspec.Struct, frozen=True):
    """Security settings of a client connection: TLS, SASL mechanism and credentials.

    The settings are sent to remote tasks, so the files that they name must exist on those machines as well.
    """

    protocol: str = PLAINTEXT
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    mechanism: str = ""
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    username: str = ""
    password: str = ""
    token_file: str = ""
    """File with the OAUTHBEARER token."""
    ca_file: str = ""
    """PEM file with the trusted CA certificates."""
    ca: str = ""
    """The trusted CA certificates as PEM text."""
    certificate_file: str = ""
    """PEM file with the client certificate chain."""
    certificate: str = ""
    """The client certificate chain as PEM text."""
    key_file: str = ""
    """PEM file with the private key of the certificate."""
    key: str = ""
    """The private key of the certificate as PEM text."""
    key_password: str = ""
    """Password of an encrypted private key."""
    identification: str = "https"
    """Endpoint identification algorithm: "https" verifies the broker's host name; an empty string disables the
    check."""

    def __repr__(self) -> str:
        return f"<{self.protocol}{f' {self.mechanism} {self.username}'.rstrip()}>"

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_login(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def login_name(self) -> str:
        return self.username or "the token's principal"

    def with_absolute_paths(self) -> ClientSecurity:
        """Return a copy with absolute file paths, for processes with a different working directory."""
        fields = {name: getattr(self, name) for name in _FILE_FIELDS}
        whole = {name: str(Path(path).absolute()) for name, path in fields.items() if path}
        return msgspec.structs.replace(self, **whole) if whole else self

    def read_token(self) -> str:
        """Read the OAuth bearer token from its file. Called for each login, because the token may have been renewed.

        Raises:
            ClientError: If the file cannot be read.
        """
        try:
            return Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            raise ClientError(f"sasl.oauthbearer.token.endpoint.url: {describe_file_error(error)}") from None


PLAINTEXT_SECURITY: Final = ClientSecurity()
"""Settings for brokers without TLS and authentication."""


class BootstrapAccess(NamedTuple):
    """Bootstrap servers and the security settings to connect with."""

    servers: str
    """One address as HOST:PORT, or a comma-separated list of addresses."""
    security: ClientSecurity = PLAINTEXT_SECURITY

    def __str__(self) -> str:
        return self.servers


Bootstrap: TypeAlias = str | BootstrapAccess
"""Bootstrap servers, with security settings if the brokers require TLS or authentication."""


def to_bootstrap_access(bootstrap: Bootstrap) -> BootstrapAccess:
    return bootstrap if isinstance(bootstrap, BootstrapAccess) else BootstrapAccess(bootstrap)


def read_properties(path: Path) -> dict[str, str]:
    """Parse a Kafka client properties file and return its settings by name.

    Lines are `name=value`; `#` or `!` starts a comment, and a backslash at the end continues the line.

    Raises:
        ClientError: If the file cannot be read or a line is not `name=value`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ClientError(f"client config {path}: {describe_file_error(error)}") from None
    settings: dict[str, str] = {}
    for number, line in enumerate(re.sub(r"\\\n\s*", "", text).splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise ClientError(f"client config {path}, line {number}: expected name=value")
        settings[name.strip()] = value.strip().replace("\\n", "\n")
    return settings


def parse_security(settings: Mapping[str, str]) -> ClientSecurity:
    """Return the security settings of a client from properties with the names of the Java client or librdkafka.

    Raises:
        ClientError: If a setting is invalid; the message contains no secrets.
    """
    fields: dict[str, str] = {}
    for name, value in settings.items():
        if (field := _FIELD_BY_SETTING.get(name)) is not None:
            fields[field] = value
        elif name.startswith(("sasl.", "ssl.")):  # ignoring it could weaken security
            hint = (
                format_spelling_suggestion(name, _FIELD_BY_SETTING)
                or f"; known settings: {', '.join(_FIELD_BY_SETTING)}"
            )
            raise ClientError(f"{name}: unknown client setting{hint}")
        elif closest := find_closest_name(name, _FIELD_BY_SETTING, _MISSPELLING_SIMILARITY_MIN):
            raise ClientError(f"{name}: unknown client setting; did you mean {closest!r}?")
    if fields.pop("store_type", "PEM").upper() != "PEM":
        raise ClientError("ssl.truststore.type and ssl.keystore.type: expected PEM; Java key stores are not supported")
    fields |= _parse_jaas_config(fields.pop("jaas", ""))
    fields["protocol"] = _parse_choice(fields.get("protocol", PLAINTEXT), "security.protocol", PROTOCOLS)
    security = ClientSecurity(**fields)
    return _check_login_settings(security) if security.has_login else security


def _check_login_settings(security: ClientSecurity) -> ClientSecurity:
    mechanism = _parse_choice(security.mechanism or "(none)", "sasl.mechanism", MECHANISMS)
    if mechanism != "OAUTHBEARER" and not (security.username and security.password):
        expected = "sasl.username and sasl.password, or sasl.jaas.config"
        raise ClientError(f"sasl.mechanism = {mechanism}: a user name and a password are required: set {expected}")
    url = security.token_file
    if mechanism == "OAUTHBEARER" and not url.startswith(_FILE_URL):
        raise ClientError(
            "sasl.oauthbearer.token.endpoint.url: expected file:///PATH of a file that contains a token; the file is "
            "read for each login"
        )
    token_file = url.removeprefix(_FILE_URL)
    return msgspec.structs.replace(security, mechanism=mechanism, token_file=token_file)


def _parse_jaas_config(config: str) -> dict[str, str]:
    """Return the user name and password of a JAAS configuration: `… required username="alice" password="…";`."""
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_OPTION.findall(config)}


def _parse_choice(value: str, name: str, allowed: tuple[str, ...]) -> str:
    if value.upper() not in allowed:
        shown = truncate_text(repr(value), _VALUE_CHARACTERS_MAX)
        raise ClientError(f"{name} = {shown}: expected {' or '.join(allowed)}")
    return value.upper()


def describe_file_error(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
