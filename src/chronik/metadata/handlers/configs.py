"""Validation of configs in commands. The proposer validates keys and values; handlers only limit their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chronik.metadata.records import NO_CONFIGS, CommandRejectedError
from chronik.protocol.errors import ErrorCode

CONFIG_KEYS_MAX: Final = 1000
"""The maximum number of configs per topic or broker. Kafka has about 30 per topic and 250 per broker."""

CONFIG_CHARACTERS_MAX: Final = 64 * 1024
"""The maximum size of a topic's or broker's configs, which are part of every snapshot and DescribeConfigs response."""


def apply_config_changes(
    old: Mapping[str, str], set_: Mapping[str, str], delete: Sequence[str], *, replace: bool
) -> dict[str, str]:
    """Return a resource's configs after setting and deleting keys, sorted so that they are equal on every node."""
    new = {} if replace else dict(old)
    for key in delete:
        new.pop(key, None)
    new.update(set_)
    return validate_configs(new)


def validate_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Reject a resource's configs if they are too many or too large; otherwise return them sorted by key.

    Raises:
        CommandRejectedError: The configs are too many or too large.
    """
    if len(configs) > CONFIG_KEYS_MAX:
        raise CommandRejectedError(ErrorCode.INVALID_CONFIG, f"more than {CONFIG_KEYS_MAX} configs")
    if sum(len(key) + len(value) for key, value in configs.items()) > CONFIG_CHARACTERS_MAX:
        raise CommandRejectedError(ErrorCode.INVALID_CONFIG, f"configs of more than {CONFIG_CHARACTERS_MAX} characters")
    return dict(sorted(configs.items())) if configs else NO_CONFIGS
