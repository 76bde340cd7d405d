"""Validation of config changes, with Kafka's error messages and codes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from chronik.configs.broker_key_lookup import find_broker_key, iter_broker_keys
from chronik.configs.keys import TOPIC_KEYS, ConfigKey, UpdateMode
from chronik.errors import ConfigError
from chronik.limits import CONFIG_NAME_CHARACTERS_MAX
from chronik.metadata.handlers.configs import CONFIG_KEYS_MAX, validate_configs
from chronik.metadata.records import CommandRejectedError
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.wording import format_spelling_suggestion


def validate_topic_config(name: str, value: str | None) -> None:
    """Raise INVALID_CONFIG for an unknown topic config or an invalid value."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    _check_value(key, value, ErrorCode.INVALID_CONFIG)


def validate_group_config(name: str, value: str | None) -> None:
    """Raise INVALID_CONFIG for an unknown group config or an invalid value."""
    from chronik.configs.group_keys import GROUP_KEYS

    key = GROUP_KEYS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    _check_value(key, value, ErrorCode.INVALID_CONFIG)


def validate_broker_configs(wanted: Mapping[str, str], *, cluster_wide: bool) -> None:
    """Raise INVALID_REQUEST for broker configs that cannot be altered dynamically, or not cluster-wide.

    Invalid values are rejected as well. Unknown names are accepted as in Kafka: they may belong to a plugin.
    """
    keys = [key for name in wanted if (key := find_broker_key(name)) is not None]
    _reject_unalterable_configs(
        keys, lambda key: key.update_mode is UpdateMode.READ_ONLY, "Cannot update these configs dynamically"
    )
    _reject_unalterable_configs(
        keys,
        lambda key: key.per_listener,
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    if cluster_wide:
        _reject_unalterable_configs(
            keys,
            lambda key: key.update_mode is UpdateMode.PER_BROKER,
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    for key in keys:
        _check_value(key, wanted[key.name], ErrorCode.INVALID_REQUEST)


def validate_config_sizes(changed: Collection[str], after: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG if a change contains too many configs, or would make the resource's configs too large."""
    if len(changed) > CONFIG_KEYS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{len(changed)} configs in one change; the maximum is {CONFIG_KEYS_MAX}"
        )
    for name in changed:
        if len(name) > CONFIG_NAME_CHARACTERS_MAX:
            message = (
                f"The config name {name[:20]}… has {len(name)} characters; the limit is {CONFIG_NAME_CHARACTERS_MAX}"
            )
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    try:
        validate_configs(after)
    except CommandRejectedError as rejected:
        raise KafkaError(rejected.code, rejected.message) from None


def validate_static_config(name: str, value: str) -> None:
    """Raise ConfigError for an unknown key or an invalid value in the `[broker]` section of the config file."""
    key = find_broker_key(name)
    if key is None:
        hint = format_spelling_suggestion(name, (each.name for each in iter_broker_keys()))
        raise ConfigError(f"broker: unknown key {name!r}{hint or '; expected the name of a Kafka broker config'}")
    expected = key.check(value)
    if expected is not None:
        raise ConfigError(f"broker: {name} = {_mask_sensitive_value(key, value)!r}: expected {expected}")


def _reject_unalterable_configs(keys: list[ConfigKey], is_invalid: Callable[[ConfigKey], bool], reason: str) -> None:
    invalid_names = sorted(key.name for key in keys if is_invalid(key))
    if invalid_names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(invalid_names)}]")


def _check_value(key: ConfigKey, value: str | None, code: ErrorCode) -> None:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key.name} has no value")
    expected = key.check(value)
    if expected is not None:
        raise KafkaError(
            code, f"Invalid value {_mask_sensitive_value(key, value)} for configuration {key.name}: expected {expected}"
        )


def _mask_sensitive_value(key: ConfigKey, value: str) -> str:
    return "[hidden]" if key.is_sensitive else value
