"""Facts about a node's config file: its values, listeners, certificates and the resolvability of hosts."""

from __future__ import annotations

import ipaddress
import socket
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from chronik.cli.doctor.local_facts import ConfigFacts, ListenerFacts
from chronik.cli.monitoring.facts import CertificateFacts
from chronik.config import CONFIG_KEYS, SECRET_WORDS, NodeConfig, load_config
from chronik.configs.broker_key_lookup import find_broker_key
from chronik.configs.validation import validate_static_config
from chronik.errors import ConfigError
from chronik.listeners import ListenerConfig
from chronik.tls.certificate_dates import InvalidCertificate, parse_pem_certificates
from chronik.wording import format_spelling_suggestion

READABLE_BY_OTHERS: Final = stat.S_IROTH | stat.S_IRGRP
STORES: Final = ("http_keystore", "http_truststore", "peer_keystore", "peer_truststore")
STORE_KEYS: Final = ("ssl.keystore.location", "ssl.truststore.location")
CLIENT_AUTH: Final = "ssl.client.auth"
INLINE_KEYS: Final = ("ssl.keystore.certificate.chain", "ssl.truststore.certificates")


def parse_certificates(pem: str, where: str) -> list[CertificateFacts]:
    """Parse all certificates in a PEM text; raise InvalidCertificate if one is malformed."""
    return [CertificateFacts(where, each.subject, each.not_after_s) for each in parse_pem_certificates(pem, where)]


def collect_config_facts(path: Path) -> tuple[ConfigFacts, NodeConfig | None]:
    """Return the facts about a config file, and the parsed config if it is valid."""
    raw = _read_toml(path)
    problems = [*_find_problems(raw)]
    config = None
    try:
        config = load_config(path, {})
    except ConfigError as error:
        if not problems:
            problems.append(str(error))
    facts = ConfigFacts(
        path=str(path),
        problems=tuple(problems),
        without_effect=tuple(_find_ineffective_keys(raw)),
        readable_by_others=_is_readable_by_others(path),
        has_secrets=_has_secrets(raw),
    )
    return (facts, None) if config is None else (_add_config_facts(facts, config, path.parent), config)


def _read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file, or an empty dict if the file is invalid.

    Loading the config reports the error.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _find_problems(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield all errors in a config file.

    A node that starts with the file reports only the first.
    """
    for key in raw:
        if key not in CONFIG_KEYS:
            yield f"unknown key {key!r}{format_spelling_suggestion(key, CONFIG_KEYS)}"
    broker = raw.get("broker")
    for name, value in (broker if isinstance(broker, dict) else {}).items():
        try:
            validate_static_config(name, str(value).lower() if isinstance(value, bool) else str(value))
        except ConfigError as error:
            yield str(error)


def _find_ineffective_keys(raw: Mapping[str, Any]) -> Iterator[str]:
    broker = raw.get("broker")
    for name in broker if isinstance(broker, dict) else {}:
        key = find_broker_key(name)
        if key is not None and key.kept and not name.startswith(("listener.name.", "ssl.")):
            yield name


def _is_readable_by_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & READABLE_BY_OTHERS)
    except OSError:
        return False


def _has_secrets(raw: Mapping[str, Any]) -> bool:
    broker = raw.get("broker")
    names = (*raw, *(broker if isinstance(broker, dict) else ()))
    return any(word in name.lower() for name in names for word in SECRET_WORDS)


def _add_config_facts(facts: ConfigFacts, config: NodeConfig, folder: Path) -> ConfigFacts:
    certificates, problems = _collect_certificates(config, folder)
    broker = config.broker
    return ConfigFacts(
        path=facts.path,
        problems=facts.problems,
        without_effect=facts.without_effect,
        readable_by_others=facts.readable_by_others,
        has_secrets=facts.has_secrets,
        listeners=tuple(collect_listener_facts(each, broker) for each in config.listeners),
        has_authorizer=bool(broker.get("authorizer.class.name")),
        allows_everyone=broker.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true",
        http=None if config.http is None else str(config.http),
        http_is_loopback=config.http is None or is_loopback(config.http.host),
        registry=None if config.registry is None else str(config.registry),
        registry_is_loopback=config.registry is None or is_loopback(config.registry.host),
        has_http_token=config.http_token is not None,
        has_http_tls=config.http_keystore is not None,
        peers=len(config.peers),
        peers_elsewhere=any(not is_loopback(peer.raft.host) for peer in config.peers),
        has_peer_tls=config.peer_keystore is not None,
        replication_factor=config.replication_factor,
        min_in_sync=config.min_insync_replicas,
        flush=config.flush,
        data_dir=str(config.data_dir),
        node_id=config.node_id,
        certificates=tuple(certificates),
        certificate_problems=tuple(problems),
    )


def collect_listener_facts(listener: ListenerConfig, broker: Mapping[str, str]) -> ListenerFacts:
    address = listener.advertised
    own = f"listener.name.{listener.name.lower()}.{CLIENT_AUTH}"
    auth = next((value for key, value in broker.items() if key.lower() == own), broker.get(CLIENT_AUTH, ""))
    return ListenerFacts(
        listener.name,
        listener.protocol,
        str(listener.address),
        is_loopback(listener.address.host),
        None if address is None else str(address),
        address is not None and is_loopback(address.host),
        None if address is None else _find_resolution_error(address.host),
        listener.protocol == "SSL" and auth.strip().lower() == "required",
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _find_resolution_error(host: str) -> str | None:
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _collect_certificates(config: NodeConfig, folder: Path) -> tuple[list[CertificateFacts], list[str]]:
    """Return the certificates of the config and the errors in their files.

    Paths are relative to the directory in which the node is started, which is unknown; the config file's directory is
    tried as well.
    """
    found: list[CertificateFacts] = []
    problems: list[str] = []
    named = {key: getattr(config, key) for key in STORES}
    named |= {key: value for key, value in config.broker.items() if key.endswith(STORE_KEYS)}
    for key, path in named.items():
        if path is None:
            continue
        place = path if Path(path).exists() else str(folder / path)
        try:
            found += parse_certificates(Path(place).read_text(encoding="ascii", errors="replace"), place)
        except PermissionError:
            continue  # only the node's user may read it
        except OSError as error:
            problems.append(f"{key} = {path!r}: {error.strerror or error}")
        except InvalidCertificate as error:
            problems.append(f"{key}: {error}")
    for key, text in config.broker.items():
        if key.endswith(INLINE_KEYS):
            try:
                found += parse_certificates(text.replace("\\n", "\n"), f"{key} of the config file")
            except InvalidCertificate as error:
                problems.append(str(error))
    return found, problems
