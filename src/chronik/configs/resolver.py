"""Resolution of config values: topic config, dynamic broker config, config file or default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, TypeVar, cast

import msgspec

from chronik.configs.broker_key_lookup import create_unknown_key, find_broker_key, iter_broker_keys
from chronik.configs.keys import BROKER_KEYS, LAG_BUDGET, TOPIC_KEYS, ConfigKey, ConfigType, UpdateMode
from chronik.configs.validation import validate_group_config, validate_static_config
from chronik.errors import check_invariant
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

DERIVED_CACHE_SIZE: Final = 1024
"""Maximum number of cached objects that are computed from topic configs. The cache is cleared when it is full."""


class ConfigSource(IntEnum):
    """Where a config value was set (topic, broker, config file or default), with the codes of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


class ConfigSynonym(msgspec.Struct, frozen=True):
    """A config that can supply another config's value, with its own value and source (a synonym in DescribeConfigs)."""

    name: str
    value: str
    source: ConfigSource
    unit: int = 1
    """Factor that converts the synonym's value to the unit of the described config, such as 60000 for minutes."""

    @property
    def converted_value(self) -> str:
        """Return the synonym's value in the unit of the described config."""
        if self.unit == 1:
            return self.value
        number = int(self.value)
        return str(number * self.unit) if number >= 0 else self.value


class ConfigEntry(msgspec.Struct, frozen=True):
    """A config as described to clients: the effective value, its source and its synonyms."""

    key: ConfigKey
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: list[ConfigSynonym] = msgspec.field(default_factory=list)
    """Every config that supplies a value for this config, in order of precedence."""


class _ResolvedCache:
    """Resolved config values of brokers and topics, cached until a dynamic broker config changes."""

    __slots__ = ("broker", "derived", "own", "shared", "topic")

    def __init__(self, own: Mapping[str, str] | None, shared: Mapping[str, str] | None) -> None:
        self.own = own
        self.shared = shared
        self.broker: dict[str, str] = {}
        self.topic: dict[str, str] = {}
        """Resolved values for a topic without configs of its own. Empty until the first such topic is resolved."""
        self.derived: dict[tuple[object, frozenset[tuple[str, str]]], object] = {}


class ConfigResolver:
    """The effective configs of topics, brokers and groups, resolved from the current image."""

    def __init__(self, store: MetadataStore, node_id: int, static: Mapping[str, str]) -> None:
        self._store = store
        self._node_id = node_id
        self._static = static
        self._cache = _ResolvedCache(None, None)
        for name, value in static.items():
            validate_static_config(name, value)

    # --- values ---

    def broker_value(self, name: str) -> str:
        """Return the value of a broker config on this node."""
        known = self._get_current_cache().broker
        value = known.get(name)
        if value is None:
            value = known[name] = next(self._iter_broker_synonyms(BROKER_KEYS[name], self._node_id)).converted_value
        return value

    def find_broker_value(self, name: str) -> str | None:
        """Return the value of a broker config on this node, or None if it has neither a value nor a default."""
        return next((each.value for each in self._iter_broker_synonyms(BROKER_KEYS[name], self._node_id)), None)

    def broker_int(self, name: str) -> int:
        return int(self.broker_value(name))

    def broker_flag(self, name: str) -> bool:
        return self.broker_value(name).strip().lower() == "true"

    def lag_budget(self, group_id: str) -> int:
        """Return the lag in records above which a growing lag of a group is a problem."""
        own = self._store.image.group_configs.get(group_id, {}).get(LAG_BUDGET)
        return self.broker_int(LAG_BUDGET) if own is None else int(own)

    def broker_list(self, key: ConfigKey, broker_id: int) -> str:
        """Return the elements of a list config for one broker, or of its cluster-wide default (CLUSTER_DEFAULT)."""
        return next((synonym.value for synonym in self._iter_broker_synonyms(key, broker_id)), "")

    def topic_value(self, configs: Mapping[str, str], name: str) -> str:
        """Return the effective value of a topic config. `configs` are the configs that are set on the topic itself."""
        own = configs.get(name)
        if own is not None:
            return own
        key = TOPIC_KEYS[name]
        if key.synonym is not None:
            return self.broker_value(key.synonym)
        check_invariant(key.default is not None, f"{name} has no default")
        return cast(str, key.default)

    def topic_values(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        """Return the effective values of all topic configs. `configs` are the configs set on the topic itself."""
        defaults = self._get_current_cache().topic
        if not defaults:
            defaults.update((name, self.topic_value({}, name)) for name, key in TOPIC_KEYS.items() if not key.internal)
        return {**defaults, **configs}

    def get_or_compute(self, make: Callable[[ConfigResolver, Mapping[str, str]], T], configs: Mapping[str, str]) -> T:
        """Return an object that `make` computes from topic configs, cached for all topics with the same configs.

        Thousands of topics may change in one event-loop iteration. The result is shared and must not be modified.
        `make` must be a plain function.
        """
        derived = self._get_current_cache().derived
        key = make, frozenset(configs.items())
        if key not in derived:
            if len(derived) >= DERIVED_CACHE_SIZE:
                derived.clear()
            derived[key] = make(self, configs)
        return cast(T, derived[key])

    def _get_current_cache(self) -> _ResolvedCache:
        dynamic = self._store.image.broker_configs
        own, shared = dynamic.get(self._node_id), dynamic.get(CLUSTER_DEFAULT)
        if self._cache.own is not own or self._cache.shared is not shared:
            self._cache = _ResolvedCache(own, shared)
        return self._cache

    def check_topic_consistency(self, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG if individually valid topic configs contradict each other."""
        names = "min.compaction.lag.ms", "max.compaction.lag.ms"
        shortest, longest = (int(self.topic_value(configs, name)) for name in names)
        if shortest > longest:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{names[0]} = {shortest} must not exceed {names[1]} = {longest}"
            )

    # --- descriptions ---

    def describe_topic(self, configs: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Yield the described configs of a topic."""
        for key in TOPIC_KEYS.values():
            if not key.internal or key.name in configs:
                yield _build_entry(key, list(self._iter_topic_synonyms(key, configs)), read_only=False)

    def describe_broker(self, broker_id: int) -> Iterator[ConfigEntry]:
        """Yield the described configs of a broker."""
        dynamic = self._store.image.broker_configs
        other_names = {*dynamic.get(broker_id, ()), *dynamic.get(CLUSTER_DEFAULT, ())}
        if broker_id == self._node_id:
            other_names.update(self._static)
        for key in iter_broker_keys():
            other_names.discard(key.name)
            synonyms = list(self._iter_broker_synonyms(key, broker_id))
            if not key.internal or any(synonym.source is not ConfigSource.DEFAULT for synonym in synonyms):
                yield _build_entry(key, synonyms, read_only=key.update_mode is UpdateMode.READ_ONLY)
        for name in sorted(other_names):
            key = find_broker_key(name) or create_unknown_key(name)
            yield _build_entry(
                key, list(self._iter_broker_synonyms(key, broker_id)), read_only=key.update_mode is UpdateMode.READ_ONLY
            )

    def describe_cluster_default(self) -> Iterator[ConfigEntry]:
        """Yield the dynamic configs that are set as cluster-wide defaults."""
        for name, value in sorted(self._store.image.broker_configs.get(CLUSTER_DEFAULT, {}).items()):
            key = find_broker_key(name) or create_unknown_key(name)
            synonym = ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
            yield _build_entry(key, [synonym], read_only=key.type is ConfigType.UNKNOWN)

    def describe_group(self, group_id: str) -> Iterator[ConfigEntry]:
        """Yield the described configs of a group."""
        from chronik.configs.group_keys import GROUP_KEYS

        configs = self._store.image.group_configs.get(group_id, {})
        for key in GROUP_KEYS.values():
            yield _build_entry(key, list(self._iter_group_synonyms(key, configs)), read_only=False)

    def check_group_configs(self, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG if the effective configs of a group are invalid or exceed the brokers' limits."""
        from chronik.configs.group_keys import GROUP_KEYS, GROUP_TYPES, find_group_config_bounds

        for name, value in configs.items():
            validate_group_config(name, value)
            for bound, sign in zip(find_group_config_bounds(GROUP_KEYS[name]), (1, -1), strict=True):
                if bound is not None and sign * int(value) < sign * int(self._resolve_broker_value(bound)):
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} = {value} exceeds the bound of {bound.name}")
        for kind in GROUP_TYPES:
            names = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
            heartbeat, session = (
                int(next(self._iter_group_synonyms(GROUP_KEYS[name], configs)).value) for name in names
            )
            if heartbeat >= session:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{names[1]} must be greater than {names[0]}")

    def _resolve_broker_value(self, key: ConfigKey) -> str:
        return next(self._iter_broker_synonyms(key, self._node_id)).value

    def _iter_group_synonyms(self, key: ConfigKey, configs: Mapping[str, str]) -> Iterator[ConfigSynonym]:
        own = configs.get(key.name)
        if own is not None:
            yield ConfigSynonym(key.name, own, ConfigSource.DYNAMIC_GROUP)
        broker_default = find_broker_key(key.synonym) if key.synonym is not None else None
        if broker_default is not None:
            yield from self._iter_broker_synonyms(broker_default, self._node_id)
        elif key.default is not None:
            yield ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT)

    def _iter_topic_synonyms(self, key: ConfigKey, configs: Mapping[str, str]) -> Iterator[ConfigSynonym]:
        own = configs.get(key.name)
        if own is not None:
            yield ConfigSynonym(key.name, own, ConfigSource.DYNAMIC_TOPIC)
        if key.synonym is not None:
            yield from self._iter_broker_synonyms(BROKER_KEYS[key.synonym], self._node_id)
        elif key.default is not None:
            yield ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT)

    def _iter_broker_synonyms(self, key: ConfigKey, broker_id: int, unit: int = 1) -> Iterator[ConfigSynonym]:
        """Yield each source of a broker config's value, by precedence. Other nodes' config files are unknown."""
        dynamic = self._store.image.broker_configs
        own = dynamic.get(broker_id, {}).get(key.name)
        if own is not None:
            yield ConfigSynonym(key.name, own, ConfigSource.DYNAMIC_BROKER, unit)
        shared = dynamic.get(CLUSTER_DEFAULT, {}).get(key.name)
        if shared is not None:
            yield ConfigSynonym(key.name, shared, ConfigSource.DYNAMIC_DEFAULT_BROKER, unit)
        if broker_id == self._node_id and key.name in self._static:
            yield ConfigSynonym(key.name, self._static[key.name], ConfigSource.STATIC_BROKER, unit)
        for fallback in key.fallbacks:
            yield from self._iter_broker_synonyms(BROKER_KEYS[fallback.name], broker_id, fallback.unit)
        if key.default is not None:
            yield ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT, unit)


def _build_entry(key: ConfigKey, synonyms: list[ConfigSynonym], *, read_only: bool) -> ConfigEntry:
    if not synonyms:
        return ConfigEntry(key, None, ConfigSource.DEFAULT, read_only)
    return ConfigEntry(key, synonyms[0].converted_value, synonyms[0].source, read_only, synonyms)
