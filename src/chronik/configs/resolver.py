"""Which value a config key has, and who gives it: the topic, a dynamic broker config, the file, or the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, TypeVar, cast

import msgspec

from chronik.configs.checking import check_group_config, check_static
from chronik.configs.keys import BROKER_KEYS, TOPIC_KEYS, ConfigKey, ConfigType, Scope
from chronik.configs.known import all_broker_keys, broker_key, stranger
from chronik.errors import invariant
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

DERIVED_KEPT_MAX: Final = 1024
"""Things that are made of a topic's configs, and kept for all topics with equal ones. Most clusters have a handful.
Beyond it all of them go, and are made again as needed."""


class ConfigSource(IntEnum):
    """As DescribeConfigs numbers them."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


class Synonym(msgspec.Struct, frozen=True):
    name: str
    value: str
    source: ConfigSource
    unit: int = 1
    """What its value is multiplied by, to be one of the key that it stands for."""

    @property
    def in_units_of_the_key(self) -> str:
        if self.unit == 1:
            return self.value
        number = int(self.value)
        return str(number * self.unit) if number >= 0 else self.value


class ConfigEntry(msgspec.Struct, frozen=True):
    key: ConfigKey
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: list[Synonym] = msgspec.field(default_factory=list)
    """Every place that gives this key a value, the one that holds first."""


class _Known:
    """What was found out while the broker had these dynamic configs. A change replaces them: see `ImageWriter`."""

    __slots__ = ("broker", "derived", "own", "shared", "topic")

    def __init__(self, own: Mapping[str, str] | None, shared: Mapping[str, str] | None) -> None:
        self.own = own
        self.shared = shared
        self.broker: dict[str, str] = {}
        self.topic: dict[str, str] = {}
        """All that a topic without configs of its own has; empty until it is asked for."""
        self.derived: dict[tuple[object, frozenset[tuple[str, str]]], object] = {}


class ConfigResolver:
    """Resolves against the image as it is at each call, so that a change holds at once."""

    def __init__(self, store: MetadataStore, node_id: int, static: Mapping[str, str]) -> None:
        self._store = store
        self._node_id = node_id
        self._static = static
        self._known_before = _Known(None, None)
        for name, value in static.items():
            check_static(name, value)

    # Values

    def broker(self, name: str) -> str:
        known = self._known().broker
        value = known.get(name)
        if value is None:
            value = known[name] = next(self._broker_values(BROKER_KEYS[name], self._node_id)).in_units_of_the_key
        return value

    def broker_text(self, name: str) -> str | None:
        """Returns None for one that has no default and is not set."""
        return next((each.value for each in self._broker_values(BROKER_KEYS[name], self._node_id)), None)

    def broker_int(self, name: str) -> int:
        return int(self.broker(name))

    def broker_flag(self, name: str) -> bool:
        return self.broker(name).strip().lower() == "true"

    def list_of_broker(self, key: ConfigKey, broker_id: int) -> str:
        """Returns what a list is changed from, for one broker or for all of them (CLUSTER_DEFAULT)."""
        return next((synonym.value for synonym in self._broker_values(key, broker_id)), "")

    def topic(self, configs: Mapping[str, str], name: str) -> str:
        """Returns the value of a topic key for a topic with these configs of its own."""
        own = configs.get(name)
        if own is not None:
            return own
        key = TOPIC_KEYS[name]
        if key.synonym is not None:
            return self.broker(key.synonym)
        invariant(key.default is not None, f"{name} has no default")
        return cast(str, key.default)

    def topic_values(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the values of all topic keys, for whoever wants many of them."""
        defaults = self._known().topic
        if not defaults:
            defaults.update((name, self.topic({}, name)) for name, key in TOPIC_KEYS.items() if not key.internal)
        return {**defaults, **configs}

    def derived(self, make: Callable[[ConfigResolver, Mapping[str, str]], T], configs: Mapping[str, str]) -> T:
        """Returns what `make`, a plain function, makes of a topic's configs: once for all topics with equal ones, as
        a thousand of them may change in one turn of the loop. It is shared, so it must not be changed."""
        derived = self._known().derived
        key = make, frozenset(configs.items())
        if key not in derived:
            if len(derived) >= DERIVED_KEPT_MAX:
                derived.clear()
            derived[key] = make(self, configs)
        return cast(T, derived[key])

    def _known(self) -> _Known:
        dynamic = self._store.image.broker_configs
        own, shared = dynamic.get(self._node_id), dynamic.get(CLUSTER_DEFAULT)
        if self._known_before.own is not own or self._known_before.shared is not shared:
            self._known_before = _Known(own, shared)
        return self._known_before

    def check_together(self, configs: Mapping[str, str]) -> None:
        """Raises INVALID_CONFIG when a topic's configs, each legal alone, contradict each other."""
        names = "min.compaction.lag.ms", "max.compaction.lag.ms"
        shortest, longest = (int(self.topic(configs, name)) for name in names)
        if shortest > longest:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{names[0]} = {shortest} is above {names[1]} = {longest}")

    # Descriptions

    def describe_topic(self, configs: Mapping[str, str]) -> Iterator[ConfigEntry]:
        for key in TOPIC_KEYS.values():
            if not key.internal or key.name in configs:
                yield _entry(key, list(self._topic_values(key, configs)), read_only=False)

    def describe_broker(self, broker_id: int) -> Iterator[ConfigEntry]:
        dynamic = self._store.image.broker_configs
        strangers = {*dynamic.get(broker_id, ()), *dynamic.get(CLUSTER_DEFAULT, ())}
        if broker_id == self._node_id:
            strangers.update(self._static)
        for key in all_broker_keys():
            strangers.discard(key.name)
            synonyms = list(self._broker_values(key, broker_id))
            if not key.internal or any(synonym.source is not ConfigSource.DEFAULT for synonym in synonyms):
                yield _entry(key, synonyms, read_only=key.scope is Scope.READ_ONLY)
        for name in sorted(strangers):
            key = broker_key(name) or stranger(name)
            yield _entry(key, list(self._broker_values(key, broker_id)), read_only=key.scope is Scope.READ_ONLY)

    def describe_cluster_default(self) -> Iterator[ConfigEntry]:
        for name, value in sorted(self._store.image.broker_configs.get(CLUSTER_DEFAULT, {}).items()):
            key = broker_key(name) or stranger(name)
            synonym = Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
            yield _entry(key, [synonym], read_only=key.type is ConfigType.UNKNOWN)

    def describe_group(self, group_id: str) -> Iterator[ConfigEntry]:
        from chronik.configs.group_keys import GROUP_KEYS

        configs = self._store.image.group_configs.get(group_id, {})
        for key in GROUP_KEYS.values():
            yield _entry(key, list(self._group_values(key, configs)), read_only=False)

    def check_group_configs(self, configs: Mapping[str, str]) -> None:
        """Checks all that a group would have. Raises INVALID_CONFIG."""
        from chronik.configs.group_keys import GROUP_KEYS, KINDS, bounds_of

        for name, value in configs.items():
            check_group_config(name, value)
            for bound, sign in zip(bounds_of(GROUP_KEYS[name]), (1, -1), strict=True):
                if bound is not None and sign * int(value) < sign * int(self._kept(bound)):
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} = {value} is beyond {bound.name}")
        for kind in KINDS:
            names = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
            beat, session = (int(next(self._group_values(GROUP_KEYS[name], configs)).value) for name in names)
            if beat >= session:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{names[1]} must be greater than {names[0]}")

    def _kept(self, key: ConfigKey) -> str:
        return next(self._broker_values(key, self._node_id)).value

    def _group_values(self, key: ConfigKey, configs: Mapping[str, str]) -> Iterator[Synonym]:
        own = configs.get(key.name)
        if own is not None:
            yield Synonym(key.name, own, ConfigSource.DYNAMIC_GROUP)
        of_brokers = broker_key(key.synonym) if key.synonym is not None else None
        if of_brokers is not None:
            yield from self._broker_values(of_brokers, self._node_id)
        elif key.default is not None:
            yield Synonym(key.name, key.default, ConfigSource.DEFAULT)

    def _topic_values(self, key: ConfigKey, configs: Mapping[str, str]) -> Iterator[Synonym]:
        own = configs.get(key.name)
        if own is not None:
            yield Synonym(key.name, own, ConfigSource.DYNAMIC_TOPIC)
        if key.synonym is not None:
            yield from self._broker_values(BROKER_KEYS[key.synonym], self._node_id)
        elif key.default is not None:
            yield Synonym(key.name, key.default, ConfigSource.DEFAULT)

    def _broker_values(self, key: ConfigKey, broker_id: int, unit: int = 1) -> Iterator[Synonym]:
        """A node knows only its own file: what stands in another broker's is told by that broker alone."""
        dynamic = self._store.image.broker_configs
        own = dynamic.get(broker_id, {}).get(key.name)
        if own is not None:
            yield Synonym(key.name, own, ConfigSource.DYNAMIC_BROKER, unit)
        shared = dynamic.get(CLUSTER_DEFAULT, {}).get(key.name)
        if shared is not None:
            yield Synonym(key.name, shared, ConfigSource.DYNAMIC_DEFAULT_BROKER, unit)
        if broker_id == self._node_id and key.name in self._static:
            yield Synonym(key.name, self._static[key.name], ConfigSource.STATIC_BROKER, unit)
        for fallback in key.fallbacks:
            yield from self._broker_values(BROKER_KEYS[fallback.name], broker_id, fallback.unit)
        if key.default is not None:
            yield Synonym(key.name, key.default, ConfigSource.DEFAULT, unit)


def _entry(key: ConfigKey, synonyms: list[Synonym], *, read_only: bool) -> ConfigEntry:
    if not synonyms:
        return ConfigEntry(key, None, ConfigSource.DEFAULT, read_only)
    return ConfigEntry(key, synonyms[0].in_units_of_the_key, synonyms[0].source, read_only, synonyms)
