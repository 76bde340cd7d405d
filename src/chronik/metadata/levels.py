"""What was added to commands and records since there are versions that must go on reading them.

Nodes of different versions share one log, and a node stops at a field that it does not know. So what is added stands
at the end, has a default, and is named here: it is written, and counted in the state hash, only where it has another
value than that.
"""

from __future__ import annotations

from typing import Any, Final

FIELDS: Final[dict[str, dict[str, int]]] = {
    "RegisterBroker": {"listeners": 1},
    "Broker": {"listeners": 1},
    "BrokerEntry": {},
}
"""By the name of a command, of a part of one, of a record of the image or of an entry of its snapshots: the fields that
were added to it, each with its level. Without any of its own it stands here for what it holds."""


def written(value: Any) -> Any:
    """What an encoder is given for `value`: without the fields at its end that were added and have their defaults."""
    if isinstance(value, tuple):
        return [written(each) for each in value]
    added = FIELDS.get(type(value).__name__)
    if added is None:
        return value
    names, defaults = list(value.__struct_fields__), list(value.__struct_defaults__)
    while names and names[-1] in added and getattr(value, names[-1]) == defaults[-1]:
        names.pop()
        defaults.pop()
    fields = [written(getattr(value, name)) for name in names]
    tag = value.__struct_config__.tag
    return fields if tag is None else [tag, *fields]
