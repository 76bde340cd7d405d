"""Levels: what nodes of different versions may write into the log that they share.

A node stops at a command or a field that it does not know. So each of them has a level from which on it may be
proposed, and the image has the level that the cluster is at (the feature `chronik.version`). A broker registers which
levels it supports; an operator raises the level of the cluster once all of them support it. It is never lowered: what
was written at a level could not be read below it. A new cluster begins at the highest level that its founder supports.

The classes declare what came with which level: a command or a snapshot entry with `since_level`, a field with
`added_fields`. Level 1 is what 0.2.0 knows; transactions came with level 2,
with level 3 a cluster grows and shrinks, with level 4 it knows users, ACLs and quotas, and with level 5 an import
brings any number of committed offsets. What is added to a command
or a record later stands at its end, has a default, and is declared: it is written, and counted in the state hash,
only where it has another value, so that nodes that do not know it read, and count, the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from chronik.errors import ChronikError
from chronik.protocol.errors import ErrorCode, KafkaError

FEATURE: Final = "chronik.version"

FIRST: Final = 1
"""The level of an image that says nothing of levels."""

TRANSACTIONS: Final = 2
"""The level from which on there are transactions."""

GROWTH: Final = 3
"""The level from which on the nodes in the image say who is meant to be a member, and who is meant to vote."""

SECURITY: Final = 4
"""The level from which on the image holds users, ACLs and quotas."""

IMPORTED_GROUPS: Final = 5
"""The level from which on an import brings groups and committed offsets in several commands."""

LOWEST: int = 1
HIGHEST: int = 5
"""What this version supports. They are read as attributes of this module, each time, so that tests can raise them."""

AnyClass = TypeVar("AnyClass", bound=type)

CLASS_LEVELS: Final[dict[type, int]] = {}
"""The level that introduced each command and snapshot entry that is newer than level 1. See `since_level`."""

FIELD_LEVELS: Final[dict[type, dict[str, int]]] = {}
"""The levels of fields that were appended to a struct after its first release, by struct. See `added_fields`."""


def since_level(level: int) -> Callable[[AnyClass], AnyClass]:
    """Return a class decorator that declares the level that introduced a command or a snapshot entry."""

    def declare(cls: AnyClass) -> AnyClass:
        CLASS_LEVELS[cls] = level
        return cls

    return declare


def added_fields(**field_levels: int) -> Callable[[AnyClass], AnyClass]:
    """Return a class decorator that declares the levels of fields appended to a struct after its first release.

    The struct is a command, a part of a command, an image record or a snapshot entry. A struct that contains another
    struct with added fields is decorated too, even if it has none of its own.
    """

    def declare(cls: AnyClass) -> AnyClass:
        FIELD_LEVELS[cls] = field_levels
        return cls

    return declare


class HasLevels(Protocol):
    """A broker."""

    @property
    def levels(self) -> tuple[int, int]: ...


class LevelNotSupported(ChronikError):
    """The metadata is at a level that this version does not know: the node must stop."""


def level_of(features: Mapping[str, int]) -> int:
    return features.get(FEATURE, FIRST)


def time_if_kept(features: Mapping[str, int], now_ms: int) -> int:
    """Returns the time for a command that has one from level 3 on, and -1 below."""
    return now_ms if level_of(features) >= GROWTH else -1


# --- what is written ------------------------------------------------------------------------------------------------


def written(value: Any) -> Any:
    """Returns what to encode for `value`: it leaves out added fields at its end that have their defaults."""
    if isinstance(value, tuple):
        return [written(each) for each in value]
    added = FIELD_LEVELS.get(type(value))
    if added is None:
        return value
    names = list(value.__struct_fields__)
    while names[-1] in added and _has_default(value, names[-1]):
        names.pop()
    fields = [written(getattr(value, name)) for name in names]
    tag = value.__struct_config__.tag
    return fields if tag is None else [tag, *fields]


def refuse_above(command: Any, level: int) -> None:
    """Raises KafkaError for a command that a cluster at this level must not be given."""
    needed = _needed(command)
    if needed > level:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{type(command).__name__} needs {FEATURE} {needed}, and the cluster is at {level}: once all nodes run a "
            "version of Chronik that supports it, raise it with chronik cluster upgrade",
        )


def _needed(value: Any) -> int:
    if isinstance(value, tuple):
        return max(map(_needed, value), default=FIRST)
    added, needed = FIELD_LEVELS.get(type(value)), CLASS_LEVELS.get(type(value), FIRST)
    if added is None:
        return needed
    own = [level for field, level in added.items() if not _has_default(value, field)]
    return max([needed, *own, *(_needed(getattr(value, field)) for field in value.__struct_fields__)])


def _has_default(value: Any, field: str) -> bool:
    default = value.__struct_defaults__[value.__struct_fields__.index(field) - len(value.__struct_fields__)]
    return bool(getattr(value, field) == default)


# --- who supports what ----------------------------------------------------------------------------------------------


def founding_level(brokers: Mapping[int, HasLevels]) -> int:
    """The highest that this version and the brokers that have registered support. Raises KafkaError."""
    supported = [(LOWEST, HIGHEST), *(broker.levels for broker in brokers.values())]
    level = min(high for _, high in supported)
    if level < max(low for low, _ in supported):
        who = ["this node", *brokers]
        told = ", ".join(f"{each} ({low} to {high})" for each, (low, high) in zip(who, supported, strict=True))
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no {FEATURE} that all brokers support: {told}")
    return level


def not_updated(feature: str, level: int, fault: str) -> str:
    """In the words in which Kafka's tools expect it."""
    return f"Invalid update version {level} for feature {feature}. {fault}"


def why_not_raised(features: Mapping[str, int], brokers: Mapping[int, HasLevels], level: int) -> str | None:
    """Returns why the cluster cannot be brought to this level; None when it can, or is at it already."""
    current = level_of(features)
    if level < current:
        return f"It is at {current} and is never lowered: what was written at that level could not be read any more."
    supported = [(broker_id, *brokers[broker_id].levels) for broker_id in sorted(brokers)]
    without = [f"{who} ({low} to {high})" for who, low, high in supported if not low <= level <= high]
    if not without:
        return None
    return f"Not all brokers support it: {', '.join(without)}. Start them with a version of Chronik that does first."


def why_not_registered(features: Mapping[str, int], broker_id: int, supported: tuple[int, int]) -> str | None:
    level = level_of(features)
    if supported[0] <= level <= supported[1]:
        return None
    version = "a newer" if level > supported[1] else "an older"
    return (
        f"broker {broker_id} supports {FEATURE} {supported[0]} to {supported[1]}, and the cluster is at {level}: "
        f"start it with {version} version of Chronik"
    )


def refuse_unsupported(level: int, where: str) -> None:
    """Raises LevelNotSupported."""
    if level > HIGHEST:
        raise LevelNotSupported(
            f"{where} is at {FEATURE} {level}, and this version of Chronik supports {HIGHEST} at most: "
            "start the node with the newer version"
        )


def level_told_by(data: bytes | memoryview, tag: int) -> int:
    """Returns the level that a command or a snapshot's chunk sets, in entries with this tag, even if it holds other
    things that this version does not know."""
    if FEATURE.encode() not in bytes(data):
        return FIRST
    try:
        told = [each for each in msgspec.msgpack.decode(data, type=list) if isinstance(each, list)]
    except msgspec.DecodeError:  # whoever needs to read it says so
        return FIRST
    return max((each[2] for each in told if each[:2] == [tag, FEATURE]), default=FIRST)
