"""Parsing and validation of Kafka's `ssl.*` configs of one listener. No I/O.

`listener.name.<name>.ssl.…` overrides `ssl.…` for one listener. Stores must be in PEM format, which every tool
can write and the standard library can read; JKS and PKCS12 are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

import msgspec

from chronik.errors import ConfigError
from chronik.escaping import truncate_text

TLS_1_3_CIPHERS: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""Supported TLS 1.3 cipher suites by IANA name, as in Kafka's configs."""

TLS_1_2_CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
}
"""OpenSSL names of the supported TLS 1.2 cipher suites, all with forward secrecy and without known weaknesses."""


VALUE_CHARACTERS_MAX: Final = 200
"""Maximum characters of an invalid value that an error message quotes."""

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
TLS_VERSIONS: Final = (TLS_1_2, TLS_1_3)
CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED = "none", "requested", "required"

_SECRET_CONFIGS: Final = (
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
)
"""Configs that Kafka treats as passwords. Error messages do not quote their values."""


class PemSource(msgspec.Struct, frozen=True):
    """PEM text in a file or inline in a config."""

    key: str
    """Name of the config, for error messages."""
    path: str | None = None
    text: str = ""

    def __repr__(self) -> str:
        """Return the config and path without the text, which may be a private key."""
        return f"Source({self.key!r}, {self.path!r})"


class TlsSettings(msgspec.Struct, frozen=True):
    """The TLS settings of a listener."""

    key: PemSource
    chain: PemSource
    trust: PemSource | None = None
    client_auth: str = CLIENT_AUTH_NONE
    versions: tuple[str, ...] = TLS_VERSIONS
    ciphers: tuple[str, ...] = ()
    """Cipher suites by IANA names, as in Kafka; empty for OpenSSL's defaults."""
    key_password: str | None = None
    principal_rules: str = "DEFAULT"

    def __repr__(self) -> str:
        """Return the settings without the key password."""
        return f"TlsSettings({self.chain!r}, {self.trust!r}, {self.client_auth!r})"

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of the PEM files."""
        sources = (self.key, self.chain, self.trust)
        return tuple(dict.fromkeys(source.path for source in sources if source is not None and source.path is not None))


def read_tls_settings(name: str, protocol: str, configs: Mapping[str, str]) -> TlsSettings:
    """Return the TLS settings of a listener.

    Raises:
        ConfigError: A config is missing or invalid.
    """
    return _TlsSettingsReader(name, configs).read(is_sasl=protocol.startswith("SASL_"))


class _TlsSettingsReader:
    def __init__(self, name: str, configs: Mapping[str, str]) -> None:
        self._name = name
        self._configs = configs
        prefix = f"listener.name.{name.lower()}."
        self._listener_configs = {key.lower(): key for key in configs if key.lower().startswith(prefix)}
        self._prefix = prefix

    def read(self, *, is_sasl: bool) -> TlsSettings:
        for store in ("keystore", "truststore"):
            self._read_choice(f"ssl.{store}.type", ("PEM",))
        key, chain = self._read_key_store()
        # As in Kafka, a SASL listener requests client certificates only if its own config says so.
        auth = (
            self._read_choice(
                "ssl.client.auth", (CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED), own_only=is_sasl
            )
            or CLIENT_AUTH_NONE
        )
        trust = self._read_trust_store()
        if auth != CLIENT_AUTH_NONE and trust is None:
            self._reject_config("ssl.client.auth", "ssl.truststore.location with the CAs of client certificates")
        ciphers = self._read_cipher_suites()
        versions = self._read_tls_versions(ciphers)
        return TlsSettings(
            key,
            chain,
            trust,
            auth,
            versions,
            ciphers,
            self._get("ssl.key.password"),
            self._get("ssl.principal.mapping.rules") or "DEFAULT",
        )

    def _read_key_store(self) -> tuple[PemSource, PemSource]:
        path, key = self._get("ssl.keystore.location"), self._get("ssl.keystore.key")
        chain = self._get("ssl.keystore.certificate.chain")
        if path is not None:
            for other in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
                if self._get(other) is not None:
                    self._reject_config("ssl.keystore.location", f"no {other}: the file contains both")
            store = self._build_pem_source("ssl.keystore.location", path)
            return store, store
        if key is None or chain is None:
            contents = "a PEM file with the listener's private key and certificate chain"
            raise ConfigError(f"broker: listener {self._name} uses TLS: expected ssl.keystore.location, {contents}")
        return self._build_pem_source("ssl.keystore.key", text=key), self._build_pem_source(
            "ssl.keystore.certificate.chain", text=chain
        )

    def _read_trust_store(self) -> PemSource | None:
        path, text = self._get("ssl.truststore.location"), self._get("ssl.truststore.certificates")
        if path is not None and text is not None:
            self._reject_config("ssl.truststore.location", "no ssl.truststore.certificates")
        if path is not None:
            return self._build_pem_source("ssl.truststore.location", path)
        return None if text is None else self._build_pem_source("ssl.truststore.certificates", text=text)

    def _build_pem_source(self, key: str, path: str | None = None, text: str = "") -> PemSource:
        return PemSource(f"broker: {self._get_config_name(key)}", path, text)

    def _read_tls_versions(self, ciphers: tuple[str, ...]) -> tuple[str, ...]:
        """Return the enabled TLS versions for which at least one cipher suite is enabled."""
        named = self._list("ssl.enabled.protocols") or TLS_VERSIONS
        if not set(named) <= set(TLS_VERSIONS):
            self._reject_config("ssl.enabled.protocols", " or ".join(TLS_VERSIONS) + ", or both separated by a comma")
        suites = {TLS_1_2: TLS_1_2_CIPHERS, TLS_1_3: TLS_1_3_CIPHERS}
        versions = tuple(
            each for each in TLS_VERSIONS if each in named and (not ciphers or set(ciphers) & set(suites[each]))
        )
        if not versions:
            self._reject_config("ssl.cipher.suites", f"at least one suite of {' and '.join(named)}")
        return versions

    def _read_cipher_suites(self) -> tuple[str, ...]:
        ciphers = self._list("ssl.cipher.suites")
        unknown = set(ciphers) - set(TLS_1_2_CIPHERS) - set(TLS_1_3_CIPHERS)
        if unknown:
            known = "TLS_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
            self._reject_config("ssl.cipher.suites", f"names such as {known}; {sorted(unknown)[0]} is not supported")
        chosen = set(ciphers) & set(TLS_1_3_CIPHERS)
        if chosen and chosen != set(TLS_1_3_CIPHERS):
            text = f"all of {', '.join(TLS_1_3_CIPHERS)}, or none of them: Python's ssl cannot select among these; "
            self._reject_config("ssl.cipher.suites", text + 'OpenSSL\'s own configuration file can ("Ciphersuites")')
        return ciphers

    def _list(self, key: str) -> tuple[str, ...]:
        return tuple(each.strip() for each in (self._get(key) or "").split(",") if each.strip())

    def _read_choice(self, key: str, choices: tuple[str, ...], *, own_only: bool = False) -> str | None:
        value = self._get(key, own_only=own_only)
        if value is not None and value.strip() not in choices:
            self._reject_config(key, " or ".join(choices))
        return value if value is None else value.strip()

    def _get_config_name(self, key: str) -> str:
        """Return the config's full name, with the listener prefix if it is set for this listener."""
        return self._listener_configs.get(self._prefix + key, key)

    def _get(self, key: str, *, own_only: bool = False) -> str | None:
        given = self._get_config_name(key)
        if own_only and given == key:
            return None
        return self._configs.get(given) or None

    def _reject_config(self, key: str, expected: str) -> NoReturn:
        given = self._get_config_name(key)
        value = "[hidden]" if key in _SECRET_CONFIGS else self._configs.get(given, "")
        raise ConfigError(f"broker: {given} = {truncate_text(repr(value), VALUE_CHARACTERS_MAX)}: expected {expected}")
