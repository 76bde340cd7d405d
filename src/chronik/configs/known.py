"""Which broker config a name stands for: one with a meaning here, one of Kafka's that is kept, or one of a listener."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from chronik.configs.checks import anything
from chronik.configs.keys import BROKER_KEYS, ConfigKey, ConfigType

_MECHANISM = r"(?:(?:gssapi|plain|scram-sha-256|scram-sha-512|oauthbearer)\.)?"
_OF_LISTENER = re.compile(rf"listener\.name\.[^.]*\.{_MECHANISM}(.*)", re.DOTALL)


PER_LISTENER: Final = frozenset({"sasl.enabled.mechanisms", "connections.max.reauth.ms"})
"""Keys that a listener may have for itself. They are read from the file."""


def broker_key(name: str) -> ConfigKey | None:
    """Returns None for a name that neither we nor Kafka know."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key
    from chronik.configs.kept_keys import KEPT_KEYS  # a node that is given none of them starts without

    key = KEPT_KEYS.get(name)
    return key if key is not None else _key_of_listener(name)


def all_broker_keys() -> Iterator[ConfigKey]:
    from chronik.configs.kept_keys import KEPT_KEYS

    yield from BROKER_KEYS.values()
    yield from KEPT_KEYS.values()


def stranger(name: str) -> ConfigKey:
    """Makes a key for a name that nobody knows. Kafka stores such names for plugins, and never tells their values: they
    may be passwords."""
    return ConfigKey(name, ConfigType.UNKNOWN, None, "", anything, secret=True)


def _key_of_listener(name: str) -> ConfigKey | None:
    """`listener.name.NAME.KEY` is KEY for one listener, `listener.name.NAME.MECHANISM.KEY` for one way into it. Those
    of TLS and of logins are read at the start; others have no effect here."""
    found = _OF_LISTENER.fullmatch(name)
    key = broker_key(found[1]) if found else None
    if key is None:
        return None
    kept = key.name not in PER_LISTENER
    return replace(key, name=name, default=None, fallbacks=(), kept=kept, internal=True, per_listener=False)
