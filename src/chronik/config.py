"""Node configuration: a TOML file, CHRONIK_<KEY> environment variables and command-line options."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from chronik.errors import ConfigError
from chronik.escaping import truncate_text
from chronik.listeners import (
    ADVERTISED_LISTENERS,
    LISTENERS,
    PLAINTEXT,
    ListenerConfig,
    expand_short_form_configs,
    parse_listeners,
)
from chronik.listeners import VALUE_CHARACTERS_MAX as VALUE_CHARACTERS_MAX
from chronik.listeners import Address as Address
from chronik.wording import format_spelling_suggestion

FLUSH_MODES = ("group", "os")
LOG_FORMATS = ("text", "json")

SECRET_WORDS = ("secret", "secert", "password", "passphrase", "token", "jaas")
"""Words in a config key's name that mark its value as secret, including a common misspelling."""

SECRET_FIELDS = ("cluster_secret", "http_token", "oidc_client_secret", "oidc_cookie_secret")
"""Fields of NodeConfig that are never logged."""

DEFAULT_KAFKA_ADDRESS = Address("127.0.0.1", 9092)
DEFAULT_HTTP_ADDRESS = Address("127.0.0.1", 6092)


class PeerConfig(NamedTuple):
    """A node of the cluster in a `[[peers]]` table of the config file. The local node has a table as well."""

    id: int
    kafka: Address
    raft: Address
    voter: bool | None = None
    """Whether the node is a voter when the cluster is bootstrapped; if None, `initial_voters` decides."""


def initial_voters(peers: Sequence[PeerConfig]) -> frozenset[int]:
    """Return the node ids of the first Raft voters: those configured or, by default, up to five with the lowest ids.

    The default number of voters is odd (one, three or five): an even number tolerates no more failures than one less.
    """
    if any(peer.voter is not None for peer in peers):
        return frozenset(peer.id for peer in peers if peer.voter is not False)
    ids = sorted(peer.id for peer in peers)
    return frozenset(ids[: 5 if len(ids) >= 5 else 3])


class NodeConfig(msgspec.Struct, frozen=True):
    """The configuration of a node. docs/reference/configuration.md is generated from these fields."""

    node_id: int = 1
    """Id of the node, which is also its broker id. It is unique in the cluster and never changes."""
    data_dir: Path = Path("data")
    """Directory in which the node stores all its data. It must belong to this node only."""
    kafka: Address = DEFAULT_KAFKA_ADDRESS
    """Address of the Kafka listener. For several listeners, set "listeners" under `broker` instead."""
    http: Address | None = None
    """Address of the HTTP server (console, admin API, health, metrics, status); "off" disables it. Without it,
    `chronik start` uses 127.0.0.1:6092 if that address is free."""
    http_is_default: bool = False
    """Whether the HTTP address is the default. The node then starts without HTTP if the port is in use."""
    http_token: str | None = None
    """Bearer token that HTTP clients must send ("Authorization: Bearer …"). Without a token, an HTTP server on an
    address other than loopback serves only /healthz."""
    http_keystore: str | None = None
    """PEM file with the private key and certificate of the HTTP server; without it, the server uses plain HTTP."""
    http_truststore: str | None = None
    """PEM file with the CAs of client certificates that grant read access over HTTP without a token."""
    oidc_issuer: str | None = None
    """URL of an OpenID Connect provider, which enables single sign-on in the console. Its configuration is read from
    /.well-known/openid-configuration below this URL."""
    oidc_client_id: str | None = None
    """Id of the console as a client of the OpenID Connect provider."""
    oidc_client_secret: str | None = None
    """Secret of the console as a client of the OpenID Connect provider; without it, the console is a public client."""
    oidc_redirect_url: str | None = None
    """URL to which the OpenID Connect provider redirects users after their login: the console's URL with the path
    /login/oidc/callback, exactly as registered with the provider."""
    oidc_cookie_secret: str | None = None
    """Secret that encrypts the state of logins in cookies: at least 32 random characters, the same on all nodes.
    Without it, the provider must redirect users to the node where their login started."""
    oidc_scopes: str = "openid profile email"
    """Scopes that the console requests from the OpenID Connect provider, separated by spaces."""
    oidc_principal_claim: str = "sub"
    """Claim of the ID token that contains the user name, such as "email" or "preferred_username"."""
    oidc_principal_rules: str = "DEFAULT"
    """Rules that map the claim to the user name of a principal, with the syntax of `ssl.principal.mapping.rules`. Users
    whose claim matches no rule cannot log in."""
    registry: Address | None = None
    """Address of a listener that serves only the schema registry, at the root path; default: none. The HTTP server
    serves the registry under /registry. `http_token`, `http_keystore` and `http_truststore` apply to both."""
    advertised: Address | None = None
    """Address that is advertised to clients; default: the `kafka` address with the bound port."""
    rack: str | None = None
    """Rack or availability zone of the node. The replicas of a partition are spread across racks."""
    flush: str = "group"
    """"group": records are synced to disk before they are acknowledged, many requests per sync. "os": records are
    acknowledged in the page cache, as in Kafka."""
    replication_factor: int = 1
    """Default replication factor of new topics, and replication factor of the internal topics of a cluster."""
    min_insync_replicas: int = 1
    """Default of `min.insync.replicas`: the number of in-sync replicas that acks=all requires."""
    log_level: str = "info"
    """Minimum level of log lines: "debug", "info", "warning" or "error"."""
    log_format: str = "text"
    """"text": human-readable log lines. "json": one JSON object per line."""
    peers: tuple[PeerConfig, ...] = ()
    """Nodes that bootstrap the cluster. Afterwards, the metadata log defines the members. Empty: standalone mode."""
    cluster_name: str = "chronik"
    """Name of the cluster. Nodes with different names reject each other."""
    cluster_secret: str | None = None
    """Secret with which nodes authenticate each other. Without it, peers must use loopback addresses."""
    peer_keystore: str | None = None
    """PEM file with this node's private key and certificate for TLS between nodes; without it, no TLS is used."""
    peer_truststore: str | None = None
    """PEM file with the CAs that sign the nodes' certificates."""
    peer_tls: str = "required"
    """With a keystore: "required" rejects peers without TLS, "allowed" accepts them while a cluster is migrated."""
    broker_session_ms: int = 3_000
    """Session timeout in milliseconds: a broker without a successful heartbeat for this long is fenced."""
    metadata_snapshot_entries: int = 100_000
    """Number of commands after which the node writes a snapshot of the metadata log."""
    metadata_snapshot_bytes: int = 64 * 1024 * 1024
    """Bytes of commands after which the node writes a snapshot of the metadata log."""
    metadata_kept_bytes: int = 8 * 1024 * 1024
    """Bytes of commands that are retained before a snapshot, for nodes that are slightly behind."""
    offset_acks: str = "all"
    """When an offset commit is acknowledged: after replication ("all"), on the leader's disk ("leader"), or at receipt
    ("none")."""
    read_quorum: bool = False
    """Whether metadata requests fail if no majority confirms that the metadata is current. If false, a node without a
    majority still returns brokers, configs and topics, but no leaders."""
    broker: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kafka broker configs under Kafka's own names, such as "num.partitions"."""

    def __repr__(self) -> str:
        """Return the fields without secrets, so that a logged config reveals none."""
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in SECRET_FIELDS)
        return f"NodeConfig({', '.join(fields)})"

    @property
    def listeners(self) -> tuple[ListenerConfig, ...]:
        """Return the listener configs, the main listener first.

        Raises:
            ConfigError: The listeners are misconfigured.
        """
        short = {LISTENERS: f"{PLAINTEXT}://{self.kafka}"}
        if LISTENERS not in self.broker and ADVERTISED_LISTENERS not in self.broker:
            short = expand_short_form_configs(self.kafka, self.advertised)
        return parse_listeners(short | dict(self.broker))


def load_config(
    path: Path | None,
    environment: Mapping[str, str] | None = None,
    *,
    http_default: Address | None = None,
    **overrides: Any,
) -> NodeConfig:
    """Load the configuration; later sources override earlier ones: defaults, file, environment, command line.

    Args:
        path: The TOML file, or None.
        environment: The environment variables; default: `os.environ`.
        http_default: The HTTP address if no source sets one.
        overrides: The command-line options; None values are ignored.

    Raises:
        ConfigError: A value is invalid; the message names the source, the key and the expected value.
    """
    environment = os.environ if environment is None else environment
    known = set(CONFIG_KEYS) - {"broker", "peers"}
    found = {key: environment[name] for key in sorted(known) if (name := f"CHRONIK_{key.upper()}") in environment}
    sources: list[tuple[Mapping[str, Any], str]] = [(_read_toml(path), str(path))] if path is not None else []
    sources.append((found, "environment CHRONIK_…"))
    sources.append(({key: value for key, value in overrides.items() if value is not None}, "command line"))
    config = NodeConfig()
    for values, source in sources:
        config = _merge_values(config, values, source)
    if config.peers and config.node_id not in {peer.id for peer in config.peers}:
        raise ConfigError(f"node_id = {config.node_id}: expected one of the ids in [[peers]]")
    if (config.peer_keystore is None) != (config.peer_truststore is None):
        given, missing = ("keystore", "truststore") if config.peer_keystore else ("truststore", "keystore")
        value = config.peer_keystore or config.peer_truststore
        raise ConfigError(f"peer_{given} = {value!r}: requires peer_{missing}")
    if config.http_truststore is not None and config.http_keystore is None:
        raise ConfigError(f"http_truststore = {config.http_truststore!r}: requires http_keystore")
    given_keys = {key for values, _ in sources for key in values}
    if http_default is not None and "http" not in given_keys:
        config = replace(config, http=http_default, http_is_default=True)
    return _apply_main_listener_address(config, given_keys)


def _apply_main_listener_address(config: NodeConfig, given: Collection[str]) -> NodeConfig:
    """Return the config with the address of its main Kafka listener.

    Raises:
        ConfigError: The listeners are misconfigured.
    """
    for key, others in {"kafka": {LISTENERS}, "advertised": {LISTENERS, ADVERTISED_LISTENERS}}.items():
        if key in given and (conflicting := sorted(others & config.broker.keys())):
            raise ConfigError(
                f"{key} = {str(getattr(config, key))!r}: cannot be combined with {conflicting[0]} in [broker]"
            )
    main = config.listeners[0]
    return replace(config, kafka=main.address) if LISTENERS in config.broker else config


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # imported on use: most brokers start without a config file

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        repr(found)  # raises ValueError for an integer that is too long to be formatted in an error message
        return found
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except ValueError:
        raise ConfigError(f"{path}: not valid TOML: a number has thousands of digits") from None


def _merge_values(config: NodeConfig, values: Mapping[str, Any], source: str) -> NodeConfig:
    changes: dict[str, Any] = {}
    for key, value in values.items():
        reader = _READERS.get(key)
        if reader is None:
            hint = format_spelling_suggestion(key, _READERS) or f"; expected one of {', '.join(CONFIG_KEYS)}"
            raise ConfigError(f"{source}: unknown key {key!r}{hint}")
        try:
            changes[key] = reader(value)
        except ValueError as error:
            # `from None`: a traceback with the cause would quote a secret value.
            raise ConfigError(f"{source}: {key} = {_format_invalid_value(key, value)}: expected {error}") from None
    return replace(config, **changes)


def _format_invalid_value(key: str, value: Any) -> str:
    """Format an invalid config value for an error message, masking secrets."""
    return truncate_text(repr(_redact_value(key, value)), VALUE_CHARACTERS_MAX)


def _redact_value(key: str, value: Any) -> Any:
    if any(word in key.lower() for word in SECRET_WORDS):
        return "…"
    if isinstance(value, Mapping):
        return {str(inner): _redact_value(str(inner), each) for inner, each in value.items()}
    if isinstance(value, list):
        return [_redact_value(key, each) for each in value]
    return value


def _create_int_parser(low: int, high: int) -> Any:
    def read(value: Any) -> int:
        expected = f"a whole number from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(expected)
        try:
            number = int(value)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= number <= high:
            raise ValueError(expected)
        return number

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _create_choice_parser(*choices: str) -> Any:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(" or ".join(f'"{choice}"' for choice in choices))
        return str(value)

    return read


def _parse_address(value: Any) -> Address:
    return value if isinstance(value, Address) else Address.parse(_text(value))


def _flag(value: Any) -> bool:
    if value in (True, "true", "false", False):
        return value in (True, "true")
    raise ValueError("true or false")


def _parse_peers(value: Any) -> tuple[PeerConfig, ...]:
    expected = "[[peers]] tables, each with id, kafka and raft, and optionally voter = true or false"
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(expected)
    peers = []
    for peer in value:
        if isinstance(peer, PeerConfig):
            peers.append(peer)
        elif isinstance(peer, Mapping) and set(peer) - {"voter"} == {"id", "kafka", "raft"}:
            node_id = _create_int_parser(0, 2**31 - 1)(peer["id"])
            voter = _flag(peer["voter"]) if "voter" in peer else None
            peers.append(PeerConfig(node_id, _parse_address(peer["kafka"]), _parse_address(peer["raft"]), voter))
        else:
            raise ValueError(expected)
    if len({peer.id for peer in peers}) != len(peers):
        raise ValueError(f"{expected}, with unique ids")
    if peers and not initial_voters(peers):
        raise ValueError("[[peers]] tables with at least one voter")
    return tuple(peers)


def _parse_broker_configs(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError('a table of Kafka\'s broker configs, such as "num.partitions" = 3')
    return {str(name): _format_config_value(given) for name, given in value.items()}


def _format_config_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise ValueError('Kafka\'s own names in quotes, such as "num.partitions" = 3')


_READERS: dict[str, Any] = {
    "node_id": _create_int_parser(0, 2**31 - 1),
    "data_dir": lambda value: Path(value if isinstance(value, Path) else _text(value)),
    "kafka": _parse_address,
    "advertised": _parse_address,
    "rack": _text,
    "flush": _create_choice_parser(*FLUSH_MODES),
    "replication_factor": _create_int_parser(1, 32767),
    "min_insync_replicas": _create_int_parser(1, 32767),
    "log_level": _create_choice_parser("debug", "info", "warning", "error"),
    "log_format": _create_choice_parser(*LOG_FORMATS),
    "http": lambda value: None if value == "off" else _parse_address(value),
    "registry": lambda value: None if value == "off" else _parse_address(value),
    "peers": _parse_peers,
    "cluster_name": _text,
    "cluster_secret": _text,
    "http_token": _text,
    "http_keystore": _text,
    "http_truststore": _text,
    "oidc_issuer": _text,
    "oidc_client_id": _text,
    "oidc_client_secret": _text,
    "oidc_redirect_url": _text,
    "oidc_cookie_secret": _text,
    "oidc_scopes": _text,
    "oidc_principal_claim": _text,
    "oidc_principal_rules": _text,
    "peer_keystore": _text,
    "peer_truststore": _text,
    "peer_tls": _create_choice_parser("required", "allowed"),
    "broker_session_ms": _create_int_parser(100, 600_000),
    "metadata_snapshot_entries": _create_int_parser(1, 2**31 - 1),
    "metadata_snapshot_bytes": _create_int_parser(1, 2**31 - 1),
    "metadata_kept_bytes": _create_int_parser(0, 2**31 - 1),
    "offset_acks": _create_choice_parser("all", "leader", "none"),
    "read_quorum": _flag,
    "broker": _parse_broker_configs,
}
CONFIG_KEYS: Final = tuple(sorted(_READERS))
"""The keys of a config file, sorted."""
