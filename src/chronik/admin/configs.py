"""Description and alteration of the configs of topics, brokers, groups and loggers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from chronik.admin.fresh_image_retry import retry_on_fresh_image
from chronik.clock import Clock
from chronik.config import Address, NodeConfig
from chronik.configs.broker_key_lookup import find_broker_key
from chronik.configs.keys import REGISTRY_URL, TOPIC_KEYS, ConfigKey, ConfigType
from chronik.configs.resolver import ConfigEntry, ConfigResolver, ConfigSource, ConfigSynonym
from chronik.configs.validation import validate_broker_configs, validate_config_sizes, validate_topic_config
from chronik.configs.validators import accept_any_value
from chronik.limits import GROUP_ID_CHARACTERS_MAX
from chronik.listeners import ADVERTISED_LISTENERS, LISTENERS
from chronik.metadata import levels
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT, UpdateBrokerConfig
from chronik.metadata.commands.groups import UpdateGroupConfig
from chronik.metadata.commands.topics import UpdateTopicConfig
from chronik.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from chronik.metadata.records import Topic
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError

ROOT_LOGGER: Final = "root"
"""Name of the root logger in requests that read or change log levels."""

CHRONIK_LOGGER: Final = "chronik"

LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Python's log levels by Kafka's level names (TRACE to FATAL).

Python has no TRACE level, so TRACE enables debug lines but is reported as TRACE.
"""


def get_log_levels() -> dict[str, str]:
    """Return the effective level of each logger."""
    return {name: _name(logger.getEffectiveLevel()) for name, logger in _list_loggers().items()}


def has_logger(name: str) -> bool:
    """Return whether a logger with the name exists."""
    return name in _list_loggers()


def set_log_level(name: str, level: str) -> None:
    """Set the level of a logger."""
    _list_loggers()[name].setLevel(LEVELS[level])


def reset_log_level(name: str) -> None:
    """Remove a logger's own level, so that it inherits the level of its parent."""
    _list_loggers()[name].setLevel(logging.NOTSET)


def _list_loggers() -> dict[str, logging.Logger]:
    root = logging.getLogger()
    ours = {
        name: logger
        for name, logger in sorted(root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and (name == CHRONIK_LOGGER or name.startswith(f"{CHRONIK_LOGGER}."))
    }
    return {ROOT_LOGGER: root, **ours}


def _name(level: int) -> str:
    return next((name for name, lowest in reversed(LEVELS.items()) if level >= lowest), "TRACE")


BROKER_ID_DIGITS_MAX: Final = 10
"""Maximum number of digits of a broker id (int32). Parsing a number with thousands of digits is slow."""

SYSTEM_TOPIC_CONFIGS: Final = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}
"""Prefixes of the broker configs that set a system topic's partition count and replication factor."""

LEVEL_DOC = "The level of a logger."


class ConfigResourceType(IntEnum):
    """The type of a config resource, with Kafka's numeric codes."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    """Client metrics subscriptions. They have no configs, because Chronik does not support client telemetry."""
    GROUP = 32


class ConfigResourceKey(NamedTuple):
    """A topic, broker, logger or group that has configs."""

    type: int
    name: str
    """Name of the resource. For a broker, its id, or an empty string for the cluster-wide default."""


class AlterConfigOperation(IntEnum):
    """An operation of IncrementalAlterConfigs, with Kafka's numeric codes."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A requested change of one config: its name, its new value and the operation."""

    name: str
    value: str | None
    operation: int = AlterConfigOperation.SET


class ConfigAdmin:
    """The administrative operations on configs: listing, describing and altering them."""

    def __init__(
        self,
        config: NodeConfig,
        store: MetadataStore,
        configs: ConfigResolver,
        clock: Clock,
        bound: Mapping[str, Address] = MappingProxyType({}),
        registry_url: str = "",
    ) -> None:
        """Initialize with the node's config.

        `bound` maps each listener's name to its bound address. `registry_url` is the URL of the node's schema registry.
        """
        self._clock = clock
        self._config = config
        self._bound = bound
        self._registry_url = registry_url
        self._store = store
        self._configs = configs

    def list_resources(self) -> dict[ConfigResourceType, list[str]]:
        """Return the names of all config resources, such as topics and brokers, by resource type."""
        image = self._store.image
        brokers = [str(broker) for broker in image.brokers]
        return {
            ConfigResourceType.TOPIC: list(image.topics),
            ConfigResourceType.BROKER: brokers,
            ConfigResourceType.BROKER_LOGGER: brokers,
            ConfigResourceType.GROUP: list(image.group_configs),
        }

    # --- description ---

    def describe(self, resource: ConfigResourceKey) -> Iterable[ConfigEntry]:
        """Return the configs of a resource.

        Raises:
            KafkaError: The resource does not exist or has no configs.
        """
        if resource.type == ConfigResourceType.TOPIC:
            return self._configs.describe_topic(self._get_existing_topic(resource.name).configs)
        if resource.type == ConfigResourceType.BROKER:
            broker = self._parse_broker_id(resource.name)
            return (
                self._configs.describe_cluster_default() if broker == CLUSTER_DEFAULT else self._describe_broker(broker)
            )
        if resource.type == ConfigResourceType.BROKER_LOGGER:
            check_node_id(self._config.node_id, resource.name)
            return describe_log_levels()
        if resource.type == ConfigResourceType.GROUP and resource.name:
            return self._configs.describe_group(resource.name)
        raise _build_unknown_resource_error(resource)

    def _describe_broker(self, broker_id: int) -> Iterable[ConfigEntry]:
        """Yield the configs of a broker, with actual values for those that the node sets itself, such as `node.id`."""
        image = self._store.image
        broker = image.brokers[broker_id]
        actual_values = {
            "node.id": str(broker_id),
            "broker.id": str(broker_id),
            "broker.rack": broker.rack,
            ADVERTISED_LISTENERS: _format_listeners(
                (each.listener, Address(each.host, each.port)) for each in broker.endpoints
            ),
        }
        if broker_id == self._config.node_id:
            actual_values[LISTENERS] = _format_listeners(self._bound.items())
            actual_values["log.dirs"] = str(self._config.data_dir)
            if self._registry_url and REGISTRY_URL not in self._config.broker:
                actual_values[REGISTRY_URL] = self._registry_url
        for name, prefix in SYSTEM_TOPIC_CONFIGS.items():
            topic = image.topics.get(name)
            if topic is not None:
                actual_values[f"{prefix}.num.partitions"] = str(len(topic.partitions))
                actual_values[f"{prefix}.replication.factor"] = str(topic.replication_factor)
        for entry in self._configs.describe_broker(broker_id):
            value = actual_values.get(entry.key.name)
            if value is not None:
                own = ConfigSynonym(entry.key.name, value, ConfigSource.STATIC_BROKER)
                entry = replace(entry, value=value, source=own.source, synonyms=[own])
            yield entry

    # --- alteration, atomic for each resource ---

    async def replace_configs(
        self, resource: ConfigResourceKey, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Replace all configs of a resource (AlterConfigs). Configs that are not listed are reset to their defaults.

        Raises:
            KafkaError: The resource does not exist or a config is invalid.
        """
        wanted: dict[str, str] = {}
        for change in changes:
            if change.value is None or change.name in wanted:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} must be specified once, with a value")
            wanted[change.name] = change.value
        update = partial(
            self._validate_and_apply_changes, resource, wanted, (), is_all=True, validate_only=validate_only
        )
        await retry_on_fresh_image(self._store, update)

    async def alter(
        self, resource: ConfigResourceKey, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Alter individual configs of a resource (IncrementalAlterConfigs).

        Raises:
            KafkaError: The resource does not exist or a config is invalid.
        """
        await retry_on_fresh_image(self._store, partial(self._alter_resource_configs, resource, changes, validate_only))

    async def _alter_resource_configs(
        self, resource: ConfigResourceKey, changes: Sequence[ConfigChange], validate_only: bool
    ) -> None:
        wanted, delete = self._split_config_changes(resource, changes)
        if resource.type == ConfigResourceType.BROKER_LOGGER:
            check_node_id(self._config.node_id, resource.name)
            alter_log_levels(wanted, delete, validate_only=validate_only)
        else:
            await self._validate_and_apply_changes(resource, wanted, delete, is_all=False, validate_only=validate_only)

    async def _validate_and_apply_changes(
        self,
        resource: ConfigResourceKey,
        wanted: Mapping[str, str],
        delete: tuple[str, ...],
        *,
        is_all: bool,
        validate_only: bool,
    ) -> None:
        """Validate all changes, then apply them with a single command."""
        command: UpdateTopicConfig | UpdateBrokerConfig | UpdateGroupConfig
        if resource.type == ConfigResourceType.TOPIC:
            topic = self._get_existing_topic(resource.name)
            for key, value in wanted.items():
                validate_topic_config(key, value)
            after = _apply_changes({} if is_all else topic.configs, wanted, delete)
            self._configs.check_topic_consistency(after)
            time_ms = levels.get_timestamp_if_supported(self._store.image.features, self._clock.now_ms())
            command = UpdateTopicConfig(topic.id, dict(wanted), delete, is_all, time_ms)
        elif resource.type == ConfigResourceType.BROKER:
            broker = self._parse_broker_id(resource.name)
            validate_broker_configs(wanted, cluster_wide=broker == CLUSTER_DEFAULT)
            broker_configs_before = {} if is_all else self._store.image.broker_configs.get(broker, {})
            after = _apply_changes(broker_configs_before, wanted, delete)
            command = UpdateBrokerConfig(broker, dict(wanted), delete, is_all)
        elif resource.type == ConfigResourceType.GROUP:
            if resource.name == "":
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            if len(resource.name) > GROUP_ID_CHARACTERS_MAX and resource.name not in self._store.image.group_configs:
                message = f"A group id has at most {GROUP_ID_CHARACTERS_MAX} characters, not {len(resource.name)}"
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, message)
            group_configs_before = {} if is_all else self._store.image.group_configs.get(resource.name, {})
            after = _apply_changes(group_configs_before, wanted, delete)
            self._configs.check_group_configs(after)
            command = UpdateGroupConfig(resource.name, dict(wanted), delete, is_all)
        else:
            raise _build_unknown_resource_error(resource)
        validate_config_sizes([*wanted, *delete], after)
        if not validate_only:
            await self._store.propose(command)

    def _split_config_changes(
        self, resource: ConfigResourceKey, changes: Sequence[ConfigChange]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Split changes into the configs to set, with their new values, and the configs to delete."""
        wanted: dict[str, str] = {}
        delete: dict[str, None] = {}
        for name, value, operation in changes:
            if name in wanted or name in delete:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is specified twice")
            if operation == AlterConfigOperation.DELETE:
                delete[name] = None
            elif value is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} has no value")
            elif operation == AlterConfigOperation.SET:
                wanted[name] = value
            elif operation in (AlterConfigOperation.APPEND, AlterConfigOperation.SUBTRACT):
                wanted[name] = _append_or_subtract_list_items(
                    self._get_list_config_value(resource, name), value, operation
                )
            else:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no config operation {operation}")
        return wanted, tuple(delete)

    def _get_list_config_value(self, resource: ConfigResourceKey, name: str) -> str:
        if resource.type == ConfigResourceType.BROKER_LOGGER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A log level is not a list: it can only be set or deleted")
        on_topic = resource.type == ConfigResourceType.TOPIC
        key = TOPIC_KEYS.get(name) if on_topic else find_broker_key(name)
        if key is None or key.type is not ConfigType.LIST:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is not a list: it can only be set or deleted")
        if on_topic:
            return self._configs.topic_value(self._get_existing_topic(resource.name).configs, name)
        return self._configs.broker_list(key, self._parse_broker_id(resource.name))

    # --- lookup of resources ---

    def _get_existing_topic(self, name: str) -> Topic:
        topic = self._store.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}")
        return topic

    def _parse_broker_id(self, name: str) -> int:
        """Return the broker id for a resource name, or CLUSTER_DEFAULT for an empty name."""
        if name == "":
            return CLUSTER_DEFAULT
        if not name.isdecimal() or len(name) > BROKER_ID_DIGITS_MAX or int(name) not in self._store.image.brokers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no broker {name!r}")
        return int(name)


def _format_listeners(listeners: Iterable[tuple[str, Address]]) -> str:
    return ",".join(f"{name}://{address}" for name, address in listeners)


def _build_unknown_resource_error(resource: ConfigResourceKey) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Resource type {resource.type} has no configs")


def _apply_changes(before: Mapping[str, str], wanted: Mapping[str, str], delete: Iterable[str]) -> dict[str, str]:
    return {key: value for key, value in before.items() if key not in delete} | dict(wanted)


def _append_or_subtract_list_items(current: str, value: str, operation: int) -> str:
    items, given = ([item.strip() for item in text.split(",") if item.strip()] for text in (current, value))
    if operation == AlterConfigOperation.APPEND:
        return ",".join(items + [item for item in given if item not in items])
    return ",".join(item for item in items if item not in given)


def check_node_id(node_id: int, name: str) -> None:
    """Raise KafkaError unless the requested broker id is this node's id.

    Log levels are local to each node.
    """
    if name != str(node_id):
        message = f"Unexpected broker id, expected {node_id} but received {name!r}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def describe_log_levels() -> Iterator[ConfigEntry]:
    """Yield the levels of all loggers."""
    for name, level in get_log_levels().items():
        key = ConfigKey(name, ConfigType.UNKNOWN, None, LEVEL_DOC, accept_any_value)
        yield ConfigEntry(key, level, ConfigSource.DYNAMIC_BROKER_LOGGER, read_only=False)


def alter_log_levels(wanted: Mapping[str, str], delete: Sequence[str], *, validate_only: bool) -> None:
    """Set the levels of some loggers and remove those of others, all or none of them.

    Raises:
        KafkaError: A logger or a level does not exist.
    """
    for name, level in wanted.items():
        _check_logger_exists(name)
        if level not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}",
            )
    for name in delete:
        if name == ROOT_LOGGER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        _check_logger_exists(name)
    if not validate_only:
        for name, level in wanted.items():
            set_log_level(name, level)
        for name in delete:
            reset_log_level(name)


def _check_logger_exists(name: str) -> None:
    if not has_logger(name):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
