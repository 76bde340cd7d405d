"""What may be set, and where: refusals of wrong configs, in Kafka's words and with its codes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from chronik.configs.keys import TOPIC_KEYS, ConfigKey, Scope
from chronik.configs.known import all_broker_keys, broker_key
from chronik.errors import ConfigError
from chronik.limits import CONFIG_NAME_CHARACTERS_MAX
from chronik.metadata.handlers.configs import CONFIG_KEYS_MAX, checked_configs
from chronik.metadata.rejection import Rejected
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.wording import suggestion


def check_topic_config(name: str, value: str | None) -> None:
    """Raises INVALID_CONFIG for an unknown key or an illegal value."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    _check_value(key, value, ErrorCode.INVALID_CONFIG)


def check_group_config(name: str, value: str | None) -> None:
    """Raises INVALID_CONFIG for an unknown key or an illegal value."""
    from chronik.configs.group_keys import GROUP_KEYS

    key = GROUP_KEYS.get(name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    _check_value(key, value, ErrorCode.INVALID_CONFIG)


def check_broker_configs(wanted: Mapping[str, str], *, cluster_wide: bool) -> None:
    """Raises INVALID_REQUEST for keys that cannot change while the node runs, or not for all brokers at once, and for
    illegal values. Names that nobody knows are taken, as Kafka takes them: they may be a plugin's."""
    keys = [key for name in wanted if (key := broker_key(name)) is not None]
    _refuse(keys, lambda key: key.scope is Scope.READ_ONLY, "Cannot update these configs dynamically")
    _refuse(
        keys,
        lambda key: key.per_listener,
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    if cluster_wide:
        _refuse(
            keys,
            lambda key: key.scope is Scope.PER_BROKER,
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    for key in keys:
        _check_value(key, wanted[key.name], ErrorCode.INVALID_REQUEST)


def check_sizes(changed: Collection[str], after: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG for a change that names too much, or leaves too much behind for one resource."""
    if len(changed) > CONFIG_KEYS_MAX:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{len(changed)} configs in one change; at most {CONFIG_KEYS_MAX}")
    for name in changed:
        if len(name) > CONFIG_NAME_CHARACTERS_MAX:
            told = f"The config name {name[:20]}… has {len(name)} characters; at most {CONFIG_NAME_CHARACTERS_MAX}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, told)
    try:
        checked_configs(after)
    except Rejected as rejected:
        raise KafkaError(rejected.code, rejected.message) from None


def check_static(name: str, value: str) -> None:
    """Raises ConfigError for what the file may not say."""
    key = broker_key(name)
    if key is None:
        meant = suggestion(name, (each.name for each in all_broker_keys()))
        raise ConfigError(f"broker: unknown key {name!r}{meant or '; expected names of Kafka broker configs'}")
    expected = key.check(value)
    if expected is not None:
        raise ConfigError(f"broker: {name} = {_shown(key, value)!r}: expected {expected}")


def _refuse(keys: list[ConfigKey], is_wrong: Callable[[ConfigKey], bool], reason: str) -> None:
    wrong = sorted(key.name for key in keys if is_wrong(key))
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(wrong)}]")


def _check_value(key: ConfigKey, value: str | None, code: ErrorCode) -> None:
    if value is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key.name} has no value")
    expected = key.check(value)
    if expected is not None:
        raise KafkaError(code, f"Invalid value {_shown(key, value)} for configuration {key.name}: expected {expected}")


def _shown(key: ConfigKey, value: str) -> str:
    return "[hidden]" if key.sensitive else value
