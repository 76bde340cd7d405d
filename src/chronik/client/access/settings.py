"""How a client gets in: where the brokers are, and what it shows them, by the settings that every Kafka client has.

Java's names and librdkafka's are both known, so that a file that works for one of them works here. Certificates and
keys are PEM, in files or in the settings themselves. A password or a token is in no representation of any of this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from chronik.client.errors import ClientError
from chronik.shown import shortened
from chronik.wording import closest_name, suggestion

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_JAAS: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_FILE_URL: Final = "file://"
_VALUE_CHARACTERS_MAX: Final = 200

_KNOWN: Final = {
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
"""What each setting is to us. Settings of other kinds (timeouts, serializers, …) are none of our business."""

_MISSPELLING_SIMILARITY_MIN: Final = 0.85
"""A name this similar to a known setting is a misspelling, and must not be ignored: it may ask for TLS or a login.
Kafka's names for settings of other kinds are less similar."""

_FILES: Final = ("token_file", "ca_file", "certificate_file", "key_file")


class ClientSecurity(msgspec.Struct, frozen=True):
    """It travels to where tasks run, so files that it names must be there as well."""

    protocol: str = PLAINTEXT
    mechanism: str = ""
    username: str = ""
    password: str = ""
    token_file: str = ""
    ca_file: str = ""
    ca: str = ""
    certificate_file: str = ""
    certificate: str = ""
    key_file: str = ""
    key: str = ""
    key_password: str = ""
    identification: str = "https"

    def __repr__(self) -> str:
        return f"<{self.protocol}{f' {self.mechanism} {self.username}'.rstrip()}>"

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_login(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def who(self) -> str:
        return self.username or "whom the token names"

    def with_whole_paths(self) -> ClientSecurity:
        """Names files from the root on, for processes with another working folder: a Spark that stays has its own."""
        given = {name: getattr(self, name) for name in _FILES}
        whole = {name: str(Path(path).absolute()) for name, path in given.items() if path}
        return msgspec.structs.replace(self, **whole) if whole else self

    def token(self) -> str:
        """Reads it anew each time: whoever keeps the file replaces it before it expires. Raises ClientError."""
        try:
            return Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            raise ClientError(f"sasl.oauthbearer.token.endpoint.url: {reason_of_file(error)}") from None


OPEN: Final = ClientSecurity()
"""For brokers that let everyone in."""


class Access(NamedTuple):
    servers: str
    """HOST:PORT, or several with commas."""
    security: ClientSecurity = OPEN

    def __str__(self) -> str:
        return self.servers


Bootstrap: TypeAlias = str | Access
"""Whoever needs no more than an address gives it as it is."""


def access_of(bootstrap: Bootstrap) -> Access:
    return bootstrap if isinstance(bootstrap, Access) else Access(bootstrap)


def read_settings(path: Path) -> dict[str, str]:
    """Reads a file of Kafka's client settings: `name=value` lines, `#` before a comment, `\\` at the end of a line that
    goes on. Raises ClientError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ClientError(f"client config {path}: {reason_of_file(error)}") from None
    settings: dict[str, str] = {}
    for number, line in enumerate(re.sub(r"\\\n\s*", "", text).splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ClientError(f"client config {path}, line {number}: expected name=value")
        settings[name.strip()] = value.strip().replace("\\n", "\n")
    return settings


def parse_security(settings: Mapping[str, str]) -> ClientSecurity:
    """Raises ClientError, which names the setting and what is expected of it, and repeats no secret."""
    given: dict[str, str] = {}
    for name, value in settings.items():
        if (field := _KNOWN.get(name)) is not None:
            given[field] = value
        elif name.startswith(("sasl.", "ssl.")):  # not dropped in silence: it may say who is to be trusted
            meant = suggestion(name, _KNOWN) or f"; it knows {', '.join(_KNOWN)}"
            raise ClientError(f"{name}: this client knows no such setting{meant}")
        elif closest := closest_name(name, _KNOWN, _MISSPELLING_SIMILARITY_MIN):
            raise ClientError(f"{name}: this client knows no such setting; did you mean {closest!r}?")
    if given.pop("store_type", "PEM").upper() != "PEM":
        raise ClientError("ssl.truststore.type and ssl.keystore.type: expected PEM; this client reads no Java stores")
    given |= _from_jaas(given.pop("jaas", ""))
    given["protocol"] = _choice(given.get("protocol", PLAINTEXT), "security.protocol", PROTOCOLS)
    security = ClientSecurity(**given)
    return _with_login(security) if security.has_login else security


def _with_login(security: ClientSecurity) -> ClientSecurity:
    mechanism = _choice(security.mechanism or "(none)", "sasl.mechanism", MECHANISMS)
    if mechanism != "OAUTHBEARER" and not (security.username and security.password):
        expected = "sasl.username and sasl.password, or sasl.jaas.config"
        raise ClientError(f"sasl.mechanism = {mechanism}: expected {expected} with both")
    url = security.token_file
    if mechanism == "OAUTHBEARER" and not url.startswith(_FILE_URL):
        raise ClientError(
            "sasl.oauthbearer.token.endpoint.url: expected file:///PATH of a file with a token, which is read again "
            "whenever one is needed"
        )
    token_file = url.removeprefix(_FILE_URL)
    return msgspec.structs.replace(security, mechanism=mechanism, token_file=token_file)


def _from_jaas(config: str) -> dict[str, str]:
    """What a login module is given, whichever it is: `… required username="alice" password="…";`"""
    return {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS.findall(config)}


def _choice(value: str, name: str, allowed: tuple[str, ...]) -> str:
    if value.upper() not in allowed:
        shown = shortened(repr(value), _VALUE_CHARACTERS_MAX)
        raise ClientError(f"{name} = {shown}: expected {' or '.join(allowed)}")
    return value.upper()


def reason_of_file(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
