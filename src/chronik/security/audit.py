"""The audit log: who was refused what, and who changed what; a line of JSON each, of the logger `chronik.audit`.

Names come from strangers: they are cut, and shown as JSON shows them. What clients send or read is never in it. How
many lines are written is for the node's log (`chronik.logs`), which counts those of one kind; so each kind of line has
one text, and what it tells are arguments. In a log of JSON (`log_format`) its fields stand beside the log's own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from chronik.exchange import Peer
from chronik.logs import IS_JSON
from chronik.protocol.permissions import Operation, ResourceType
from chronik.shown import json_text, shortened

logger = logging.getLogger("chronik.audit")

NAME_CHARACTERS_MAX: Final = 200
"""With what JSON has to escape in a name it is still less than what the log cuts: JSON that is cut is none."""

LIST_CHARACTERS_MAX: Final = 380
"""So much is named of what one request has changed, and of the rest how many they are."""

_WHO: Final = '"principal": %s, "host": %s'
REFUSED: Final = f'{{"event": "refused", {_WHO}, "api": %s, "operation": %s, "resource": %s, "name": %s}}'
CHANGED: Final = f'{{"event": "changed", {_WHO}, "api": "API", "changed": %s, "more": %d, "failed": %d}}'

LOGIN_REFUSED: Final = f'{{"event": "login refused", {_WHO}, "api": %s}}'


def refused(peer: Peer, api: str, operation: Operation, resource: ResourceType, name: str) -> None:
    if logger.isEnabledFor(logging.INFO):
        words = (str(peer.principal), peer.host, api, worded(operation), worded(resource), name)
        logger.info(REFUSED, *map(_shown, words), extra=IS_JSON)


def changed(peer: Peer, api: str, names: Sequence[str], count: int, failures: int) -> None:
    """Tells of a request that changed so many things, some of them named, and failed to change so many others."""
    if logger.isEnabledFor(logging.INFO):
        named: list[str] = []
        size = 0
        for name in names:
            shown = _shown(name)
            size += len(shown) + 2
            if size > LIST_CHARACTERS_MAX:
                break
            named.append(shown)
        who = _shown(str(peer.principal)), _shown(peer.host)
        told = (*who, f"[{', '.join(named)}]", count - len(named), failures)
        logger.info(CHANGED.replace("API", api), *told, extra=IS_JSON)


def login_refused(peer: Peer, way: str) -> None:
    """Tells of somebody who is not who they said they are: of a password that was wrong, or a user that is none."""
    if logger.isEnabledFor(logging.INFO):
        logger.info(LOGIN_REFUSED, _shown(str(peer.principal)), _shown(peer.host), _shown(way), extra=IS_JSON)


def worded(number: IntEnum) -> str:
    """Returns it as Kafka's tools write it: `DescribeConfigs`."""
    return "".join(map(str.capitalize, number.name.split("_")))


def _shown(text: str) -> str:
    shown = json_text(shortened(text, NAME_CHARACTERS_MAX))
    return shown if len(shown) <= LIST_CHARACTERS_MAX else json_text(shortened(text, NAME_CHARACTERS_MAX // 4))
