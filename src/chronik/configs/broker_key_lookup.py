"""Lookup of broker configs by name: supported, ignored, and listener-specific ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from chronik.configs.keys import BROKER_KEYS, ConfigKey, ConfigType
from chronik.configs.validators import accept_any_value

_MECHANISM = r"(?:(?:gssapi|plain|scram-sha-256|scram-sha-512|oauthbearer)\.)?"
_LISTENER_PREFIX = re.compile(rf"listener\.name\.[^.]*\.{_MECHANISM}(.*)", re.DOTALL)


PER_LISTENER_KEYS: Final = frozenset({"sasl.enabled.mechanisms", "connections.max.reauth.ms"})
"""Keys that can be set for a single listener in the config file."""


def find_broker_key(name: str) -> ConfigKey | None:
    """Return the broker config with this name, or None if it is unknown."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key
    from chronik.configs.ignored_keys import IGNORED_KEYS  # imported on first use: most nodes never need it

    key = IGNORED_KEYS.get(name)
    return key if key is not None else _find_listener_key(name)


def iter_broker_keys() -> Iterator[ConfigKey]:
    """Yield all broker configs, including ignored ones."""
    from chronik.configs.ignored_keys import IGNORED_KEYS

    yield from BROKER_KEYS.values()
    yield from IGNORED_KEYS.values()


def create_unknown_key(name: str) -> ConfigKey:
    """Return a ConfigKey of type STRING for a config name that Chronik does not know.

    Kafka stores such configs for plugins and never returns their values, because they may be passwords.
    """
    return ConfigKey(name, ConfigType.UNKNOWN, None, "", accept_any_value, secret=True)


def _find_listener_key(name: str) -> ConfigKey | None:
    """Return the config key of a listener-specific name, such as `listener.name.NAME.ssl.keystore.location`.

    TLS and SASL configs of a listener are read at start-up; others have no effect.
    """
    found = _LISTENER_PREFIX.fullmatch(name)
    key = find_broker_key(found[1]) if found else None
    if key is None:
        return None
    kept = key.name not in PER_LISTENER_KEYS
    return replace(key, name=name, default=None, fallbacks=(), kept=kept, internal=True, per_listener=False)
