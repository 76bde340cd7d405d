"""Feature levels: which commands and fields nodes of different versions may write into their shared metadata log.

A node stops when it reads a command or a field that it does not know. Each of them therefore has a level from which on
it may be proposed, and the image holds the level of the cluster (the feature `chronik.version`). A broker registers the
range of levels that it supports. An operator raises the cluster's level once all brokers support the new one. The level
is never lowered, because older versions could not read what was written. A new cluster starts at the highest level that
its bootstrapping node supports.

Classes declare their levels: a command or a snapshot entry with `since_level`, a field with `added_fields`. Level 1 is
version 0.2.0; level 2 adds transactions, level 3 changes of the cluster's size, level 4 users, ACLs and quotas, level 5
imports with any number of committed offsets, level 6 the schema registry. A field is appended with a default. It is
encoded, and included in the state hash, only if it has another value, so that older nodes read and hash the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from chronik.errors import ChronikError
from chronik.protocol.errors import ErrorCode, KafkaError

FEATURE_NAME: Final = "chronik.version"
"""The name of the cluster feature whose level determines which commands the metadata log may contain."""

FIRST_LEVEL: Final = 1
"""The lowest feature level, which applies if the metadata contains no feature level."""

TRANSACTIONS_LEVEL: Final = 2
"""The feature level that introduced transactions."""

DYNAMIC_MEMBERSHIP_LEVEL: Final = 3
"""The feature level since which the metadata image defines the cluster's intended members and voters."""

SECURITY_LEVEL: Final = 4
"""The feature level that introduced users, ACLs and quotas."""

IMPORTED_GROUPS_LEVEL: Final = 5
"""The feature level since which an import transfers groups and committed offsets in several commands."""

SCHEMAS_LEVEL: Final = 6
"""The feature level that introduced the schema registry."""

LOWEST: int = 1
HIGHEST: int = 6
"""The lowest and highest feature levels that this version supports. Use them as module attributes: tests patch them."""

AnyClass = TypeVar("AnyClass", bound=type)

CLASS_LEVELS: Final[dict[type, int]] = {}
"""The feature level that introduced each metadata command and snapshot entry, for those added after level 1."""

FIELD_LEVELS: Final[dict[type, dict[str, int]]] = {}
"""The feature levels that introduced the fields added to existing structs, by struct class and field name."""


def since_level(level: int) -> Callable[[AnyClass], AnyClass]:
    """Return a class decorator that declares the level that introduced a command or a snapshot entry."""

    def declare(cls: AnyClass) -> AnyClass:
        CLASS_LEVELS[cls] = level
        return cls

    return declare


def added_fields(**field_levels: int) -> Callable[[AnyClass], AnyClass]:
    """Return a class decorator that declares which feature levels introduced the fields added to an existing struct.

    The struct is a command, a part of a command, an image record or a snapshot entry. A struct that contains another
    struct with added fields is decorated too, even if it has none of its own.
    """

    def declare(cls: AnyClass) -> AnyClass:
        FIELD_LEVELS[cls] = field_levels
        return cls

    return declare


class HasSupportedLevels(Protocol):
    """A broker with the range of feature levels that it supports."""

    @property
    def levels(self) -> tuple[int, int]: ...


class UnsupportedLevelError(ChronikError):
    """The metadata has a feature level that this version does not support. The node must stop."""


def get_cluster_level(features: Mapping[str, int]) -> int:
    """Return the feature level of the cluster, which is 1 if none is set."""
    return features.get(FEATURE_NAME, FIRST_LEVEL)


def get_timestamp_if_supported(features: Mapping[str, int], now_ms: int) -> int:
    """Return `now_ms` if the feature level supports timestamps in metadata commands (3 or higher), else -1."""
    return now_ms if get_cluster_level(features) >= DYNAMIC_MEMBERSHIP_LEVEL else -1


# --- encoding -------------------------------------------------------------------------------------------------------


def omit_default_fields(value: Any) -> Any:
    """Convert a struct to a list of its fields, omitting trailing fields of newer versions that have default values."""
    if isinstance(value, tuple):
        return [omit_default_fields(each) for each in value]
    added = FIELD_LEVELS.get(type(value))
    if added is None:
        return value
    names = list(value.__struct_fields__)
    while names[-1] in added and _has_default_value(value, names[-1]):
        names.pop()
    fields = [omit_default_fields(getattr(value, name)) for name in names]
    tag = value.__struct_config__.tag
    return fields if tag is None else [tag, *fields]


def check_command_level(command: Any, level: int) -> None:
    """Raise KafkaError if the command needs a higher feature level than the cluster has.

    Raises:
        KafkaError: The command, or a field of it, needs a higher level.
    """
    needed = _find_required_level(command)
    if needed > level:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{type(command).__name__} needs {FEATURE_NAME} {needed}, and the cluster is at {level}: once all nodes "
            "run a "
            "version of Chronik that supports it, raise it with chronik cluster upgrade",
        )


def _find_required_level(value: Any) -> int:
    """Return the lowest feature level at which a command with these field values may be written."""
    if isinstance(value, tuple):
        return max(map(_find_required_level, value), default=FIRST_LEVEL)
    added, needed = FIELD_LEVELS.get(type(value)), CLASS_LEVELS.get(type(value), FIRST_LEVEL)
    if added is None:
        return needed
    own = [level for field, level in added.items() if not _has_default_value(value, field)]
    return max([needed, *own, *(_find_required_level(getattr(value, field)) for field in value.__struct_fields__)])


def _has_default_value(value: Any, field: str) -> bool:
    default = value.__struct_defaults__[value.__struct_fields__.index(field) - len(value.__struct_fields__)]
    return bool(getattr(value, field) == default)


# --- supported levels -----------------------------------------------------------------------------------------------


def choose_bootstrap_level(brokers: Mapping[int, HasSupportedLevels]) -> int:
    """Return the feature level of a new cluster: the highest that this node and all registered brokers support.

    Raises:
        KafkaError: The supported ranges do not overlap.
    """
    supported = [(LOWEST, HIGHEST), *(broker.levels for broker in brokers.values())]
    level = min(high for _, high in supported)
    if level < max(low for low, _ in supported):
        names = ["this node", *brokers]
        ranges = ", ".join(f"{each} ({low} to {high})" for each, (low, high) in zip(names, supported, strict=True))
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"no {FEATURE_NAME} level is supported by all brokers: {ranges}"
        )
    return level


def format_update_error(feature: str, level: int, fault: str) -> str:
    """Return the error message of a rejected feature update in the format of Kafka's tools."""
    return f"Invalid update version {level} for feature {feature}. {fault}"


def find_upgrade_obstacle(
    features: Mapping[str, int], brokers: Mapping[int, HasSupportedLevels], level: int
) -> str | None:
    """Return the reason why the cluster's feature level cannot be raised to `level`, or None if it can.

    The message becomes part of command results and thus of the state hash: its wording must not change.
    """
    current = get_cluster_level(features)
    if level < current:
        return f"It is at {current} and is never lowered: what was written at that level could not be read any more."
    supported = [(broker_id, *brokers[broker_id].levels) for broker_id in sorted(brokers)]
    unsupporting = [f"{who} ({low} to {high})" for who, low, high in supported if not low <= level <= high]
    if not unsupporting:
        return None
    return (
        f"Not all brokers support it: {', '.join(unsupporting)}. Start them with a version of Chronik that does first."
    )


def find_registration_obstacle(features: Mapping[str, int], broker_id: int, supported: tuple[int, int]) -> str | None:
    """Return the reason why a broker with these supported feature levels cannot register, or None if it can.

    The message becomes part of command results and thus of the state hash: its wording must not change.
    """
    level = get_cluster_level(features)
    if supported[0] <= level <= supported[1]:
        return None
    version = "a newer" if level > supported[1] else "an older"
    return (
        f"broker {broker_id} supports {FEATURE_NAME} {supported[0]} to {supported[1]}, and the cluster is at {level}: "
        f"start it with {version} version of Chronik"
    )


def check_level_supported(level: int, where: str) -> None:
    """Raise UnsupportedLevelError if this version does not support the feature level of the metadata.

    Raises:
        UnsupportedLevelError: The level is too high.
    """
    if level > HIGHEST:
        raise UnsupportedLevelError(
            f"{where} is at {FEATURE_NAME} {level}, and this version of Chronik supports {HIGHEST} at most: "
            "start the node with the newer version"
        )


def peek_feature_level(data: bytes | memoryview, tag: int) -> int:
    """Return the feature level that an encoded command or snapshot chunk sets, even if it cannot be fully decoded.

    `tag` is the tag of the entries that set a feature level.
    """
    if FEATURE_NAME.encode() not in bytes(data):
        return FIRST_LEVEL
    try:
        entries = [each for each in msgspec.msgpack.decode(data, type=list) if isinstance(each, list)]
    except msgspec.DecodeError:  # reported when it is fully decoded
        return FIRST_LEVEL
    return max((each[2] for each in entries if each[:2] == [tag, FEATURE_NAME]), default=FIRST_LEVEL)
