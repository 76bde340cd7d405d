"""A node's configuration: one TOML file, every key also in the environment as CHRONIK_<KEY>."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from chronik.errors import ConfigError
from chronik.listeners import ADVERTISED, LISTENERS, PLAINTEXT, ListenerConfig, named_listeners, short_form
from chronik.listeners import VALUE_CHARACTERS_MAX as VALUE_CHARACTERS_MAX
from chronik.listeners import Address as Address
from chronik.shown import shortened
from chronik.wording import suggestion

FLUSH_MODES = ("group", "os")
LOG_FORMATS = ("text", "json")

SECRET_WORDS = ("secret", "secert", "password", "passphrase", "token", "jaas")
"""A key that contains one of these is a secret; some of Kafka's configs do, and so does a common slip."""

SECRETS = ("cluster_secret", "http_token")

DEFAULT_KAFKA_ADDRESS = Address("127.0.0.1", 9092)
DEFAULT_HTTP_ADDRESS = Address("127.0.0.1", 6092)


class Peer(NamedTuple):
    """A node of the cluster, as `[[peers]]` names it; this node itself is among them."""

    id: int
    kafka: Address
    raft: Address
    voter: bool | None = None
    """Whether it votes in the cluster that is founded; None where the file leaves that open: see `first_voters`."""


def first_voters(peers: Sequence[Peer]) -> frozenset[int]:
    """Returns who votes first. Where no table says anything: all of up to three, else the first five by id, or three of
    four. An even number of voters outlives no more than one less."""
    if any(peer.voter is not None for peer in peers):
        return frozenset(peer.id for peer in peers if peer.voter is not False)
    ids = sorted(peer.id for peer in peers)
    return frozenset(ids[: 5 if len(ids) >= 5 else 3])


class NodeConfig(msgspec.Struct, frozen=True):
    node_id: int = 1
    data_dir: Path = Path("data")
    kafka: Address = DEFAULT_KAFKA_ADDRESS
    """Where clients connect; when `broker` has Kafka's "listeners", it is the main one of those."""
    http: Address | None = None
    """The console and its API, health, metrics and status; "off" for none. `chronik start` has them at
    DEFAULT_HTTP_ADDRESS unless something is said."""
    http_is_default: bool = False
    """Whether nobody has said where: a port that is taken is not missed then."""
    http_token: str | None = None
    """What whoever asks there has to show ("Authorization: Bearer …"). On other addresses than loopback nothing but
    /healthz is answered without one."""
    http_keystore: str | None = None
    """A PEM file with the key and the certificate of the HTTP port; none: it is spoken to without TLS."""
    http_truststore: str | None = None
    """A PEM file with the CAs that sign certificates of who may look there, without a token."""
    advertised: Address | None = None
    """What clients are told to connect to; unless set, the `kafka` address with the port that was bound."""
    rack: str | None = None
    flush: str = "group"
    """"group": acknowledged means fdatasync'ed, many requests per sync. "os": left to the page cache, as Kafka does."""
    replication_factor: int = 1
    min_insync_replicas: int = 1
    log_level: str = "info"
    log_format: str = "text"
    """"text": lines for people. "json": an object a line, for programs."""
    peers: tuple[Peer, ...] = ()
    """Founds the cluster; afterwards its log says who belongs to it, and where. Without peers the node stands alone."""
    cluster_name: str = "chronik"
    cluster_secret: str | None = None
    """What nodes show each other; without one, peers must be on loopback addresses."""
    peer_keystore: str | None = None
    """A PEM file with this node's key and certificate for TLS between nodes; none: they speak without TLS."""
    peer_truststore: str | None = None
    """A PEM file with the CAs that sign nodes' certificates."""
    peer_tls: str = "required"
    """With a keystore: whether peers may also speak without TLS ("allowed"), while a cluster changes over."""
    broker_session_ms: int = 3_000
    """A broker that was not heard from for this long is offline, and knows it."""
    metadata_snapshot_entries: int = 100_000
    metadata_snapshot_bytes: int = 64 * 1024 * 1024
    """A snapshot of the metadata is taken after this many commands, or this many bytes of them."""
    metadata_kept_bytes: int = 8 * 1024 * 1024
    """Commands kept before a snapshot: a node that missed no more than these is spared the snapshot."""
    offset_acks: str = "all"
    """A commit of offsets is answered when it is agreed ("all"), on the leader's disk ("leader"), at once ("none")."""
    read_quorum: bool = False
    """Whether metadata is read only after a majority confirmed that it is fresh."""
    broker: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kafka's own broker configs by their own names, such as "num.partitions"."""

    def __repr__(self) -> str:
        """Without its secrets: they must not get into a log with the rest."""
        told = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in SECRETS)
        return f"NodeConfig({', '.join(told)})"

    @property
    def listeners(self) -> tuple[ListenerConfig, ...]:
        """Returns them, the main one first. Raises ConfigError."""
        short = {LISTENERS: f"{PLAINTEXT}://{self.kafka}"}
        if LISTENERS not in self.broker and ADVERTISED not in self.broker:
            short = short_form(self.kafka, self.advertised)
        return named_listeners(short | dict(self.broker))


def load_config(
    path: Path | None,
    environment: Mapping[str, str] | None = None,
    *,
    http_default: Address | None = None,
    **overrides: Any,
) -> NodeConfig:
    """Reads the defaults, then the file, then the environment, then what was given on the command line.
    `http_default` is where HTTP is served if none of them says anything of it.

    Raises ConfigError with the source, the key and what is expected there.
    """
    environment = os.environ if environment is None else environment
    known = set(CONFIG_KEYS) - {"broker", "peers"}
    found = {key: environment[name] for key in sorted(known) if (name := f"CHRONIK_{key.upper()}") in environment}
    sources: list[tuple[Mapping[str, Any], str]] = [(_read_toml(path), str(path))] if path is not None else []
    sources.append((found, "environment CHRONIK_…"))
    sources.append(({key: value for key, value in overrides.items() if value is not None}, "command line"))
    config = NodeConfig()
    for values, source in sources:
        config = _merge(config, values, source)
    if config.peers and config.node_id not in {peer.id for peer in config.peers}:
        raise ConfigError(f"node_id = {config.node_id}: expected one of the ids in [[peers]]")
    if (config.peer_keystore is None) != (config.peer_truststore is None):
        given, missing = ("keystore", "truststore") if config.peer_keystore else ("truststore", "keystore")
        value = config.peer_keystore or config.peer_truststore
        raise ConfigError(f"peer_{given} = {value!r}: expected peer_{missing} beside it")
    if config.http_truststore is not None and config.http_keystore is None:
        raise ConfigError(f"http_truststore = {config.http_truststore!r}: expected http_keystore beside it")
    said = {key for values, _ in sources for key in values}
    if http_default is not None and "http" not in said:
        config = replace(config, http=http_default, http_is_default=True)
    return _with_listeners(config, said)


def _with_listeners(config: NodeConfig, given: Collection[str]) -> NodeConfig:
    """Raises ConfigError."""
    for key, others in {"kafka": {LISTENERS}, "advertised": {LISTENERS, ADVERTISED}}.items():
        if key in given and (beside := sorted(others & config.broker.keys())):
            raise ConfigError(f"{key} = {str(getattr(config, key))!r}: expected no {beside[0]} in [broker] beside it")
    main = config.listeners[0]
    return replace(config, kafka=main.address) if LISTENERS in config.broker else config


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib  # most brokers start without a file, and sooner without this

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        repr(found)  # raises ValueError where it could not be shown
        return found
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except ValueError:
        raise ConfigError(f"{path}: not valid TOML: a number has thousands of digits") from None


def _merge(config: NodeConfig, values: Mapping[str, Any], source: str) -> NodeConfig:
    changes: dict[str, Any] = {}
    for key, value in values.items():
        reader = _READERS.get(key)
        if reader is None:
            meant = suggestion(key, _READERS) or f"; expected one of {', '.join(CONFIG_KEYS)}"
            raise ConfigError(f"{source}: unknown key {key!r}{meant}")
        try:
            changes[key] = reader(value)
        except ValueError as error:
            # Without its cause, too: a traceback would quote the value.
            raise ConfigError(f"{source}: {key} = {_shown(key, value)}: expected {error}") from None
    return replace(config, **changes)


def _shown(key: str, value: Any) -> str:
    """Shows a wrong value without its secrets. In TOML a secret below [[peers]] belongs to a peer."""
    return shortened(repr(_redacted(key, value)), VALUE_CHARACTERS_MAX)


def _redacted(key: str, value: Any) -> Any:
    if any(word in key.lower() for word in SECRET_WORDS):
        return "…"
    if isinstance(value, Mapping):
        return {str(inner): _redacted(str(inner), each) for inner, each in value.items()}
    if isinstance(value, list):
        return [_redacted(key, each) for each in value]
    return value


def _integer(low: int, high: int) -> Any:
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


def _one_of(*choices: str) -> Any:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(" or ".join(f'"{choice}"' for choice in choices))
        return str(value)

    return read


def _address(value: Any) -> Address:
    return value if isinstance(value, Address) else Address.parse(_text(value))


def _flag(value: Any) -> bool:
    if value in (True, "true", "false", False):
        return value in (True, "true")
    raise ValueError("true or false")


def _peers(value: Any) -> tuple[Peer, ...]:
    expected = "[[peers]] tables, each with id, kafka and raft, and voter = true or false if you like"
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(expected)
    peers = []
    for peer in value:
        if isinstance(peer, Peer):
            peers.append(peer)
        elif isinstance(peer, Mapping) and set(peer) - {"voter"} == {"id", "kafka", "raft"}:
            node_id = _integer(0, 2**31 - 1)(peer["id"])
            voter = _flag(peer["voter"]) if "voter" in peer else None
            peers.append(Peer(node_id, _address(peer["kafka"]), _address(peer["raft"]), voter))
        else:
            raise ValueError(expected)
    if len({peer.id for peer in peers}) != len(peers):
        raise ValueError(f"{expected}, and no id twice")
    if peers and not first_voters(peers):
        raise ValueError("[[peers]] tables, of which one at least is a voter")
    return tuple(peers)


def _broker_configs(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError('a table of Kafka\'s broker configs, such as "num.partitions" = 3')
    return {str(name): _config_text(given) for name, given in value.items()}


def _config_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise ValueError('Kafka\'s own names in quotes, such as "num.partitions" = 3')


_READERS: dict[str, Any] = {
    "node_id": _integer(0, 2**31 - 1),
    "data_dir": lambda value: Path(value if isinstance(value, Path) else _text(value)),
    "kafka": _address,
    "advertised": _address,
    "rack": _text,
    "flush": _one_of(*FLUSH_MODES),
    "replication_factor": _integer(1, 32767),
    "min_insync_replicas": _integer(1, 32767),
    "log_level": _one_of("debug", "info", "warning", "error"),
    "log_format": _one_of(*LOG_FORMATS),
    "http": lambda value: None if value == "off" else _address(value),
    "peers": _peers,
    "cluster_name": _text,
    "cluster_secret": _text,
    "http_token": _text,
    "http_keystore": _text,
    "http_truststore": _text,
    "peer_keystore": _text,
    "peer_truststore": _text,
    "peer_tls": _one_of("required", "allowed"),
    "broker_session_ms": _integer(100, 600_000),
    "metadata_snapshot_entries": _integer(1, 2**31 - 1),
    "metadata_snapshot_bytes": _integer(1, 2**31 - 1),
    "metadata_kept_bytes": _integer(0, 2**31 - 1),
    "offset_acks": _one_of("all", "leader", "none"),
    "read_quorum": _flag,
    "broker": _broker_configs,
}
CONFIG_KEYS: Final = tuple(sorted(_READERS))
"""The keys of a config file."""
